"""Sizes of wide values as a run uses them, for what an op demands of numbers that address their places."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.errors import NeedsSizes
from lowering.sizes.counts import SlotValues
from lowering.sizes.labels import family, roots
from lowering.values import Array, Counted, Meta, RowCounts, Wide

if TYPE_CHECKING:
    from lowering.registry import Check


def used_shape(value: Wide) -> tuple[Any, ...]:
    """The shape of the used part of a wide value, with traced sizes where a run decides them."""
    shape: list[Any] = list(value.shape)
    for axis, count in zip(value.axes, value.counts, strict=True):
        shape[axis.dim] = shape[axis.dim] // axis.room * count
    return tuple(shape)


def sizes(dims: Sequence[Any]) -> Array:
    """int64: dims, some of which may be known only to a run."""
    if any(isinstance(n, jax.core.Tracer) for n in dims):
        return jnp.stack([jnp.asarray(n, jnp.int64) for n in dims])
    return np.asarray(dims, np.int64)


def sized(check: Check, values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` with the wide ones as arrays; as their used shapes where the check asks for no more."""
    asked = {slot.name for slot in check.inputs if slot.wants == "meta"}

    def one(value: Any, slot: str) -> Any:
        if not isinstance(value, Wide):
            return value
        return Meta(used_shape(value), value.dtype) if slot in asked else value.data

    return {s: [one(v, s) for v in value] if isinstance(value, list) else one(value, s) for s, value in values.items()}


def shape_of(value: Wide) -> RowCounts:
    """int32 [rank]: the used shape, as numbers that follow the sizes of its wide axes.

    Raises NeedsSizes if a dim is the product of several.
    """
    base = [int(n) for n in value.shape]
    found: dict[Hashable, tuple[Array, Counted, list[int]]] = {}
    for axis, count in zip(value.axes, value.counts, strict=True):
        label, by = family(axis.label)
        each = value.shape[axis.dim] // axis.room
        rates: list[int] = [0] * len(base)
        number, counted, rates = found.setdefault(label, (count - np.int32(by), Counted(axis.room - by, label), rates))
        rates[axis.dim], base[axis.dim] = each, each * by
    if len({axis.dim for axis in value.axes}) < len(value.axes):
        needed = NeedsSizes("a dim that is the product of several")
        needed.labels = roots(found)
        raise needed
    numbers, counts, rates_of = zip(*found.values(), strict=True)
    return RowCounts(numbers, counts, tuple(map(tuple, rates_of)), tuple(base), (len(base),), np.dtype(np.int32))


def size_of(value: Wide) -> RowCounts:
    """int64 [1]: the number of used elements; NeedsSizes if it follows several dims."""
    if len(value.axes) > 1:
        needed = NeedsSizes("a number of elements that is the product of several sizes")
        needed.labels = roots(axis.label for axis in value.axes)
        raise needed
    ((axis,), (count,)) = value.axes, value.counts
    (label, by), rate = family(axis.label), prod(value.shape) // axis.room
    counted = Counted(axis.room - by, label)
    return RowCounts((count - np.int32(by),), (counted,), ((rate,),), (rate * by,), (1,), np.dtype(np.int64))


# Ops that tell sizes of their input, and read nothing else of it.
SIZES: dict[str, Callable[[SlotValues], SlotValues]] = {
    "shape": lambda values: {"Out": shape_of(values["Input"])},
    "size": lambda values: {"Out": size_of(values["Input"])},
}
