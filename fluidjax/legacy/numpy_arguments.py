"""Arguments that functions of NumPy no longer take: renamed ones, iterators of arrays to stack, generators to sum."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

# The arguments of old: function -> {name that went: name that stayed}.
_RENAMED = {
    "reshape": {"newshape": "shape"},
    **dict.fromkeys(("percentile", "quantile", "nanpercentile", "nanquantile"), {"interpolation": "method"}),
}
_STACKS = "vstack hstack dstack column_stack stack"


def _renamed(function: Callable[..., Any], names: dict[str, str]) -> Callable[..., Any]:
    known = inspect.signature(function).parameters  # NumPy 2.0 still has `newshape`
    gone = {old: new for old, new in names.items() if old not in known}

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{gone.get(name, name): value for name, value in kwargs.items()})

    return called


def _stacks_iterators(stack: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    @functools.wraps(stack)
    def stacked(arrays: Any, *args: Any, **kwargs: Any) -> np.ndarray:
        return stack(list(arrays) if isinstance(arrays, Iterator) else arrays, *args, **kwargs)

    return stacked


_sum = np.sum


@functools.wraps(np.sum)
def _sums_generators(a: Any, *args: Any, **kwargs: Any) -> Any:
    """A generator is summed as Python does."""
    return sum(a) if isinstance(a, Generator) else _sum(a, *args, **kwargs)


_CHANGED = {name: _renamed(getattr(np, name), names) for name, names in _RENAMED.items()}
_CHANGED |= {name: _stacks_iterators(getattr(np, name)) for name in _STACKS.split()}
_CHANGED["sum"] = _sums_generators


def install() -> None:
    """Take the old arguments again."""
    vars(np).update(_CHANGED)
