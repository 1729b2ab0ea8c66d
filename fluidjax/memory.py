"""Memory in use, peak memory and capacity of a place.

For an accelerator, the numbers are those of jax's allocator. The host has no such allocator: memory in use is that of
the arrays jax holds there; the peak and the capacity are those of the process and the machine, 0 on Windows.

jax takes three quarters of a GPU when it starts, and never more. Flags change this to what Fluid does, if they are set
before the first place, executor or guard (in the environment, or by ``set_flags``): memory grows as it is needed, up to
95 % of the GPU, from a first chunk.

- ``FLAGS_fraction_of_gpu_memory_to_use``: the first chunk as a part of these 95 %.
- ``FLAGS_initial_gpu_memory_in_mb``: its size, which counts before the fraction.
- ``FLAGS_allocator_strategy``: ``auto_growth`` for no chunk, ``naive_best_fit`` for a chunk even if no size is named.

``AnalysisConfig.enable_use_gpu`` and ``NativeConfig.fraction_of_gpu_memory`` name a first chunk, too. Set later, a flag
changes nothing and says so. Variables of jax (``XLA_PYTHON_CLIENT_PREALLOCATE``, ``XLA_CLIENT_MEM_FRACTION``) win over
flags. ``FLAGS_reallocate_gpu_memory_in_mb`` (jax decides how far it grows), ``FLAGS_gpu_memory_limit_mb`` and the
fractions of host and pinned memory (which jax allocates as it needs it) have no effect.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import jax

from fluidjax.base.places import CPUPlace, Place, jax_device
from fluidjax.base.tables import page, text_table

try:
    import resource
except ImportError:  # Windows does not have it
    resource = None  # type: ignore[assignment]

__all__ = ["Memory", "of"]


@dataclass(frozen=True)
class Memory:
    """Bytes in use now, at peak, and in total."""

    used: int
    peak: int
    limit: int

    def __str__(self) -> str:
        return f"{_size(self.used)} in use, {_size(self.peak)} at most, of {_size(self.limit)}"

    def _repr_html_(self) -> str:
        names = ("in use", "at most so far", "there at all")
        return page(text_table(("memory", ""), zip(names, map(_size, (self.used, self.peak, self.limit)), strict=True)))


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


def of(place: Place | None = None) -> Memory:
    """The memory of a place, by default the CPU's."""
    device = jax_device(CPUPlace() if place is None else place)
    stats = device.memory_stats() or {}
    if "bytes_in_use" not in stats:
        return Memory(_held(device), _process_peak(), _machine())
    used = stats["bytes_in_use"]
    return Memory(used, stats.get("peak_bytes_in_use", used), stats.get("bytes_limit", 0))


def _held(device: jax.Device) -> int:
    """The bytes of the arrays on a device; for arrays on several devices, of the part located there."""
    arrays = (array for array in jax.live_arrays() if device in array.devices())
    return sum(array.nbytes // len(array.devices()) for array in arrays)


def _process_peak() -> int:
    # Linux's getrusage counts what the process that started this one had resident; its status file does not.
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return _usage()


def _usage() -> int:
    if resource is None:
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _machine() -> int:
    if not hasattr(os, "sysconf"):
        return 0
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
