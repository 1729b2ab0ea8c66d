"""``paddle.tensor.logic``: comparisons, and operations on what they give."""

from __future__ import annotations

from typing import Any

from fluidjax import layers
from fluidjax.paddle.tensor.at_once import surface, surfaces

__all__ = [
    "allclose", "elementwise_equal", "equal", "greater_equal", "greater_than", "is_empty", "isfinite", "less_equal",
    "less_than", "logical_and", "logical_not", "logical_or", "logical_xor", "not_equal", "reduce_all", "reduce_any",
]  # fmt: skip

allclose, elementwise_equal, greater_equal, greater_than, is_empty, isfinite, less_equal, less_than = surfaces(
    layers, "allclose elementwise_equal greater_equal greater_than is_empty isfinite less_equal less_than"
)
logical_and, logical_not, logical_or, logical_xor, not_equal, reduce_all, reduce_any = surfaces(
    layers, "logical_and logical_not logical_or logical_xor not_equal reduce_all reduce_any"
)


@surface
def equal(x: Any, y: Any, axis: int = -1, name: str | None = None) -> Any:
    """Whether two variables are equal in every element, and in shape: a bool of shape [1].

    Args:
        axis: accepted as in Paddle.
    """
    one, two = list(x.shape), list(y.shape)
    if len(one) != len(two) or any(a != b for a, b in zip(one, two, strict=True) if min(a, b) >= 0):
        return layers.fill_constant([1], "bool", False)
    found = layers.reduce_all(layers.elementwise_equal(x, y))
    if min([0, *one, *two]) == 0:
        return found
    return layers.logical_and(found, layers.reduce_all(layers.elementwise_equal(layers.shape(x), layers.shape(y))))
