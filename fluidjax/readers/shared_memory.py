"""Tensors that go to another process by name: the queue's pipe carries the name, a file in shared memory the numbers.

A pipe holds 64 KiB, and a process that ends waits until its queues are written: for ever, if nobody reads any more.
Who reads maps the file and removes it at once. What nobody took is removed by the process that started the others, when
they have ended; all their files are named after it.
"""

from __future__ import annotations

import glob
import mmap
import multiprocessing
import os
import tempfile
from functools import cache
from multiprocessing.reduction import ForkingPickler
from multiprocessing.util import Finalize
from typing import Any

import numpy as np

from fluidjax.base.places import CPUPlace
from fluidjax.base.values import Lod, LoDTensor

_LATE = -100  # after multiprocessing has waited for its processes and has written its queues (-5)

_parent = multiprocessing.parent_process()
_root = os.getpid() if _parent is None or _parent.pid is None else _parent.pid  # forked processes inherit it

_FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
_PREFIX = f"fluidjax-{_root}-"


@cache
def travel_by_name() -> None:
    """From now on, LoDTensors that are put into queues of ``multiprocessing`` go through shared memory."""
    ForkingPickler.register(LoDTensor, _reduced)
    if os.getpid() == _root:
        Finalize(None, remove_untaken, exitpriority=_LATE)


def remove_untaken() -> None:
    """Remove the files of all processes that this one started, and its own, that nobody has read."""
    for path in glob.glob(os.path.join(_FOLDER, f"{_PREFIX}*")):
        os.unlink(path)


def _reduced(tensor: LoDTensor) -> Any:
    array = np.array(tensor)
    if not array.nbytes:  # nothing to map
        return tensor.__reduce_ex__(2)
    descriptor, path = tempfile.mkstemp(prefix=_PREFIX, dir=_FOLDER)  # only its user reads it
    with open(descriptor, "wb") as file:
        array.tofile(file)
    return _taken, (path, array.dtype, array.shape, tensor.lod())


def _taken(path: str, dtype: np.dtype, shape: tuple[int, ...], lod: Lod) -> LoDTensor:
    with open(path, "rb") as file:
        numbers = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    os.unlink(path)
    tensor = LoDTensor()
    tensor.set(np.frombuffer(numbers, dtype).reshape(shape), CPUPlace())
    tensor.set_lod(lod)
    return tensor
