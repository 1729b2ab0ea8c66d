"""Means over merged dims of which some places may be unused, for ops that count the used ones themselves."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import jax.numpy as jnp
import numpy as np

from lowering.sizes.moves import mask
from lowering.values import Array, LoDArray, Wide


class Places:
    """The places in adjacent dims of a value, which are merged to the last dim of other arrays.

    Args:
        value: a wide one, of which some places are unused, or any other.
        dims: which of its dims.
    """

    def __init__(self, value: LoDArray | Wide, dims: Sequence[int]):
        shape = value.shape
        self._room = prod(shape[dim] for dim in dims)
        self._used: Array | None = None
        self._mask: Array = np.True_
        axes = zip(value.axes, value.counts, strict=True) if isinstance(value, Wide) else ()
        for axis, count in axes:
            if axis.dim in dims:
                merged = axis._replace(dim=0, inner=axis.inner * prod(shape[d] for d in dims if d > axis.dim))
                self._mask = self._mask & mask((self._room,), merged, count)
                used = self._room if self._used is None else self._used
                self._used = used // axis.room * jnp.maximum(count, 1)

    def mean(self, values: Array, over: tuple[int, ...] = (-1,)) -> Array:
        """The mean over dims of ``values``, whose last one, among them, is these places; the dims are kept, as 1."""
        if self._used is None:
            return values.mean(axis=over, keepdims=True)
        total = jnp.where(self._mask, values, 0).sum(axis=over, keepdims=True)
        times = prod(values.shape[dim] for dim in over) // self._room
        return total / (self._used * times).astype(values.dtype)
