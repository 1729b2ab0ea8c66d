"""Tensor arrays: element by element while indices are known, stacked on a leading axis once they are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .errors import NeedsConcrete
from .loop_values import (
    abstract,
    element,
    fit,
    join,
    known_int,
    same_structure,
    scalar,
    stack,
    stacked_template,
    zero_gradient,
    zeros,
)
from .values import LoDArray, SelectedRows, TensorArray


def length(array: TensorArray | None) -> Any:
    """The number of elements: a host int, or a traced int32."""
    if array is None:
        return 0
    if not array.stacked:
        return len(array.items or ())
    count = known_int(array.length)
    return array.length if count is None else count


def as_stacked(array: TensorArray | None, item: Any, capacity: int, *, backward: bool = False) -> TensorArray:
    """``array`` as a stacked one whose elements also take values like ``item``."""
    item = abstract(item)
    if array is None or (not array.stacked and not array.items):
        return TensorArray(None, zeros(stacked_template(item, capacity)), jnp.int32(0))
    if not array.stacked:
        for value in array.items or ():
            item = item if value is None else join(item, value)
        return stack(array.items, max(capacity, len(array.items or ())), item, backward=backward)
    held = jax.eval_shape(lambda b: element(b, 0), abstract(array.buffer))
    if same_structure(held, item):
        return array
    wanted = join(held, item)
    template = TensorArray(None, stacked_template(wanted, array.capacity), jax.ShapeDtypeStruct((), np.dtype(np.int32)))
    return fit(array, template, backward=backward)


def put(array: TensorArray | None, i: Any, value: Any, capacity: int, *, add: bool = False) -> TensorArray:
    """``array[i] = value``, or ``array[i] += value`` when ``add``; the array grows as far as a known i.

    Args:
        array: what the variable holds; None before its first write.
        i: int64 of shape [1].
        value: the element.
        capacity: how many elements a stacked array has when it must be made here.
        add: the write is the gradient of a read, so several reads of an element add up.
    """
    index = known_int(i)
    if index is not None and (array is None or not array.stacked):
        items = list(array.items or ()) if array is not None else []
        items += [None] * (index + 1 - len(items))
        items[index] = add_values(items[index], value) if add else value
        return TensorArray(tuple(items))
    array = as_stacked(array, value, capacity, backward=add)
    held = jax.eval_shape(lambda b: element(b, 0), abstract(array.buffer))
    value = fit(value, held, backward=add)
    where = scalar(i) if index is None else jnp.int32(index)
    if add:
        value = add_values(element_at(array.buffer, where), value)
    buffer = jax.tree_util.tree_map(
        lambda leaf, new: jax.lax.dynamic_update_index_in_dim(leaf, jnp.asarray(new, leaf.dtype), where, 0),
        array.buffer,
        value,
    )
    return TensorArray(None, buffer, jnp.maximum(jnp.asarray(array.length, jnp.int32), where + 1))


def element_at(buffer: Any, where: Any) -> Any:
    """Element ``where`` of a stacked buffer.

    The branch keeps XLA:CPU from fusing the read into whatever else uses it: a read fused into a write of
    another buffer of the loop makes it copy whole buffers in each step.
    """

    def read(_: None) -> Any:
        return jax.tree_util.tree_map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, where, 0, keepdims=False), buffer)

    template = jax.eval_shape(lambda b: element(b, 0), abstract(buffer))
    return jax.lax.cond(where >= 0, read, lambda _: zeros(template), None)


def get(array: TensorArray, i: Any) -> Any:
    """``array[i]``; None when nothing was written there yet."""
    index = known_int(i)
    if not array.stacked:
        items = array.items or ()
        if index is not None:
            return items[index] if index < len(items) else None
        array = _stacked_items(array)
    if index is not None:
        if index >= array.capacity:
            return None
        return element(array.buffer, index)
    return element_at(array.buffer, scalar(i))


def _stacked_items(array: TensorArray) -> TensorArray:
    present = [v for v in array.items or () if v is not None]
    if not present:
        raise NeedsConcrete("the index into an empty tensor array")
    return as_stacked(array, present[0], len(array.items or ()))


def clear(array: TensorArray, i: Any) -> TensorArray:
    """``array`` with element i back at zero: a gradient that was taken is not taken again."""
    index = known_int(i)
    if not array.stacked and index is None:
        array = _stacked_items(array)
    if not array.stacked:
        items = list(array.items or ())
        if index < len(items):
            items[index] = None
        return TensorArray(tuple(items))
    where = scalar(i) if index is None else jnp.int32(index)
    held = jax.eval_shape(lambda b: element(b, 0), abstract(array.buffer))

    def wipe(leaf: Any, item: Any) -> Any:
        return jax.lax.dynamic_update_index_in_dim(leaf, jnp.zeros(item.shape, item.dtype), where, 0)

    if isinstance(array.buffer, LoDArray):
        return replace(array, buffer=array.buffer.with_data(wipe(array.buffer.data, held.data)))
    return replace(array, buffer=jax.tree_util.tree_map(wipe, array.buffer, held))


def gradient_like(gradient: TensorArray | None, forward: TensorArray) -> TensorArray:
    """The gradient array of ``forward`` with its elements, capacity and row counts; zeros where none was written."""
    blank = zero_gradient(forward)
    if gradient is None:
        return blank
    if not forward.stacked:
        if gradient.stacked:
            raise NeedsConcrete("the length of a tensor array's gradient")
        items = list(blank.items or ())
        for k, value in enumerate(gradient.items or ()):
            if value is not None and k < len(items):
                items[k] = value
        return TensorArray(tuple(items))
    held = jax.eval_shape(lambda b: element(b, 0), abstract(blank.buffer))
    template = TensorArray(None, stacked_template(held, forward.capacity), jax.ShapeDtypeStruct((), np.dtype(np.int32)))
    if gradient.stacked:
        fitted = fit(_cut(gradient, forward.capacity), template, backward=True).buffer
    else:
        items = (gradient.items or ())[: forward.capacity]
        if not items:
            return blank
        fitted = stack(items, forward.capacity, held, backward=True).buffer
    if isinstance(blank.buffer, LoDArray):
        # Counts and offsets are the forward array's: an element without a gradient has its rows all the same.
        return replace(blank, buffer=blank.buffer.with_data(fitted.data))
    return replace(blank, buffer=fitted)


def _cut(array: TensorArray, capacity: int) -> TensorArray:
    if array.capacity <= capacity:
        return array
    return replace(array, buffer=jax.tree_util.tree_map(lambda leaf: leaf[:capacity], array.buffer))


def add_values(a: Any, b: Any) -> Any:
    """The sum of two gradients of one variable; None counts as zero. Sparse ones become dense."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, TensorArray) or isinstance(b, TensorArray):
        return add_arrays(a, b)
    a, b = (v.to_dense() if isinstance(v, SelectedRows) else v for v in (a, b))
    if isinstance(a, LoDArray) and isinstance(b, LoDArray) and a.capacity == b.capacity:
        return a.with_data(a.data + b.data)
    if isinstance(a, LoDArray):
        other = b.data if isinstance(b, LoDArray) else b
        return a.with_data(a.data + other)
    if isinstance(b, LoDArray):
        return b.with_data(a + b.data)
    return a + b


def add_arrays(a: TensorArray, b: TensorArray) -> TensorArray:
    """Element by element sum of two gradient arrays; the shorter one counts as zero behind its end."""
    if a.stacked != b.stacked:
        a, b = (gradient_like(b, a), a) if a.stacked else (gradient_like(a, b), b)
    if not a.stacked:
        n = max(len(a.items or ()), len(b.items or ()))
        pad = lambda v: list(v.items or ()) + [None] * (n - len(v.items or ()))  # noqa: E731
        return TensorArray(tuple(add_values(x, y) for x, y in zip(pad(a), pad(b), strict=True)))
    if a.capacity < b.capacity:
        a, b = b, a
    b = gradient_like(b, a)
    if isinstance(a.buffer, LoDArray):
        total = a.buffer.with_data(a.buffer.data + b.buffer.data)
    else:
        total = jax.tree_util.tree_map(jnp.add, a.buffer, b.buffer)
    return TensorArray(None, total, jnp.maximum(jnp.asarray(a.length), jnp.asarray(b.length)))
