"""The machine and the versions that compile for it: what one of them left is nothing to another."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Hashable, Iterator
from functools import cache
from pathlib import Path

import jax
import jaxlib

import lowering
from lowering.machine import processors

_PACKAGES = ("fluidjax", "lowering")
_looking = threading.Lock()


def machine() -> Hashable:
    """The versions of what compiles, and the machine it compiles for, apart from the device."""
    with _looking:  # a thread may be reading what another one asks for
        return _machine()


@cache
def _machine() -> Hashable:
    return (
        tuple(_sources(Path(lowering.__file__).parent.parent)),
        (jax.__version__, jaxlib.__version__, platform.python_version()),
        (platform.machine(), tuple(_processor()), processors()),
        tuple(sorted((n, v) for n, v in os.environ.items() if n in ("XLA_FLAGS", "LIBTPU_INIT_ARGS"))),
    )


def _sources(root: Path) -> list[tuple[str, int, int]]:
    """Each source file with its size and time of change; reading them all takes longer than loading an executable."""
    prefix, found, pending = str(root), [], [str(root / package) for package in _PACKAGES]
    for folder in pending:
        with os.scandir(folder) as files:
            for file in files:
                if file.name.endswith(".py"):
                    stat = file.stat()
                    found.append((file.path.removeprefix(prefix), stat.st_size, stat.st_mtime_ns))
                elif "." not in file.name and file.name != "__pycache__" and file.is_dir():
                    pending.append(file.path)
    return sorted(found)


def _processor() -> Iterator[str]:
    """The first processor's name and abilities: machine code for another one may not run."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if not line.strip():
                    break
                if line.startswith(("vendor_id", "cpu family", "model", "flags", "Features", "CPU")):
                    yield line
    except OSError:
        pass
