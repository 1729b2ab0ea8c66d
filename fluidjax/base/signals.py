"""Handlers of signals and XLA's products of matrices.

oneDNN's product with a transposed matrix, which XLA calls on processors with AVX-512, keeps its stack pointer in a
block of the heap while it runs. A signal that has a handler puts 3 to 11 KB there, over whatever lies before it. So
threads of XLA take no signals, and the main thread takes them on another stack (Python asks for it with each handler).
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import signal
import sys
import threading
from typing import Any

import jax
from jax._src.xla_bridge import backends_are_initialized

# What a thread did itself; blocked, they would end the process without a word.
_ITS_OWN = {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS"}
_STACK_BYTES = 256 << 10  # only touched pages are memory
_SS_DISABLE = 2
_kept: list[Any] = []  # the stack, for as long as the process lives


class _Stack(ctypes.Structure):
    """``stack_t`` of Linux's signal.h."""

    _fields_ = (("begin", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


def local_devices(backend: str | None = None) -> list[jax.Device]:
    """``jax.local_devices``; if that starts XLA, its threads take no signals: others of the process do."""
    if backends_are_initialized() or not hasattr(signal, "pthread_sigmask"):
        return jax.local_devices(backend=backend)
    others = {number for number in signal.valid_signals() if getattr(number, "name", "") not in _ITS_OWN}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, others)
    try:
        return jax.local_devices(backend=backend)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def take_on_a_stack_of_their_own() -> bool:
    """Let the main thread take signals on another stack; returns whether it does.

    Signals that are sent to the process go to the main thread. Nothing changes where it has such a stack, or on systems
    other than Linux.
    """
    return threading.current_thread() is threading.main_thread() and _in_main_thread()


@functools.cache
def _in_main_thread() -> bool:
    library: Any = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    if not hasattr(library, "sigaltstack"):
        return False
    now = _Stack()
    if library.sigaltstack(None, ctypes.byref(now)) or not now.flags & _SS_DISABLE:
        return not now.flags & _SS_DISABLE
    memory = (ctypes.c_char * _STACK_BYTES).from_buffer(mmap.mmap(-1, _STACK_BYTES))
    _kept.append(memory)
    stack = _Stack(ctypes.addressof(memory), 0, _STACK_BYTES)
    return not library.sigaltstack(ctypes.byref(stack), None)
