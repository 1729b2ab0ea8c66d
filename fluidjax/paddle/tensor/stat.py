"""``paddle.tensor.stat``: means and deviations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fluidjax import layers
from fluidjax.paddle.tensor.at_once import surface, surfaces
from fluidjax.writing.checks import check_variable_and_dtype

__all__ = ["mean", "reduce_mean", "std", "var"]

mean, reduce_mean = surfaces(layers, "mean reduce_mean")


@surface
def var(
    input: Any,
    axis: int | Sequence[int] | None = None,
    keepdim: bool = False,
    unbiased: bool = True,
    out: Any = None,
    name: str | None = None,
) -> Any:
    """The mean of the squared distances from the mean, over axes or over all of them.

    Args:
        input: a variable of float32 or float64; TypeError for another.
        keepdim: whether the axes stay, of size 1.
        unbiased: divide by one less than there are elements.
        out: a variable that is to hold the result.
    """
    check_variable_and_dtype(input, "input", ["float32", "float64"], "var")
    axes = list(range(len(input.shape))) if axis is None else [axis] if isinstance(axis, int) else list(axis)
    distances = layers.elementwise_sub(input, layers.reduce_mean(input, axes, True))
    found = layers.reduce_mean(layers.square(distances), axes, keepdim)
    if unbiased:
        found = layers.elementwise_mul(found, _correction(input, axes))
    return found if out is None else layers.assign(found, out)


def _correction(x: Any, axes: list[int]) -> Any:
    """n / (n - 1), of shape [1]; 1 where n is 1."""
    sizes = [x.shape[axis] for axis in axes]
    if min(sizes) >= 0:
        count = math.prod(sizes)
        return layers.fill_constant([1], x.dtype, count / max(count - 1, 1))
    every = layers.cast(layers.shape(x), x.dtype)
    parts = [layers.slice(every, [0], [axis % len(x.shape)], [axis % len(x.shape) + 1]) for axis in axes]
    count = layers.reduce_prod(layers.concat(parts))
    return layers.elementwise_div(
        count, layers.elementwise_max(layers.scale(count, bias=-1.0), layers.ones([1], x.dtype))
    )


@surface
def std(
    input: Any,
    axis: int | Sequence[int] | None = None,
    keepdim: bool = False,
    unbiased: bool = True,
    out: Any = None,
    name: str | None = None,
) -> Any:
    """The root of ``var``; arguments as there."""
    check_variable_and_dtype(input, "input", ["float32", "float64"], "std")
    found = layers.sqrt(var(input, axis, keepdim, unbiased))
    return found if out is None else layers.assign(found, out)
