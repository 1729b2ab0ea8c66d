"""Memory that is free: kept for the next step, as Fluid's own CPU allocator does; given back after a compilation."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
# More than the steps of most models use; what is freed beyond it goes back to the kernel.
_KEPT_BYTES = 512 << 20


@functools.cache
def keep_freed_memory() -> bool:
    """Have glibc's malloc keep large blocks that are freed; whether it does.

    XLA asks malloc for a step's scratch memory anew each time. glibc maps large blocks from the kernel and unmaps them
    when they are freed, so every step would touch thousands of fresh pages; a page costs more than the arithmetic on
    it. At most half a GB is kept at the end of the heap. Nothing is changed with another C library, or where the user
    tunes malloc with variables of the environment.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return False
    library = _glibc()
    return library is not None and bool(
        library.mallopt(_M_MMAP_MAX, 0) and library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    )


def give_back_freed_memory() -> bool:
    """Give all that malloc has free back to the kernel; whether that is possible.

    A compilation leaves up to some hundred MB free in pieces, among what it keeps, of which malloc returns nothing.
    """
    library = _glibc()
    return library is not None and bool(library.malloc_trim(0))


@functools.cache
def _glibc() -> Any:
    library = ctypes.CDLL(None) if os.name == "posix" else None
    return library if hasattr(library, "gnu_get_libc_version") else None
