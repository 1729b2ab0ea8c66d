"""``paddle.tensor.search``: where something is, and what is there."""

from __future__ import annotations

from typing import Any

from fluidjax import layers
from fluidjax.paddle.tensor.at_once import surface, surfaces
from fluidjax.writing.checks import check_variable_and_dtype
from fluidjax.writing.emit import emit

__all__ = [
    "argmax", "argmin", "argsort", "has_inf", "has_nan", "index_sample", "index_select", "nonzero", "sort", "topk",
    "where",
]  # fmt: skip

argmin, argsort, has_inf, has_nan, index_sample, index_select, nonzero, topk = surfaces(
    layers, "argmin argsort has_inf has_nan index_sample index_select nonzero topk"
)


@surface
def argmax(
    input: Any,
    axis: int | None = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    name: str | None = None,
) -> Any:
    """The index of the largest element along an axis, or among all elements in row-major order.

    Args:
        dtype: int64 unless it says otherwise.
        keepdims: whether the axis stays, of size 1; without an axis all of them do.
    """
    if axis is None:
        ones = [1] * (len(input.shape) - 1) if keepdims else []
        input, axis = layers.reshape(input, [*ones, -1]), len(ones)
    found = layers.argmax(input, axis)
    found = layers.unsqueeze(found, [axis]) if keepdims else found
    found = found if dtype is None else layers.cast(found, dtype)
    return found if out is None else layers.assign(found, out)


@surface
def sort(input: Any, axis: int = -1, descending: bool = False, out: Any = None, name: str | None = None) -> Any:
    """(the elements in order along an axis, where each was)."""
    found, indices = layers.argsort(input, axis, descending, name)
    return (found if out is None else layers.assign(found, out)), indices


@surface
def where(condition: Any, x: Any, y: Any, name: str | None = None) -> Any:
    """x where the condition holds and y elsewhere; axes of size 1 stretch.

    Raises TypeError where the condition is no bool.
    """
    check_variable_and_dtype(condition, "condition", ["bool"], "where")
    if not tuple(condition.shape) == tuple(x.shape) == tuple(y.shape):
        zeros = layers.elementwise_add(layers.zeros_like(x), layers.zeros_like(y))
        falses = layers.zeros_like(condition)
        zeros = layers.elementwise_add(zeros, layers.cast(falses, x.dtype))
        x, y = layers.elementwise_add(zeros, x), layers.elementwise_add(zeros, y)
        condition = layers.cast(layers.elementwise_add(zeros, layers.cast(condition, x.dtype)), "bool")
    return emit("where", {"Condition": condition, "X": x, "Y": y}, x.dtype, name=name)
