"""``fluid.annotations``: marking functions as deprecated."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["deprecated"]


def deprecated(since: str, instead: str, extra_message: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that says at each call, on stderr, that a function is deprecated, and in its docstring too.

    Args:
        since: the first release in which it is.
        instead: what to use.
        extra_message: a further line.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        message = f"API {function.__name__} is deprecated since {since}. Please use {instead} instead."
        message += f"\n{extra_message}" if extra_message else ""

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            print(message, file=sys.stderr)
            return function(*args, **kwargs)

        wrapper.__doc__ = f"{function.__doc__ or ''}\n    {message}"
        return wrapper

    return decorate
