"""``fluid.multiprocess_utils``: what has to be done when a process that loads data, or started some, ends."""

from __future__ import annotations

import atexit
import queue
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

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
    """At the end of the process that reads."""
    _clear_multiprocess_queue_set()


def _cleanup_mmap() -> None:
    """At the end of a process that loads: batches go through pipes here, so no shared memory is left to be freed."""


class CleanupFuncRegistrar:
    """Functions that are called once, when the process ends or receives a signal."""

    _executed_func_set: set[Callable[[], Any]] = set()
    _registered_func_set: set[Callable[[], Any]] = set()

    @classmethod
    def register(cls, function: Callable[[], Any], signals: Sequence[int] = ()) -> None:
        """Call a function at the end.

        Args:
            function: takes nothing. TypeError when it cannot be called, or cannot be hashed.
            signals: on these too; SIGINT then raises KeyboardInterrupt, others end the process with their number.
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
