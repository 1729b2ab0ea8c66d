"""Deferring signals until work that must not be interrupted is complete."""

from __future__ import annotations

import _signal  # the wrappers of module signal take ten times as long, because they make enum members
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

_NUMBERS = sorted(map(int, signal.valid_signals()))


_seen: tuple[list[Any], dict[int, Any]] = [], {}  # the handlers of all signals, and those written in Python
_waiting: list[int] | None = None


def deferral() -> list[int] | None:
    """The signals that wait, as one list object per call of ``uninterrupted``; None outside of these."""
    return _waiting


def _handlers() -> dict[int, Any]:
    """The Python handlers by signal. There are 64 signals, and which of them have one rarely changes."""
    global _seen
    found = list(map(_signal.getsignal, _NUMBERS))
    if found != _seen[0]:
        _seen = found, {number: handler for number, handler in zip(_NUMBERS, found, strict=True) if callable(handler)}
    return _seen[1]


def uninterrupted(function: Callable[[], T]) -> T:
    """Run ``function()`` with signal handlers deferred; those that became due run afterwards.

    Python runs signal handlers, such as the one that raises KeyboardInterrupt, in the main thread between any two
    bytecodes. jax does not expect that: interrupted while tracing, it would never stop tracing.
    """
    global _waiting
    if threading.current_thread() is not threading.main_thread():
        return function()
    before, outer = _handlers(), _waiting
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
        active, _waiting = True, waiting
        return function()
    finally:
        try:
            for number, handler in before.items():
                _signal.signal(number, handler)
        finally:
            # Should a restored handler have cut this short, 'later' passes signals on.
            active, _waiting = False, outer
        for number in waiting:
            before[number](number, sys._getframe())
