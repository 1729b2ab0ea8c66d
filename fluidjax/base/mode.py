"""Which mode layers are in: the tracer that runs ops at once (eager mode), or None while they write programs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

_tracer_: Any = None
_caller_: Any = None  # the tracer of the eager net that is being written as a program


def current_tracer() -> Any:
    """The tracer that ops go to, None in static mode."""
    return _tracer_


def in_dygraph_mode() -> bool:
    """Whether ops run at once instead of being written to a program."""
    return _tracer_ is not None


def follows_training() -> bool:
    """Whether layers do as their ``training`` says: in eager mode, and while a net of it is written as a program."""
    return _tracer_ is not None or _caller_ is not None


def records_gradients() -> bool:
    """Whether what runs can be differentiated: not so in eager mode under ``no_grad``, or after ``eval()``.

    A function of eager mode that is written as a program is as the caller's mode says.
    """
    tracer = _tracer_ if _tracer_ is not None else _caller_
    return tracer is None or tracer._train_mode


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


@contextlib.contextmanager
def writing_for(tracer: Any) -> Iterator[None]:
    """Within the guard what runs under `tracer` is written to programs instead."""
    global _caller_
    before, _caller_ = _caller_, tracer
    try:
        with tracer_guard(None):
            yield
    finally:
        _caller_ = before
