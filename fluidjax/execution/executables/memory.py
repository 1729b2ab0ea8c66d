"""Whether a step that never ran may lack memory: what it asks for, compared with what is free."""

from __future__ import annotations

from pathlib import Path

import jax

from fluidjax.execution.executables.executable import Executable, default_device

try:
    import resource
except ImportError:  # no such limits on Windows
    resource = None  # type: ignore[assignment]

_PART = 4  # a step may take a quarter of what is free: whatever else runs needs some, too
_MEMINFO, _STATM = Path("/proc/meminfo"), Path("/proc/self/statm")


def may_lack_memory(executable: Executable) -> bool:
    """Whether the device may have no room for what a call allocates; True where that is not known."""
    needed, free = executable.allocates, _free(default_device())
    return needed is None or free is None or needed * _PART > free


def _free(device: jax.Device) -> int | None:
    """Bytes that can be allocated."""
    if device.platform == "cpu":
        return _free_on_host()
    stats = device.memory_stats() or {}
    return stats["bytes_limit"] - stats["bytes_in_use"] if {"bytes_limit", "bytes_in_use"} <= stats.keys() else None


def _free_on_host() -> int | None:
    """The memory that the machine has available and the process's limit allows."""
    try:
        lines = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
        available = int(lines["MemAvailable"].split()[0]) * 1024
        used = int(_STATM.read_text().split()[0]) * resource.getpagesize()
    except (OSError, KeyError, AttributeError):
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return available if limit == resource.RLIM_INFINITY else min(available, max(0, limit - used))
