"""64-bit types for the duration of one call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import jax

P = ParamSpec("P")
T = TypeVar("T")


def with_x64(function: Callable[..., T], *args: Any) -> T:
    """``function(*args)`` with jax's 64-bit types enabled in this thread; the previous setting is restored.

    ``with jax.enable_x64(True)`` promises the same, but its exit is Python code: an interrupt that arrives as the exit
    begins would leave the types enabled for the rest of the process. The end of this function has no such gap.
    """
    before = jax.enable_x64.get_local()
    try:
        jax.enable_x64.set_local(True)
        return function(*args)
    finally:
        jax.enable_x64.set_local(before)


def with_device(device: jax.Device, function: Callable[..., T], *args: Any) -> T:
    """``with_x64(function, *args)`` with ``device`` as the default device."""
    before = jax.default_device.get_local()
    try:
        jax.default_device.set_local(device)
        return with_x64(function, *args)
    finally:
        jax.default_device.set_local(before)


def in_x64(function: Callable[P, T]) -> Callable[P, T]:
    """A function that runs under ``with_x64``."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return with_x64(partial(function, *args, **kwargs))

    return run
