"""Tensor arrays: element by element while indices are known, otherwise stacked on a leading axis.

Invariants: the elements of a stacked array have one structure, each is padded to it, and the first ``length`` of
them are written. In a gradient array, an element flagged as ``taken`` counts as zero: the gradient of its write has
used it, and what is added afterwards belongs to the element's earlier value.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.errors import NeedsConcrete
from lowering.loops.carried import (
    array_template,
    element,
    element_template,
    fit,
    join,
    known,
    known_int,
    scalar,
    stack,
    stacked_template,
    with_rows_of,
    zero_gradient,
    zeros,
)
from lowering.structure import abstract, same_structure
from lowering.values import LoDArray, SelectedRows, TensorArray, Wide


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
    held = item_of(array)
    if same_structure(held, item):
        return array
    return fit(array, array_template(join(held, item), array.capacity, array.taken is not None), backward=backward)


def item_of(array: TensorArray) -> Any:
    """The abstract element of a stacked array."""
    return element_template(array.buffer)


def alike(arrays: Sequence[TensorArray]) -> list[TensorArray]:
    """The arrays stacked, with capacity for equally many elements of one structure; missing elements are zeros."""
    held = [[item_of(a)] if a.stacked else [v for v in a.items or () if v is not None] for a in arrays]
    item = functools.reduce(join, (abstract(v) for values in held for v in values))
    template = array_template(item, max(a.capacity for a in arrays))
    return [fit(a, template, backward=True) for a in arrays]


def put(
    array: TensorArray | None, i: Any, value: Any, capacity: int, *, add: bool = False, once: bool = False
) -> TensorArray:
    """``array[i] = value``, or ``array[i] += value`` when ``add``; the array grows as far as a known i.

    Args:
        array: the variable's value; None before its first write.
        i: int64 of shape [1].
        value: the element.
        capacity: the number of elements of a stacked array that must be created here.
        add: the write is the gradient of a read, so several reads of an element are summed.
        once: a sum has this term only: the element of a stacked array is zero before.
    """
    index = known_int(i)
    if index is not None and (array is None or not array.stacked):
        return _put_item(array or TensorArray(), index, value, add)
    array = as_stacked(array, value, capacity, backward=add)
    value = fit(value, item_of(array), backward=add)
    where = scalar(i) if index is None else jnp.int32(index)
    taken = array.taken
    if add:
        # Only the write below uses this read, so it cannot be fused into the write of another buffer.
        value = value if once else add_values(_untaken(array, plain_element(array.buffer, where), where), value)
        taken = None if taken is None else _flagged(taken, where, False)
    buffer = jax.tree_util.tree_map(
        lambda leaf, new: jax.lax.dynamic_update_index_in_dim(leaf, jnp.asarray(new, leaf.dtype), where, 0),
        array.buffer,
        value,
    )
    return TensorArray(None, buffer, jnp.maximum(jnp.asarray(array.length, jnp.int32), where + 1), taken)


def _put_item(array: TensorArray, index: int, value: Any, add: bool) -> TensorArray:
    items = list(array.items or ())
    items += [None] * (index + 1 - len(items))
    flags = _flags(array, len(items))
    items[index] = add_values(None if flags[index] else items[index], value) if add else value
    flags[index] = False
    return TensorArray(tuple(items), taken=flags if flags.any() else None)


def _flags(array: TensorArray, size: int) -> np.ndarray:
    """The ``taken`` flags of an array held element by element, as a fresh host array."""
    flags = np.zeros(size, bool)
    if array.taken is not None:
        host = known(array.taken)
        if host is None:
            raise NeedsConcrete("which elements of a gradient array were used")
        flags[: host.shape[0]] = host
    return flags


def _untaken(array: TensorArray, value: Any, where: Any) -> Any:
    """An element of a gradient array: zero if the gradient of its write has used it."""
    host = known(array.taken)
    if array.taken is None or (host is not None and not host.any()):
        return value
    used = jnp.asarray(array.taken)[where]
    if isinstance(value, LoDArray):
        return value.with_data(jnp.where(used, jnp.zeros((), value.dtype), value.data))
    return jax.tree_util.tree_map(lambda v: jnp.where(used, jnp.zeros((), v.dtype), v), value)


def element_at(buffer: Any, where: Any) -> Any:
    """Element ``where`` of a stacked buffer.

    The branch, which is always taken, prevents XLA:CPU from fusing the read into its users: a read fused into
    a write of another buffer of the loop makes it copy whole buffers in each step.
    """

    def read(_: None) -> Any:
        return jax.tree_util.tree_map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, where, 0, keepdims=False), buffer)

    return jax.lax.cond(where >= 0, read, lambda _: zeros(element_template(buffer)), None)


def plain_element(buffer: Any, where: Any) -> Any:
    """Element ``where`` of a stacked buffer that is a loop invariant, or one for products: users may fuse the read."""
    return jax.tree_util.tree_map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, where, 0, keepdims=False), buffer)


def get_plain(array: TensorArray, where: Any) -> Any:
    """``array[where]``, for reads that may be fused into their users."""
    array = array if array.stacked else _stacked_items(array)
    return plain_element(array.buffer, where)


def get(array: TensorArray, i: Any) -> Any:
    """``array[i]``; None if nothing has been written there."""
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


def take(array: TensorArray, i: Any, *, flag: bool = True, fixed: bool = False) -> tuple[Any, TensorArray]:
    """(the gradient in element i, or None if there is none; the array with that element flagged as used).

    Args:
        flag: False if nothing is known to add to the element or take it again.
        fixed: nothing changes the array in the loop.
    """
    index = known_int(i)
    if not flag and array.stacked and array.taken is None:
        where = scalar(i) if index is None else jnp.int32(index)
        return (plain_element if fixed else element_at)(array.buffer, where), array
    if index is None and not array.stacked:
        array = _stacked_items(array)
    if index is not None and not array.stacked:
        items = array.items or ()
        if index >= len(items):
            return None, array
        flags = _flags(array, len(items))
        value = None if flags[index] else items[index]
        flags[index] = True
        return value, replace(array, taken=flags)
    if index is not None and index >= array.capacity:
        return None, array
    where = scalar(i) if index is None else jnp.int32(index)
    value = _untaken(array, element_at(array.buffer, where), where)
    taken = np.zeros(array.capacity, bool) if array.taken is None else array.taken
    return value, replace(array, taken=_flagged(taken, where, True))


def _flagged(taken: Any, where: Any, flag: bool) -> Any:
    """The flags with that of element ``where`` set; on the host as long as they are known there."""
    host, index = known(taken), known_int(where)
    if host is not None and not host.any() and not flag:
        return host
    if host is None or index is None:
        return jnp.asarray(taken).at[where].set(flag)
    host = host.copy()
    host[index] = flag
    return host


def covers(gradient: Any, forward: TensorArray) -> bool:
    """Whether a stacked gradient has an element, of its own rows, for each that ``forward`` holds one by one."""
    return (
        isinstance(gradient, TensorArray)
        and gradient.stacked
        and not forward.stacked
        and not isinstance(gradient.buffer, LoDArray)
        and gradient.capacity >= len(forward.items or ())
    )


def gradient_like(
    gradient: TensorArray | None, forward: TensorArray, *, flags: bool = True, whole: bool = False
) -> TensorArray:
    """The gradient array of ``forward`` with its elements, capacity and row counts; zeros for unwritten elements.

    It ends after the last element that has a gradient, as an array ends after the last one written.

    Args:
        flags: whether it needs flags for elements that were taken.
        whole: whether elements past that end must be explicit zeros, for an array held element by element.
    """
    if not forward.stacked:
        return _item_gradients(gradient, forward, whole)
    taken = np.zeros(forward.capacity, bool) if flags else None
    blank = replace(zero_gradient(forward), length=jnp.int32(0), taken=taken)
    if gradient is None or (not gradient.stacked and not gradient.items):
        return blank
    held = item_of(blank)
    if gradient.stacked:
        flags = flags or gradient.taken is not None
        template = array_template(held, forward.capacity, flags)
        fitted = fit(_narrowed(_cut(gradient, forward.capacity), held), template, backward=True)
    else:
        fitted = stack((gradient.items or ())[: forward.capacity], forward.capacity, held, backward=True)
        if gradient.taken is not None:
            fitted = replace(fitted, taken=_padded_flags(gradient.taken, forward.capacity))
    if isinstance(blank.buffer, LoDArray):
        # Counts and offsets are those of the forward array: an element without a gradient still has its rows.
        fitted = replace(fitted, buffer=blank.buffer.with_data(fitted.buffer.data))
    return fitted if fitted.taken is not None else replace(fitted, taken=blank.taken)


def _narrowed(gradient: TensorArray, element: Any) -> TensorArray:
    """A gradient array without room that its elements cannot use: they have the rows of the forward array's."""
    buffer = gradient.buffer
    if not (isinstance(buffer, LoDArray) and isinstance(element, LoDArray)) or buffer.shape[1] <= element.capacity:
        return gradient
    return replace(gradient, buffer=buffer.with_data(buffer.data[:, : element.capacity]))


