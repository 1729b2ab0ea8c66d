"""Positions of wide axes that are moved: to where the used ones end, or the room; and their numbers with the room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.values import Array, Axis

Counts = Mapping[Any, Array]  # label -> the number of used positions


def closed_up(axis: Axis, before: int, after: int, value: Any, *, counts: Counts) -> Any:
    """The last ``after`` positions moved to where the used ones end; what was there becomes unused."""
    if not after:
        return value
    data = value.data
    last = jax.lax.slice_in_dim(data, data.shape[axis.dim] - after, None, axis=axis.dim)
    data = jax.lax.dynamic_update_slice_in_dim(data, last, before + counts[axis.label], axis.dim)
    return replace(value, data=data)


def parted(data: Array, axis: Axis, before: int, after: int, counts: Counts) -> Array:
    """The inverse of ``closed_up``: the ``after`` positions where the used ones end are moved to the end."""
    if not after:
        return data
    last = jax.lax.dynamic_slice_in_dim(data, before + counts[axis.label], after, axis.dim)
    return jax.lax.dynamic_update_slice_in_dim(data, last, data.shape[axis.dim] - after, axis.dim)


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
