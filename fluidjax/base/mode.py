"""Which mode layers are in: the tracer that runs ops at once (eager mode), or None while they write programs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

_tracer_: Any = None
_caller_: Any = None  # the tracer of the eager net that is being written as a program


def current_tracer() -> Any:
    """The tracer that ops go to, None in static mode."""
    return _tracer_


def in_dygraph_mode() -> bool:
    """Whether ops run immediately (eager mode) rather than being written to a program."""
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


def dygraph_only(func: _Function) -> _Function:
    """A function that raises AssertionError where ops do not run at once."""

    @functools.wraps(func)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if not in_dygraph_mode():
            raise AssertionError(
                f"We Only support {func.__name__} in imperative mode, please use fluid.dygraph.guard() as context to"
                " run it in imperative Mode: expected eager mode, received a call while layers write programs"
            )
        return func(*args, **kwargs)

    return checked  # type: ignore[return-value]


def dygraph_not_support(func: _Function) -> _Function:
    """A function that raises AssertionError where ops run at once."""

    @functools.wraps(func)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if in_dygraph_mode():
            raise AssertionError(
                f"We don't support {func.__name__} in imperative mode: expected a call while layers write programs,"
                " received one in eager mode. Call it outside of fluid.dygraph.guard()"
            )
        return func(*args, **kwargs)

    return checked  # type: ignore[return-value]
