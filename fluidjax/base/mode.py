"""The current mode: eager, with a tracer that runs ops immediately, or static, in which layers write programs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

tracer: Any = None  # that runs ops; None in static mode. ``switch_tracer`` sets it
_caller_: Any = None  # the tracer of the eager net that is being written as a program


def current_tracer() -> Any:
    """The tracer that runs ops; None in static mode. What every op or step asks reads ``mode.tracer`` instead."""
    return tracer


def in_dygraph_mode() -> bool:
    """Whether ops run immediately (eager mode) rather than being written to a program."""
    return tracer is not None


def follows_training() -> bool:
    """Whether layers follow their ``training`` attribute: in eager mode, and while an eager network is converted."""
    return tracer is not None or _caller_ is not None


def records_gradients() -> bool:
    """Whether gradients are recorded: not in eager mode under ``no_grad`` or after ``eval()``.

    For an eager function being converted to a program, the caller's mode decides.
    """
    found = tracer if tracer is not None else _caller_
    return found is None or found._train_mode


def switch_tracer(following: Any) -> Any:
    """Set the tracer that runs ops (None: write programs); returns the previous one."""
    global tracer
    before, tracer = tracer, following
    return before


@contextlib.contextmanager
def tracer_guard(following: Any) -> Iterator[None]:
    """Context manager: run ops on this tracer."""
    before = switch_tracer(following)
    try:
        yield
    finally:
        switch_tracer(before)


@contextlib.contextmanager
def writing_for(caller: Any) -> Iterator[None]:
    """Context manager: write to programs what would run under this tracer."""
    global _caller_
    before, _caller_ = _caller_, caller
    try:
        with tracer_guard(None):
            yield
    finally:
        _caller_ = before


def dygraph_only(func: _Function) -> _Function:
    """Decorator: raise AssertionError outside eager mode."""

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
    """Decorator: raise AssertionError in eager mode."""

    @functools.wraps(func)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if in_dygraph_mode():
            raise AssertionError(
                f"We don't support {func.__name__} in imperative mode: expected a call while layers write programs,"
                " received one in eager mode. Call it outside of fluid.dygraph.guard()"
            )
        return func(*args, **kwargs)

    return checked  # type: ignore[return-value]
