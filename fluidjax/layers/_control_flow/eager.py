"""Branches, loops and tensor arrays in eager mode: plain Python over values already computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Variable


def _truth(pred: Any, layer: str) -> bool:
    if not isinstance(pred, Variable):
        raise AssertionError(
            f"The pred in {layer} must be Variable, but received {type(pred).__name__}. Pass what a comparison gave."
        )
    return bool(pred.numpy().reshape(-1)[0])


def cond(pred: Variable, true_fn: Callable[[], Any] | None, false_fn: Callable[[], Any] | None) -> Any:
    """Call the function of the branch selected by `pred` and return its result."""
    taken = true_fn if _truth(pred, "cond") else false_fn
    if taken is not None and not callable(taken):
        raise TypeError(f"The function in cond must be callable, but received {taken!r:.60}. Wrap it in a lambda.")
    return None if taken is None else taken()


def while_loop(cond: Callable[..., Variable], body: Callable[..., Any], loop_vars: list | tuple) -> Any:
    """Iterate `body` while `cond` holds and return the final loop variables."""
    while _truth(cond(*loop_vars), "while_loop"):
        results = body(*loop_vars)
        results = results if isinstance(results, (list, tuple)) else [results]
        if len(results) != len(loop_vars):
            raise ArgumentError(
                f"body in while_loop should return the same arity (length and structure) and types as loop_vars: "
                f"{len(results)} for {len(loop_vars)}. Return one value for each."
            )
        loop_vars = results
    return loop_vars


def _index(i: Variable, layer: str) -> int:
    if not isinstance(i, Variable) or i.shape != [1]:
        raise AssertionError(
            f"The input index of {layer} should be a Variable of shape [1] in dygraph mode, received {i!r:.60}. Make "
            "it with layers.fill_constant."
        )
    return int(i)


def _list(array: Any, layer: str) -> list[Variable]:
    if not isinstance(array, list):
        raise AssertionError(
            f"The 'array' in {layer} must be a list in dygraph mode, received {type(array).__name__}. Make it with "
            "layers.create_array."
        )
    return array


def array_write(x: Variable, i: Variable, array: list[Variable] | None) -> list[Variable]:
    """Store `x` at index `i` of the list, replacing an element or appending."""
    at, array = _index(i, "array_write"), [] if array is None else _list(array, "array_write")
    if at > len(array):
        raise AssertionError(
            f"The index i is {at}, and should not be greater than the length of array, {len(array)}. Write the "
            "elements in order."
        )
    array[at : at + 1] = [x]
    return array


def array_read(array: list[Variable], i: Variable) -> Variable:
    """The element at index `i`."""
    return _list(array, "array_read")[_index(i, "array_read")]


def array_length(array: list[Variable]) -> int:
    """The number of elements."""
    return len(_list(array, "array_length"))
