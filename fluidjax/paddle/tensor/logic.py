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
    if tuple(x.shape) != tuple(y.shape):
        return layers.fill_constant([1], "bool", False)
    return layers.reduce_all(layers.elementwise_equal(x, y))
