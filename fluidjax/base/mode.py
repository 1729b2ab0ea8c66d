"""Which mode layers are in: the tracer that runs ops at once (eager mode), or None while they write programs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

_tracer_: Any = None


def current_tracer() -> Any:
    """The tracer that ops go to, None in static mode."""
    return _tracer_


def in_dygraph_mode() -> bool:
    """Whether ops run at once instead of being written to a program."""
    return _tracer_ is not None


def records_gradients() -> bool:
    """Whether what runs can be differentiated: not so in eager mode under ``no_grad``, or after ``eval()``."""
    return _tracer_ is None or _tracer_._train_mode


def switch_tracer(tracer: Any) -> Any:
    """Let ops go to `tracer` (None: write programs); returns the one before."""
    global _tracer_
    before, _tracer_ = _tracer_, tracer
    return before


@contextlib.contextmanager
def tracer_guard(tracer: Any) -> Iterator[None]:
    """Within the guard ops go to `tracer`."""
    before = switch_tracer(tracer)
    try:
        yield
    finally:
        switch_tracer(before)
