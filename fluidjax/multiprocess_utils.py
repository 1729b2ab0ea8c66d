"""``fluid.multiprocess_utils``: cleanup when a process that loads data, or that started such processes, ends."""

from __future__ import annotations

import atexit
import queue
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from fluidjax.native.children import _throw_error_if_process_failed

# Queues between processes, which are emptied at the end: what is left in one keeps its process waiting.
multiprocess_queue_set: set[Any] = set()


def _clear_multiprocess_queue_set() -> None:
    for data_queue in multiprocess_queue_set:
        while True:
            try:
                data_queue.get_nowait()
            except queue.Empty:
                break


def _cleanup() -> None:
    """Cleanup at the end of the reading process."""
    _clear_multiprocess_queue_set()


def _cleanup_mmap() -> None:
    """Cleanup at the end of a loader process; the files of its tensors belong to who reads them."""


class CleanupFuncRegistrar:
    """Functions called once, when the process ends or receives a signal."""

    _executed_func_set: set[Callable[[], Any]] = set()
    _registered_func_set: set[Callable[[], Any]] = set()

    @classmethod
    def register(cls, function: Callable[[], Any], signals: Sequence[int] = ()) -> None:
        """Register a function to call at the end.

        Args:
            function: called without arguments. Raises TypeError if it is not callable or not hashable.
            signals: also call it on these; SIGINT then raises KeyboardInterrupt, others terminate the process.
        """
        if not callable(function):
            raise TypeError(f"{function!r} is not callable object: expected a function. Pass one without arguments")
        for number in signals:
            cls._on_signal(number, function)
        if function not in cls._registered_func_set:
            atexit.register(cls._once, function)
            cls._registered_func_set.add(function)

    @classmethod
    def _once(cls, function: Callable[[], Any]) -> None:
        if function not in cls._executed_func_set:
            cls._executed_func_set.add(function)
            function()

    @classmethod
    def _on_signal(cls, number: int, function: Callable[[], Any]) -> None:
        def handler(signum: int, frame: Any) -> None:
            cls._once(function)
            if signum == signal.SIGINT:
                raise KeyboardInterrupt
            sys.exit(signum)

        before: Any = signal.signal(number, handler)
        if callable(before) and before is not signal.default_int_handler and before not in cls._registered_func_set:
            atexit.register(before)
            cls._registered_func_set.add(before)


CleanupFuncRegistrar.register(_cleanup)

_SIGCHLD_handler_set = False


def _set_SIGCHLD_handler() -> None:
    """Raise EnforceNotMet in the main thread as soon as a watched process fails; further calls change nothing."""
    global _SIGCHLD_handler_set
    if _SIGCHLD_handler_set:
        return
    before: Any = signal.getsignal(signal.SIGCHLD)

    def handler(signum: int, frame: Any) -> None:
        _throw_error_if_process_failed()
        if callable(before):
            before(signum, frame)

    signal.signal(signal.SIGCHLD, handler)
    _SIGCHLD_handler_set = True
