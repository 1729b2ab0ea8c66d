"""Decorators that preserve the signature of the functions they decorate."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["wrap_decorator", "signature_safe_contextmanager"]


def wrap_decorator(decorator_func: Callable[[Callable], Callable]) -> Callable[[Callable], Callable]:
    """Make ``decorator_func`` preserve name, docstring and signature.

    Calls that do not match the signature raise TypeError before reaching the decorated function.
    """

    @functools.wraps(decorator_func)
    def decorate(function: Callable) -> Callable:
        decorated = decorator_func(function)
        signature = inspect.signature(function)
        parameters = signature.parameters.values()
        plain = all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
        least = sum(p.default is p.empty for p in parameters)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs or not plain or not least <= len(args) <= len(parameters):  # binding takes 10 us
                signature.bind(*args, **kwargs)
            return decorated(*args, **kwargs)

        call.__signature__ = signature  # type: ignore[attr-defined]  # for inspect.getfullargspec
        return call

    return decorate


signature_safe_contextmanager = wrap_decorator(contextlib.contextmanager)