def untouched(array: TensorArray | None) -> bool:
    """Whether no element of a gradient array was taken yet, as far as this is known."""
    if array is None or array.taken is None:
        return True
    host = known(array.taken)
    return host is not None and not host.any()


def _padded_flags(taken: Any, capacity: int) -> Any:
    taken = jnp.asarray(taken)[:capacity]
    return jnp.concatenate([taken, jnp.zeros(capacity - taken.shape[0], bool)])


def _item_gradients(gradient: TensorArray | None, forward: TensorArray, whole: bool) -> TensorArray:
    """The gradients of an array held element by element; all of them when ``whole``."""
    held = forward.items or ()
    if gradient is not None and gradient.stacked:
        gradient = _unstacked(gradient, held)
    given = (gradient.items or ())[: len(held)] if gradient is not None else ()
    held = held if whole else held[: len(given)]
    items = tuple(_zero_item(v) if g is None else g for v, g in zip_longest(held, given))
    return TensorArray(items, taken=None if gradient is None else gradient.taken)


def _zero_item(value: Any) -> Any:
    return None if value is None else zero_gradient(value)


def _unstacked(gradient: TensorArray, forward: Sequence[Any]) -> TensorArray:
    """The elements of a stacked gradient one by one, up to its length if known, with the rows of ``forward``."""
    length = known_int(gradient.length)
    count = min(len(forward), gradient.capacity if length is None else length)
    # Stacked, all have room for the rows of the longest.
    items = tuple(with_rows_of(forward[k], element(gradient.buffer, k)) for k in range(count))
    return TensorArray(items, taken=None if gradient.taken is None else gradient.taken[:count])


