"""A function is right as a program when it gives what it gives in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fluidjax import dygraph


def plain(value: Any) -> Any:
    """Variables as arrays, in whatever holds them; tuples as lists, as declarative returns them."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value.numpy() if hasattr(value, "numpy") else value


def variables(arrays: Any) -> list[Any]:
    """Eager variables of arrays; other arguments as they are."""
    return [dygraph.to_variable(a) if isinstance(a, np.ndarray) else a for a in arrays]


def same(one: Any, two: Any) -> None:
    """Assert that two results are the same numbers; a number and a variable of it count as the same."""
    if isinstance(one, (list, dict)):
        assert type(one) is type(two) and len(one) == len(two), (one, two)
        pairs = zip(one.values(), two.values(), strict=True) if isinstance(one, dict) else zip(one, two, strict=True)
        for a, b in pairs:
            same(a, b)
    elif one is None or isinstance(one, str):
        assert one == two
    else:
        np.testing.assert_allclose(np.asarray(one).reshape(-1), np.asarray(two).reshape(-1), rtol=1e-5, atol=1e-7)


def check(function: Callable[..., Any], *arguments: Any) -> Any:
    """Assert that a function gives the same as a program and in eager mode; the result."""
    with dygraph.guard():
        expected = plain(function(*variables(arguments)))
        found = plain(dygraph.declarative(function)(*variables(arguments)))
    same(expected, found)
    return found
