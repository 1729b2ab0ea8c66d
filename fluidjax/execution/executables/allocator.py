"""Freed memory: kept for the next step, as Fluid's own CPU allocator does, and returned after a compilation."""

from __future__ import annotations

import ctypes
import functools
import os
import re
from typing import Any

import jax

from fluidjax.base.flags import flag

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
# More than a step of most models uses; memory freed beyond it returns to the kernel.
_KEPT_BYTES = 512 << 20


def share_one_heap() -> bool:
    """Make threads share the process's first heap where jax makes several devices of the host; returns whether they do.

    Devices compute in threads of XLA. What a thread has in a heap of its own is mapped and unmapped with every step,
    whatever malloc is told: a third of a ResNet's. A thread that has asked malloc for memory before keeps its heap.
    """
    library = _tuned()
    return library is not None and _several_on_host() and bool(library.mallopt(_M_ARENA_MAX, 1))


@functools.cache
def keep_freed_memory() -> bool:
    """Make glibc's malloc keep large freed blocks; returns whether it does.

    XLA asks malloc for a step's scratch memory anew each time. glibc maps large blocks from the kernel and unmaps them
    when they are freed, so every step would touch thousands of fresh pages; a page costs more than the arithmetic on
    it. At most half a GB is kept at the end of the heap. Nothing changes with another C library, or where the user
    tunes malloc with variables of the environment.
    """
    share_one_heap()
    library = _tuned()
    return library is not None and bool(
        library.mallopt(_M_MMAP_MAX, 0) and library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    )


def give_back_freed_memory() -> bool:
    """Return all memory that malloc holds free to the kernel; returns whether that is possible.

    A compilation leaves up to a few hundred MB free, in pieces between blocks in use; malloc returns none of it.
    """
    library = _glibc()
    return library is not None and bool(library.malloc_trim(0))


def _several_on_host() -> bool:
    """Whether jax is told to make several devices of this host; asking jax for them would make them now."""
    told = re.findall(r"--xla_force_host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", ""))
    return max(jax.config.jax_num_cpu_devices, *map(int, told), 0) > 1  # type: ignore[attr-defined]


def _tuned() -> Any:
    """glibc, where the user leaves its malloc to this module."""
    own = any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)
    return None if own or flag("FLAGS_use_system_allocator") else _glibc()


@functools.cache
def _glibc() -> Any:
    library = ctypes.CDLL(None) if os.name == "posix" else None
    return library if hasattr(library, "gnu_get_libc_version") else None
