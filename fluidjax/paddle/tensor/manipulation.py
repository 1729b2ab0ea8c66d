"""``paddle.tensor.manipulation``: other shapes and orders of the same numbers."""

from __future__ import annotations

from typing import Any

from fluidjax import layers
from fluidjax.paddle.tensor.at_once import surface, surfaces

__all__ = [
    "cast", "concat", "expand", "expand_as", "flatten", "flip", "gather", "gather_nd", "reshape", "reverse", "roll",
    "scatter", "scatter_nd", "scatter_nd_add", "shard_index", "slice", "split", "squeeze", "stack", "strided_slice",
    "transpose", "unbind", "unique", "unique_with_counts", "unsqueeze", "unstack",
]  # fmt: skip

cast, concat, expand, expand_as, flatten, flip, gather, gather_nd, reshape, reverse, roll = surfaces(
    layers, "cast concat expand expand_as flatten flip gather gather_nd reshape reverse roll"
)
scatter, scatter_nd, scatter_nd_add, shard_index, slice, split, squeeze, stack, strided_slice = surfaces(
    layers, "scatter scatter_nd scatter_nd_add shard_index slice split squeeze stack strided_slice"
)
transpose, unique, unique_with_counts, unsqueeze, unstack = surfaces(
    layers, "transpose unique unique_with_counts unsqueeze unstack"
)


@surface
def unbind(input: Any, axis: int = 0) -> Any:
    """The slices along an axis, without it. Raises TypeError for an axis that is no whole number."""
    if not isinstance(axis, int):
        raise TypeError(f"unbind: the axis is {axis!r}. Expected an int. Pass the number of an axis.")
    return layers.unstack(input, axis)
