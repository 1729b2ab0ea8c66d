"""Positions of wide axes that are moved: to where the used ones end, or the room; and their numbers with the room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.values import Array, Axis, Wide

Counts = Mapping[Any, Array]  # label -> the number of used positions


def turned(data: Array, axis: Axis, by: Array) -> Array:
    """The positions of a whole dim moved on by so many, and the last ones to its beginning."""
    twice = jnp.concatenate([data, data], axis.dim)
    return jax.lax.dynamic_slice_in_dim(twice, axis.room - by, axis.room, axis.dim)


def places_in_room(axes: Sequence[Sequence[Axis]], index: Array, counts: Counts) -> Array:
    """Numbers of places, which count used positions only, as numbers that count all.

    Args:
        axes: of which axes the dim consists that each part of ``index`` addresses; where there are several parts, they
            are along its last dim.
    """
    if len(axes) == 1:
        return _in_room(index, axes[0], counts)
    return jnp.stack([_in_room(index[..., i], part, counts) for i, part in enumerate(axes)], axis=-1)


def _in_room(at: Array, axes: Sequence[Axis], counts: Counts) -> Array:
    for axis in sorted(axes, key=lambda axis: axis.inner):
        rest, inside = jnp.divmod(at, np.asarray(axis.inner, at.dtype))
        outer, place = jnp.divmod(rest, counts[axis.label].astype(at.dtype))
        at = (outer * np.asarray(axis.room, at.dtype) + place) * np.asarray(axis.inner, at.dtype) + inside
    return at


def number_of_places(size: int, axes: Sequence[Axis], counts: Counts) -> Array:
    """int32 [size]: the number of each used place of a dim, which consists of these axes, among the used ones."""
    at = np.arange(size, dtype=np.int32)
    for axis in sorted(axes, key=lambda axis: -axis.inner):
        rest, inside = jnp.divmod(at, np.int32(axis.inner))
        outer, place = jnp.divmod(rest, np.int32(axis.room))
        at = (outer * counts[axis.label] + place) * np.int32(axis.inner) + inside
    return at


def used_places(value: Wide) -> Array:
    """uint32, in the shape of a value: the number of each used place among the used ones, in their order."""
    at, total = jnp.zeros((), np.uint32), jnp.ones((), np.uint32)
    axes = list(zip(value.axes, value.counts, strict=True))
    for dim in reversed(range(len(value.shape))):
        index, size = jnp.arange(value.shape[dim], dtype=np.uint32), np.uint32(value.shape[dim])
        for axis, number in sorted(axes, key=lambda one: -one[0].inner):
            if axis.dim == dim:
                count, inner = number.astype(np.uint32), np.uint32(axis.inner)
                rest, inside = jnp.divmod(index, inner)
                outer, place = jnp.divmod(rest, np.uint32(axis.room))
                index, size = (outer * count + place) * inner + inside, size // np.uint32(axis.room) * count
        at = at + index.reshape((-1,) + (1,) * (len(value.shape) - dim - 1)) * total
        total = total * size
    return jnp.broadcast_to(at, value.shape)


def places(shape: Sequence[int], axis: Axis) -> np.ndarray:
    """int32, broadcastable to ``shape``: the position along the axis of each element."""
    at = np.arange(shape[axis.dim], dtype=np.int32) // axis.inner % axis.room
    return at.reshape((-1,) + (1,) * (len(shape) - axis.dim - 1))


def mask(shape: Sequence[int], axis: Axis, count: Array) -> Array:
    """bool, broadcastable to ``shape``: True at used positions."""
    return places(shape, axis) < count


def refilled(value: Any) -> Any:
    """Copies of the first position at the unused ones."""
    if not isinstance(value, Wide):
        return value
    data = value.data
    for axis, count in zip(value.axes, value.counts, strict=True):
        first = places(data.shape, axis)
        at = np.arange(data.shape[axis.dim], dtype=np.int32) - first.reshape(-1) * axis.inner
        firsts = data.at[(slice(None),) * axis.dim + (at,)]
        copies = jax.lax.stop_gradient(firsts.get(mode="promise_in_bounds", wrap_negative_indices=False))
        data = jnp.where(mask(data.shape, axis, count), data, copies)
    return replace(value, data=data)
