"""Keeping freed memory for the next step, as Fluid's own CPU allocator does."""

from __future__ import annotations

import ctypes
import functools
import os

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_KEPT_BYTES = 2**31 - 1


@functools.cache
def keep_freed_memory() -> bool:
    """Have glibc's malloc keep large blocks that are freed; whether it does.

    XLA asks malloc for a step's scratch memory anew each time. glibc maps large blocks from the kernel and unmaps them
    when they are freed, and so it does with the heaps of its threads; every step would touch thousands of fresh pages,
    and a page costs more than the arithmetic on it. So no block is mapped, all threads share one heap, and that is not
    trimmed. Nothing is changed with another C library, or where the user tunes malloc with variables of the
    environment. Threads that ran before keep their heaps: call this before JAX starts its own.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    settings = {_M_ARENA_MAX: 1, _M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: _KEPT_BYTES}
    return all([bool(library.mallopt(name, value)) for name, value in settings.items()])
