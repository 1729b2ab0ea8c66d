"""Distinct values of traced arrays: the results of exported functions, with room for as many as there are values."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from lowering.dtypes import to_numpy
from lowering.errors import NeedsConcrete
from lowering.ragged.rows import segment_sum
from lowering.values import Array, LoDArray, data_of, fill_padding, is_padded, row_mask


class _Runs(NamedTuple):
    """Runs of equal rows: where each begins and how long it is [n], how many there are, and the run of each row."""

    first: Array
    counts: Array
    number: Array
    of_row: Array


def _items(x: Any, axis: Any) -> tuple[Array, Array]:
    """The things compared, as rows, and which of them are no padding."""
    data = jnp.asarray(data_of(x))
    if len(axis) and axis[0] % data.ndim:
        raise NeedsConcrete("distinct columns")
    inside = jnp.broadcast_to(row_mask(x) if is_padded(x) else True, data.shape)
    items = data if len(axis) else data.reshape(-1)
    return items, inside.reshape(items.shape[0], -1)[:, 0]


def _runs(items: Array, inside: Array, order: Array) -> _Runs:
    """Runs of rows in this order, in which those that are padding come last; ``first`` are places in the order."""
    count = items.shape[0]
    rows = items[order].reshape(count, -1)
    new = inside[order] & ((np.arange(count) == 0) | jnp.any(rows != jnp.roll(rows, 1, 0), 1))
    run = jnp.cumsum(new, dtype=np.int32) - 1
    (first,) = jnp.nonzero(new, size=count, fill_value=0)
    sizes = segment_sum(inside[order].astype(np.int32), run, count)
    return _Runs(first, sizes, jnp.sum(new, dtype=np.int32), jnp.zeros(count, np.int32).at[order].set(run))


def _sorted(items: Array, inside: Array) -> tuple[_Runs, Array]:
    """Runs of equal rows in rising order, and the first row of each."""
    keys = items.reshape(items.shape[0], -1).T
    order = jnp.lexsort((*keys[::-1], ~inside))
    runs = _runs(items, inside, order)
    return runs, order[runs.first]


def _with_room(values: Array, number: Array) -> LoDArray:
    return LoDArray(fill_padding(values, number, backward=False), (), number)


def distinct(x: Any, *, dtype, axis, is_sorted):
    """The results of ``unique``."""
    if not is_sorted:
        return with_counts(x, dtype=dtype)[:2]
    kind, (items, inside) = to_numpy(dtype), _items(x, axis)
    runs, first = _sorted(items, inside)
    found = (items[first], first.astype(kind), runs.counts.astype(kind))
    values, places, counts = (_with_room(part, runs.number) for part in found)
    return values, _as_padded(x, runs.of_row.astype(kind)), places, counts


def with_counts(x: Any, *, dtype):
    """The results of ``unique_with_counts``: in order of appearance."""
    kind, (items, inside) = to_numpy(dtype), _items(x, ())
    runs, first = _sorted(items, inside)
    rank = jnp.argsort(jnp.where(np.arange(items.shape[0]) < runs.number, first, items.shape[0]), stable=True)
    place = jnp.argsort(rank)[runs.of_row].astype(kind)
    values, counts = (
        _with_room(items[first[rank]], runs.number),
        _with_room(runs.counts[rank].astype(kind), runs.number),
    )
    return values, _as_padded(x, place), counts


def consecutive(x: Any, *, axis, dtype):
    """The results of ``unique_consecutive``."""
    kind, (items, inside) = to_numpy(dtype), _items(x, axis)
    runs = _runs(items, inside, jnp.arange(items.shape[0]))
    values, counts = _with_room(items[runs.first], runs.number), _with_room(runs.counts.astype(kind), runs.number)
    return values, _as_padded(x, runs.of_row.astype(kind)), counts


def _as_padded(x: Any, index: Array) -> Any:
    """The place of each element, of which as many are valid as of X."""
    if not is_padded(x):
        return index
    rows = x.rows() * (index.shape[0] // x.capacity)
    return LoDArray(fill_padding(index, rows, backward=False), (), rows)