def _cut(array: TensorArray, capacity: int) -> TensorArray:
    if array.capacity <= capacity:
        return array
    flags = None if array.taken is None else array.taken[:capacity]
    return replace(array, buffer=jax.tree_util.tree_map(lambda leaf: leaf[:capacity], array.buffer), taken=flags)


def add_values(a: Any, b: Any) -> Any:
    """The sum of two gradients of one variable; None counts as zero. Sparse ones become dense."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, TensorArray) or isinstance(b, TensorArray):
        return add_arrays(a, b)
    a, b = (v.to_dense() if isinstance(v, SelectedRows) else v for v in (a, b))
    if isinstance(a, Wide) and isinstance(b, Wide) and a.axes == b.axes:
        return a.with_data(a.data + b.data)
    if isinstance(a, LoDArray) and isinstance(b, LoDArray) and a.capacity == b.capacity:
        return a.with_data(a.data + b.data)
    if isinstance(a, LoDArray):
        other = b.data if isinstance(b, LoDArray) else b
        return a.with_data(a.data + other)
    if isinstance(b, LoDArray):
        return b.with_data(a + b.data)
    return a + b


def cleared(array: TensorArray) -> TensorArray:
    """A gradient array without flags: zeros (or nothing) in place of elements that were taken."""
    if untouched(array):
        return replace(array, taken=None)
    if not array.stacked:
        flags = _flags(array, len(array.items or ()))
        return TensorArray(tuple(None if used else v for v, used in zip(array.items or (), flags, strict=True)))
    stacked_flags = jnp.asarray(array.taken)

    def clear(leaf: Any) -> Any:
        return jnp.where(stacked_flags.reshape(-1, *(1,) * (leaf.ndim - 1)), jnp.zeros((), leaf.dtype), leaf)

    buffer = array.buffer
    cleared = buffer.with_data(clear(buffer.data)) if isinstance(buffer, LoDArray) else clear(buffer)
    return replace(array, buffer=cleared, taken=None)


def add_arrays(a: TensorArray, b: TensorArray) -> TensorArray:
    """Element by element sum of two gradient arrays; the shorter one counts as zero past its end.

    Elements that were taken count as zero.
    """
    a, b = cleared(a), cleared(b)
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
