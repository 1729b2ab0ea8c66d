"""Sizes of wide values as a run uses them, for what an op demands of numbers that address their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.values import Array, Meta, Wide

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
