"""How values are given to jit, and how it tells apart the forms that it compiles for."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import numpy as np
from jaxlib.xla_client import ArrayImpl

from lowering.values import LoDArray, RankTable, TensorArray

Rebuild = Callable[[Any], Any]
PLAIN = (np.ndarray, ArrayImpl)


def split_static(value: Any) -> tuple[Any, Hashable, Rebuild | None]:
    """(what jit is given, a key of what the trace closes over, how to put both together again).

    In exact mode LoD offsets are constants of the trace, so that ops whose output size depends on them work;
    bucketed values (with a traced row count) are given to jit whole.
    """
    if isinstance(value, LoDArray) and not value.padded and value.lod and _host(value.lod):
        key = tuple(level.tobytes() for level in value.lod), value.longest
        return value.data, ("lod", key), value.with_data
    if isinstance(value, RankTable) and _host((value.index, value.lengths, value.offsets, *value.lod)):
        leaves = (value.index, value.lengths, value.offsets, *value.lod)
        return (), ("rank", tuple(v.tobytes() for v in leaves), value.capacity), lambda _: value
    if isinstance(value, TensorArray) and value.items:
        parts = [split_static(item) for item in value.items]

        def rebuild(data: Any) -> TensorArray:
            items = (put(d) if put else d for d, (_, _, put) in zip(data, parts, strict=True))
            return TensorArray(tuple(items))

        return tuple(p[0] for p in parts), ("array", tuple(p[1] for p in parts)), rebuild
    return value, None, None


def _host(leaves: Sequence[Any]) -> bool:
    return all(isinstance(leaf, np.ndarray) for leaf in leaves)


def form(values: Sequence[Any]) -> Hashable:
    """What jit distinguishes: values of equal forms are computed by the same compiled function."""
    return tuple([(v.shape, v.dtype) if type(v) is np.ndarray else _form(v) for v in values])


def _form(value: Any) -> Hashable:
    if type(value) is ArrayImpl:
        aval = value.aval  # jax 0.12 does not find that of a loaded executable equal to others like it
        return aval.shape, aval.dtype, aval.weak_type, value.sharding, value.committed
    data, key, _ = split_static(value)
    leaves, structure = jax.tree_util.tree_flatten(data)
    return key, structure, tuple(_form(x) if type(x) is ArrayImpl else (np.shape(x), np.result_type(x)) for x in leaves)


def given(values: Sequence[Any]) -> tuple[Any, ...]:
    """What jit is given for the values."""
    return tuple([v if type(v) in PLAIN else split_static(v)[0] for v in values])


def shape_of(value: Any) -> Any:
    """The shape and dtype that a device array is compiled for; the array itself may be overwritten meanwhile."""
    if type(value) is not ArrayImpl:
        return value
    sharding = value.sharding if value.committed else None
    return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding, weak_type=value.weak_type)
