"""Parts put together along a dim: the places that a run uses are moved to where they follow each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, prod
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from lowering.sizes.labels import count_of, total
from lowering.sizes.moves import Counts, number_of_places, places_in_room
from lowering.values import Array, Axis, Wide


class Joined(Protocol):
    """How the places of several parts are put together along a dim."""

    def closed_up(self, value: Any, *, counts: Counts) -> Any:
        """A result, whose parts have room, with the used places of all before the unused ones."""

    def parted(self, data: Array, counts: Counts) -> Array:
        """The inverse, for a gradient."""


class Between(NamedTuple):
    """One axis between ``before`` places and ``after`` ones, all used: only the last ones move."""

    axis: Axis
    before: int
    after: int

    def closed_up(self, value: Any, *, counts: Counts) -> Any:
        """The last places moved to where the used ones end; what was there becomes unused."""
        if not self.after:
            return value
        data, dim = value.data, self.axis.dim
        last = jax.lax.slice_in_dim(data, data.shape[dim] - self.after, None, axis=dim)
        at = self.before + counts[self.axis.label]
        return replace(value, data=jax.lax.dynamic_update_slice_in_dim(data, last, at, dim))

    def parted(self, data: Array, counts: Counts) -> Array:
        """The places where the used ones end moved to the end."""
        if not self.after:
            return data
        dim = self.axis.dim
        last = jax.lax.dynamic_slice_in_dim(data, self.before + counts[self.axis.label], self.after, dim)
        return jax.lax.dynamic_update_slice_in_dim(data, last, data.shape[dim] - self.after, dim)


class Part(NamedTuple):
    """A part of a dim: how many units it has room for, and the axes that it consists of, counted in units."""

    room: int
    axes: tuple[Axis, ...]

    @property
    def times(self) -> int:
        """How many units there are for each place of all its axes."""
        return self.room // prod(axis.room for axis in self.axes)

    def used(self, counts: Counts) -> Array:
        """int32: the number of used units."""
        return np.int32(self.times) * prod(counts[axis.label] for axis in self.axes)


class Packed(NamedTuple):
    """Several parts with axes, one after the other, in units of ``unit`` elements."""

    dim: int
    unit: int
    parts: tuple[Part, ...]

    @staticmethod
    def of(dim: int, parts: Sequence[tuple[int, Sequence[Axis]]], unit: int = 0) -> Packed:
        """The parts of a dim, each with a size and axes; ``unit`` 0: the largest that there may be."""
        unit = unit or gcd(*(axis.inner for _, axes in parts for axis in axes), *(n for n, axes in parts if not axes))
        units = (Part(n // unit, tuple(a._replace(inner=a.inner // unit) for a in axes)) for n, axes in parts)
        return Packed(dim, unit, tuple(units))

    @property
    def axis(self) -> Axis:
        """The axis of all parts."""
        label = total((part.times, [axis.label for axis in part.axes]) for part in self.parts)
        return Axis(self.dim, sum(part.room for part in self.parts), label, self.unit)

    def packed(self, value: Wide) -> Wide:
        """A value with several axes along the dim, with one."""
        found = {axis: count for axis, count in zip(value.axes, value.counts, strict=True) if axis.dim != self.dim}
        known = {axis.label: count for axis, count in zip(value.axes, value.counts, strict=True)}
        found[self.axis] = jnp.asarray(count_of(self.axis.label, known), np.int32)
        axes = tuple(sorted(found, key=lambda axis: (axis.dim, -axis.inner)))
        return Wide(self.closed_up(value, counts=known).data, tuple(found[axis] for axis in axes), axes)

    def unpacked(self, gradient: Array, forward: Wide) -> Array:
        """The gradient of what was packed, and cut perhaps, with the places of its forward value."""
        dim, counts = self.dim, {axis.label: n for axis, n in zip(forward.axes, forward.counts, strict=True)}
        missing = forward.shape[dim] - gradient.shape[dim]
        grown = jnp.pad(gradient, [(0, missing * (d == dim)) for d in range(gradient.ndim)])
        return self.parted(grown, counts)

    def closed_up(self, value: Any, *, counts: Counts) -> Any:
        """The used places of all parts in front."""
        at = np.arange(sum(part.room for part in self.parts), dtype=np.int32)
        place: Array = at
        used, room = np.int32(0), 0
        for part in self.parts:
            inside = places_in_room([part.axes], jnp.clip(at - used, 0, part.room - 1), counts)
            place = jnp.where(at >= used, room + jnp.minimum(inside, np.int32(part.room - 1)), place)
            used, room = used + part.used(counts), room + part.room
        return replace(value, data=self._taken(value.data, place))

    def parted(self, data: Array, counts: Counts) -> Array:
        """The places of each part where it has room for them."""
        place, used = [], np.int32(0)
        for part in self.parts:
            place.append(used + number_of_places(part.room, part.axes, counts))
            used = used + part.used(counts)
        return self._taken(data, jnp.concatenate(place))

    def _taken(self, data: Array, place: Array) -> Array:
        shape, dim = data.shape, self.dim
        units = data.reshape(*shape[:dim], shape[dim] // self.unit, self.unit, *shape[dim + 1 :])
        return jnp.take(units, place, axis=dim, mode="clip").reshape(shape)
