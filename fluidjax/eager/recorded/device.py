"""The device that eager operators run on: that of the guard's place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax

from fluidjax.base import places
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.sequences.blocks import Blocks
from fluidjax.execution.executables.executable import default_device

_elsewhere: dict[jax.Device, Blocks] = {}


@contextlib.contextmanager
def running_at(place: places.Place) -> Iterator[None]:
    """Eager operators run at ``place``; what was compiled for a device stays with it.

    Where there is nothing but a CPU, XLA is not asked: a process that has started it cannot fork.
    """
    device = places.jax_device(place) if places.may_accelerate() else None
    if device is None or device == default_device():
        yield
        return
    recorder.flush()
    before, recorder.blocks = recorder.blocks, _elsewhere.setdefault(device, Blocks())
    try:
        with jax.default_device(device):
            yield
            recorder.flush()
    finally:
        recorder.blocks = before
