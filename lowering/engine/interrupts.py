"""Signals that wait until what must not be left half done is done."""

from __future__ import annotations

import _signal  # what module signal wraps takes ten times as long: it makes enum members
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

_NUMBERS = sorted(map(int, signal.valid_signals()))


_seen: tuple[list[Any], dict[int, Any]] = [], {}  # the handlers of all signals, and those of them in Python


def _handlers() -> dict[int, Any]:
    """The handlers in Python, by signal. There are 64 signals; which of them have one changes seldom."""
    global _seen
    found = list(map(_signal.getsignal, _NUMBERS))
    if found != _seen[0]:
        _seen = found, {number: handler for number, handler in zip(_NUMBERS, found, strict=True) if callable(handler)}
    return _seen[1]


def uninterrupted(function: Callable[[], T]) -> T:
    """``function()``, during which no signal handler runs; those that became due run after it.

    Python runs signal handlers, such as the one that raises KeyboardInterrupt, in the main thread between any two of
    its steps. jax does not expect that: while it traces, it would go on tracing for ever after.
    """
    if threading.current_thread() is not threading.main_thread():
        return function()
    before = _handlers()
    waiting: list[int] = []
    active = False

    def later(number: int, frame: FrameType | None) -> None:
        if active:
            waiting.append(number)
        else:
            before[number](number, frame)

    try:
        for number in before:
            _signal.signal(number, later)
        active = True
        return function()
    finally:
        try:
            for number, handler in before.items():
                _signal.signal(number, handler)
        finally:
            active = False  # should a handler that is back have cut this short, 'later' passes signals on
        for number in waiting:
            before[number](number, sys._getframe())
