"""Short tracebacks: errors raised deliberately by fluidjax show the user's lines and the message only.

``FLAGS_call_stack_level=2`` shows everything.
"""

from __future__ import annotations

import functools
import os
import sysconfig
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

import jax
import numpy as np

import lowering
from fluidjax.base.flags import flag

_Given = ParamSpec("_Given")
_Got = TypeVar("_Got")

_OURS = (os.path.dirname(os.path.dirname(__file__)), os.path.dirname(str(lowering.__file__)))
_INNER = (*_OURS, *(os.path.dirname(str(module.__file__)) for module in (jax, np)), sysconfig.get_path("stdlib"))
# What our own code never raises on purpose: a bug, of which every frame is wanted.
BUGS = (AssertionError, AttributeError, IndexError, NameError, RecursionError)


def _within(folders: tuple[str, ...], name: str) -> bool:
    generated = name.startswith("<") and not name.startswith("<ipython-input-")  # what IPython runs is the user's
    return generated or any(name.startswith(folder + os.sep) for folder in folders)


def within_ours(trace: TracebackType) -> bool:
    """Whether a frame is of a file of fluidjax."""
    name = trace.tb_frame.f_code.co_filename
    return not name.startswith("<") and _within(_OURS, name)


def within_inner(trace: TracebackType) -> bool:
    """Whether a frame is fluidjax's, or of what it stands on."""
    return _within(_INNER, trace.tb_frame.f_code.co_filename)


def _innermost(trace: TracebackType | None) -> str:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else trace.tb_frame.f_code.co_filename


def _through_user_code(trace: TracebackType | None) -> bool:
    """Whether user code, such as a reader or an op's Python function, lies between our frames and the raise."""
    inside = False
    while trace is not None:
        if inside and not within_inner(trace):
            return True
        inside = inside or within_ours(trace)
        trace = trace.tb_next
    return False


def deliberate(error: BaseException) -> bool:
    """Whether fluidjax raised an error for the user to read, without user code being involved."""
    seen: BaseException | None = error
    known: list[int] = []  # an error that is raised again may be its own cause's cause
    while seen is not None and id(seen) not in known:
        if _through_user_code(seen.__traceback__):
            return False
        known.append(id(seen))
        seen = seen.__cause__
    return not isinstance(error, BUGS) and _within(_OURS, _innermost(error.__traceback__))


def shorten(error: BaseException) -> None:
    """Remove the frames and causes below the user's from an error; to be followed by a bare ``raise``."""
    if flag("FLAGS_call_stack_level") >= 2 or not deliberate(error):
        return
    if hasattr(error, "__notes__"):  # jax's, on frames that it left out, and ours
        error.__notes__ = [note for note in error.__notes__ if "JAX has removed its internal frames" not in note]
    error.__context__ = error.__cause__ or error.__context__  # not shown, but there for who asks
    error.__cause__, error.__suppress_context__, error.__traceback__ = None, True, None


def shortened(function: Callable[_Given, _Got]) -> Callable[_Given, _Got]:
    """Decorator: shorten the tracebacks of errors."""

    @functools.wraps(function)
    def call(*arguments: _Given.args, **named: _Given.kwargs) -> _Got:
        try:
            return function(*arguments, **named)
        except Exception as error:
            shorten(error)
            raise

    return call
