"""Values carried by loops and branches: one structure for all steps, with rows padded where steps differ.

Invariants: ``a`` and ``b`` both ``fit`` into ``join(a, b)``, and ``fit`` keeps every valid row, offset and element.
It adds padding (I1 in a forward value, I2 in a gradient) and never cuts; where padding cannot make two values alike,
NeedsExact is raised instead.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.errors import CarryChanges, NeedsConcrete, NeedsExact
from lowering.ragged.rows import row_numbers, stretch
from lowering.structure import abstract, same_nesting, same_structure, traced_dtype
from lowering.symbols import number
from lowering.values import Array, LoDArray, SelectedRows, TensorArray, Wide


def known(value: Any) -> np.ndarray | None:
    """The host value of an array that is known during tracing (or outside a trace); None for a tracer or no array."""
    if isinstance(value, LoDArray):
        value = value.data
    if isinstance(value, np.ndarray | np.generic | int | float | bool):
        return np.asarray(value)
    if isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer):
        return np.asarray(value)
    return None


def known_int(value: Any) -> int | None:
    """The single integer (or truth value) in ``value``, or None if the trace does not know it."""
    found = known(value)
    return None if found is None or found.size != 1 else int(found.reshape(()))


def scalar(value: Any, dtype: Any = np.int32) -> Array:
    """The single element of ``value`` as a scalar of ``dtype``."""
    data = value.data if isinstance(value, LoDArray) else value
    return data.reshape(()).astype(dtype)


def zeros(template: Any) -> Any:
    """Zeros in the structure of ``template`` (values or abstract values)."""
    return jax.tree_util.tree_map(lambda v: jnp.zeros(v.shape, v.dtype), template)


def zero_gradient(value: Any) -> Any:
    """A gradient of zeros for ``value``: its rows and LoD, integers included."""
    if isinstance(value, LoDArray | Wide):
        return replace(value, data=jnp.zeros(value.shape, value.dtype))
    if isinstance(value, TensorArray):
        if not value.stacked:
            return TensorArray(tuple(None if v is None else zero_gradient(v) for v in value.items or ()))
        return replace(value, buffer=zero_gradient(value.buffer))
    return jnp.zeros(value.shape, value.dtype)


# --- one structure for two values ---------------------------------------------------------------------------------


def join(a: Any, b: Any) -> Any:
    """The abstract value that both ``a`` and ``b`` fit into: the larger row capacity, padded where they differ.

    Raises:
        CarryChanges: no such structure exists (another dtype, rank or trailing shape).
    """
    if isinstance(a, TensorArray) or isinstance(b, TensorArray):
        return _join_arrays(a, b)
    if isinstance(a, LoDArray) or isinstance(b, LoDArray):
        return _join_lod(_lod_carry(a), _lod_carry(b))
    if not same_nesting(a, b):
        raise CarryChanges(f"a loop carries a {type(a).__name__} that becomes a {type(b).__name__}")
    if hasattr(a, "shape") and hasattr(b, "shape") and not isinstance(a, SelectedRows):
        if a.shape == b.shape and traced_dtype(a) == traced_dtype(b):
            return abstract(a)
        return _join_lod(_lod_carry(a), _lod_carry(b))
    if jax.tree_util.tree_leaves(abstract(a)) != jax.tree_util.tree_leaves(abstract(b)):
        raise CarryChanges(f"a loop carries a {type(a).__name__} whose sizes change")
    return abstract(a)


def _lod_carry(value: Any) -> LoDArray:
    if isinstance(value, LoDArray):
        return value
    if not hasattr(value, "shape"):
        raise CarryChanges(f"a loop carries a tensor that becomes a {type(value).__name__}")
    return LoDArray(value)


def _join_lod(a: LoDArray, b: LoDArray) -> Any:
    if traced_dtype(a.data) != traced_dtype(b.data):
        raise CarryChanges(f"a loop carries a value whose dtype changes from {a.dtype} to {b.dtype}")
    if len(a.shape) != len(b.shape) or a.shape[1:] != b.shape[1:]:
        raise CarryChanges(f"a loop carries a value whose shape changes from {list(a.shape)} to {list(b.shape)}")
    ragged = a.shape != b.shape or a.padded or b.padded
    lod = _join_offsets(a, b)
    if not ragged and not lod:
        return jax.ShapeDtypeStruct(a.shape, traced_dtype(a.data))
    count = jax.ShapeDtypeStruct((), np.dtype(np.int32))
    grown = any(x.shape != y.shape for x, y in zip(a.lod, b.lod, strict=False))
    several = a.nseq is not None or b.nseq is not None or grown
    longest = tuple(max(p) for p in zip(a.longest, b.longest, strict=False)) if a.longest and b.longest else ()
    data = jax.ShapeDtypeStruct((max(a.capacity, b.capacity), *a.shape[1:]), traced_dtype(a.data))
    return LoDArray(data, lod, count if ragged else None, count if several and lod else None, longest)


def _join_offsets(a: LoDArray, b: LoDArray) -> tuple[Any, ...]:
    if not a.lod or not b.lod:
        kept = a.lod or b.lod
        return tuple(jax.ShapeDtypeStruct(o.shape, np.dtype(np.int32)) for o in kept)
    if len(a.lod) != len(b.lod):
        raise CarryChanges("a loop carries a value whose number of LoD levels changes")
    sizes = [max(x.shape[0], y.shape[0]) for x, y in zip(a.lod, b.lod, strict=True)]
    return tuple(jax.ShapeDtypeStruct((n,), np.dtype(np.int32)) for n in sizes)


def _join_arrays(a: Any, b: Any) -> Any:
    if all(isinstance(v, TensorArray) and not v.stacked and v.taken is None for v in (a, b)):
        return TensorArray(tuple(_join_items(x, y) for x, y in zip_longest(a.items or (), b.items or ())))
    if not (isinstance(a, TensorArray) and isinstance(b, TensorArray) and a.stacked and b.stacked):
        raise CarryChanges("a loop carries a tensor array without a common element shape")
    return array_template(
        join(element_template(a.buffer), element_template(b.buffer)),
        max(a.capacity, b.capacity),
        a.taken is not None or b.taken is not None,
    )


def _join_items(a: Any, b: Any) -> Any:
    """An element that only one of two arrays holds is zero in the other."""
    if a is None or b is None:
        return abstract(b if a is None else a)
    return join(a, b)


def array_template(item: Any, capacity: int, taken: bool = False) -> TensorArray:
    """The abstract stacked array of ``capacity`` elements like ``item``."""
    count = jax.ShapeDtypeStruct((), np.dtype(np.int32))
    flags = jax.ShapeDtypeStruct((capacity,), np.dtype(bool)) if taken else None
    return TensorArray(None, stacked_template(item, capacity), count, flags)


def stacked_template(item: Any, capacity: int) -> Any:
    """The abstract buffer of ``capacity`` elements like ``item``."""
    return jax.tree_util.tree_map(lambda v: jax.ShapeDtypeStruct((capacity, *v.shape), v.dtype), abstract(item))


def element(buffer: Any, i: Any) -> Any:
    """Element ``i`` of a stacked buffer, known index or not."""

    def one(leaf: Any) -> Any:
        # Indexing by [] takes three times as long to trace.
        traced = isinstance(leaf, jax.core.Tracer) and isinstance(i, int)
        return jax.lax.index_in_dim(leaf, i, keepdims=False) if traced else leaf[i]

    return jax.tree_util.tree_map(one, buffer)


def element_template(buffer: Any) -> Any:
    """The abstract element of a stacked buffer."""
    return jax.tree_util.tree_map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), buffer)


def fit(value: Any, template: Any, *, backward: bool = False) -> Any:
    """``value`` in the structure of ``template``: rows, offsets and elements padded, row counts added; never cut.

    ``backward`` fills rows with zeros (I2) instead of copies of the first row (I1).
    """
    if isinstance(template, TensorArray):
        return _fit_array(value, template, backward)
    if isinstance(template, LoDArray):
        return _fit_lod(_lod_carry(value), template, backward)
    if isinstance(value, LoDArray) and not value.padded:
        return value.data
    return value


def _fit_lod(value: LoDArray, template: LoDArray, backward: bool) -> LoDArray:
    rows = template.shape[0]
    if value.capacity > rows or (value.padded and template.nrows is None):
        raise NeedsExact(f"{value.capacity} rows do not fit into a loop value of {rows}")
    nrows = value.nrows
    if template.nrows is not None and nrows is None:
        nrows = jnp.asarray(number(value.capacity))
    data = grow_rows(value.data, rows, backward=backward)
    if not value.lod and not backward:
        lod, top = tuple(_rows_alone(value, t.shape[0]) for t in template.lod), value.rows()
    else:
        lod = tuple(_fit_offsets(value.lod[k] if value.lod else None, t.shape[0]) for k, t in enumerate(template.lod))
        top = value.lod[0].shape[0] - 1 if value.lod else 0
    nseq = None
    if template.nseq is not None:
        nseq = jnp.int32(top) if value.nseq is None else value.nseq
    return LoDArray(data, lod, nrows, nseq, template.longest)


def _rows_alone(value: LoDArray, size: int) -> Array:
    """Offsets of rows without a LoD where other steps have one: each row by itself, as ops take such rows."""
    if value.capacity >= size:
        raise NeedsExact(f"a loop carries {value.capacity} rows without a LoD, where it had {size - 1} sequences")
    return jnp.minimum(row_numbers(size), value.rows())


def grow_rows(data: Array, rows: int, *, backward: bool) -> Array:
    """``data`` grown to ``rows`` rows: zeros, or copies of the first row (zeros when there is none)."""
    missing = rows - data.shape[0]
    if missing == 0:
        return jnp.asarray(data)
    shape = (missing, *data.shape[1:])
    if backward or data.shape[0] == 0:
        tail = jnp.zeros(shape, data.dtype)
    else:
        tail = jnp.broadcast_to(data[:1], shape)
    return jnp.concatenate([jnp.asarray(data), tail])


def with_rows_of(value: Any, gradient: Any) -> Any:
    """A gradient with room for as many rows as the ragged or dense ``value`` whose gradient it is."""
    if not isinstance(gradient, LoDArray) or (value is None and not gradient.padded):
        return gradient
    if value is None:
        raise NeedsConcrete("how many rows a gradient's own value has")
    rows = value.shape[0]
    if rows == gradient.capacity and not gradient.padded:
        return gradient
    data = grow_rows(gradient.data[:rows], rows, backward=True)
    return value.with_data(data) if isinstance(value, LoDArray) else data


def _fit_offsets(offsets: Any, size: int) -> Array:
    if offsets is None:
        return jnp.zeros(size, jnp.int32)
    offsets = jnp.asarray(offsets, jnp.int32)
    missing = size - offsets.shape[0]
    return offsets if not missing else jnp.concatenate([offsets, jnp.broadcast_to(offsets[-1:], (missing,))])


def _fit_array(value: Any, template: TensorArray, backward: bool) -> TensorArray:
    if not template.stacked and template.items:
        return _fit_items(value, template, backward)
    capacity = template.capacity
    item = element_template(template.buffer)
    if value is None or (not value.stacked and not value.items):
        return TensorArray(None, zeros(template.buffer), jnp.int32(0), _fit_flags(value, template))
    if not value.stacked:
        return replace(stack(value.items, capacity, item, backward=backward), taken=_fit_flags(value, template))
    if value.capacity > capacity:
        raise NeedsExact(f"a tensor array of {value.capacity} elements does not fit into one of {capacity}")
    buffer = value.buffer
    if not same_structure(element_template(buffer), item):
        buffer = jax.vmap(lambda one: fit(one, item, backward=backward))(buffer)
    grown = jax.tree_util.tree_map(lambda leaf: _grow(leaf, capacity), buffer)
    return TensorArray(None, grown, jnp.asarray(value.length, jnp.int32), _fit_flags(value, template))


def _fit_items(value: Any, template: TensorArray, backward: bool) -> TensorArray:
    """An array held element by element; missing elements are zeros."""
    items, wanted = (value.items if value is not None else None) or (), template.items or ()
    if value is not None and (value.stacked or value.taken is not None or len(items) > len(wanted)):
        raise NeedsExact("a loop or branch carries a tensor array that is held in two ways")
    pairs = zip_longest(items, wanted)
    return TensorArray(tuple(zeros(t) if v is None else fit(v, t, backward=backward) for v, t in pairs))


def _fit_flags(value: Any, template: TensorArray) -> Any:
    if template.taken is None:
        return None
    if value is None or value.taken is None:
        return np.zeros(template.capacity, bool)
    host = known(value.taken)
    if host is not None:
        return np.concatenate([host, np.zeros(template.capacity - host.shape[0], bool)])
    return _grow(value.taken, template.capacity)


def _grow(leaf: Array, capacity: int) -> Array:
    return jnp.asarray(leaf) if leaf.shape[0] == capacity else stretch(jnp.asarray(leaf), 0, capacity)


def stack(items: Any, capacity: int, item: Any, *, backward: bool = False) -> TensorArray:
    """A stacked array of ``capacity`` elements like ``item`` (abstract), the first ones from ``items``."""
    empty = zeros(item)
    fitted = [empty if v is None else fit(v, item, backward=backward) for v in items]
    rows = [jax.tree_util.tree_leaves(v) for v in fitted]
    leaves, structure = jax.tree_util.tree_flatten(item)
    columns = []
    for k, leaf in enumerate(leaves):
        column = jnp.stack([jnp.asarray(row[k]) for row in rows]).astype(leaf.dtype)
        columns.append(_grow(column, capacity))
    buffer = jax.tree_util.tree_unflatten(structure, columns)
    return TensorArray(None, buffer, jnp.int32(len(items)))
