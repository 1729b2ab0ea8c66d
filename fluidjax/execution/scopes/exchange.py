"""Conversions between what a Scope holds (LoDTensor, SelectedRows, LoDTensorArray) and the lowering's values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxlib.xla_client import ArrayImpl

from fluidjax.base.containers import LoDTensorArray, SelectedRows
from fluidjax.base.values import LoDTensor
from fluidjax.execution.rooms.buckets import bucket, pad_offsets, pad_rows
from fluidjax.execution.scopes.fetched import fetched
from lowering import values as low
from lowering.errors import UninitializedError


def usual_room(rows: int, lod: Any) -> tuple[int, ...]:
    """The buckets of a value's rows and of its inner levels' counts."""
    return (bucket(rows), *(bucket(len(level) - 1) for level in lod[1:]))


def lod_array(
    data: Any, lod: Any, *, room: tuple[int, ...] | None, longest: tuple[int, ...] = (), tight: bool = False
) -> low.LoDArray:
    """The LoDArray of ``data`` with LoD offsets ``lod``.

    Rows are padded to ``room[0]`` and the counts of inner levels to the other elements, with traced counts. Without
    ``room`` it has no padding, for ops that cannot take any.
    """
    levels = [np.asarray(level, np.int32) for level in lod]
    if room is None:
        return low.LoDArray(data, tuple(levels), longest=longest, tight=tight)
    inner = map(pad_offsets, levels[1:], room[1:])
    rows = np.asarray(data.shape[0], np.int32)
    return low.LoDArray(pad_rows(np.asarray(data), room[0]), (*levels[:1], *inner), rows, None, longest, tight)


def to_lowering(holder: Any, *, exact: bool = True) -> Any:
    """The lowering's value for what a scope variable holds; None when it holds nothing yet."""
    if isinstance(holder, LoDTensor):
        value = holder._value
        if value is None or not holder._lod:
            return value
        return lod_array(value, holder._lod, room=None if exact else usual_room(value.shape[0], holder._lod))
    if isinstance(holder, SelectedRows):
        values = holder.get_tensor()._value
        if values is None:
            return None
        return low.SelectedRows(np.asarray(holder._rows, np.int64), values, holder.height())
    if isinstance(holder, LoDTensorArray):
        return low.TensorArray(tuple(to_lowering(item, exact=exact) for item in holder))
    return holder


def trim(value: Any) -> tuple[np.ndarray, list[list[int]]]:
    """(valid rows, LoD as offsets) of an array or LoDArray, on the host."""
    if not isinstance(value, low.LoDArray):
        return np.asarray(value), []
    data, levels = low.valid_rows(value)
    return data, [level.tolist() for level in levels]


def _numbers(value: Any) -> Any:
    """Counts as numbers, the valid part of wide values, and anything else unchanged."""
    if isinstance(value, low.RowCounts):
        return value.known()  # on the host, where int64 is at hand
    return low.taken(value) if isinstance(value, low.Wide) else value


def to_holder(value: Any) -> Any:
    """What a scope variable (or a fetch with ``return_numpy=False``) holds for a value of the lowering."""
    value = _numbers(value)
    if isinstance(value, low.SelectedRows):
        return _selected_rows(value)
    if isinstance(value, low.TensorArray):
        return LoDTensorArray(to_holder(item) for item in array_items(value))
    if isinstance(value, (low.RankTable, low.StepScopes)):
        return value
    tensor = LoDTensor()
    if isinstance(value, low.LoDArray):
        data, lod = trim(value)
        tensor._set_value(data, lod)
    elif isinstance(value, low.Form):
        tensor._set_dims(value.shape)
    else:
        tensor._set_value(value)
    return tensor


def _selected_rows(value: low.SelectedRows) -> SelectedRows:
    """Rows without padding entries; values drawn before their row numbers are known are kept."""
    valid = slice(None if value.nrows is None else int(value.nrows))
    holder = SelectedRows()
    holder._rows = np.asarray(value.rows)[valid]
    holder.set_height(value.height)
    if isinstance(value.values, low.Form):
        holder.get_tensor()._set_dims(value.values.shape)
    else:
        holder.get_tensor()._set_value(np.asarray(value.values)[valid])
    return holder


def array_items(array: low.TensorArray) -> list[Any]:
    """The elements of a tensor array, one value each; those of a stacked one on the host."""
    if not array.stacked:
        return list(array.items or ())
    length = array.capacity if array.length is None else int(array.length)
    whole = jax.tree_util.tree_map(np.asarray, array.buffer)
    return [jax.tree_util.tree_map(lambda leaf, i=i: leaf[i], whole) for i in range(length)]


def to_numpy(value: Any, name: str) -> Any:
    """A copy of a fetched value as NumPy (a list for arrays); RuntimeError when it has a LoD, or no elements."""
    if type(value) is ArrayImpl:
        return fetched(value)
    value = _numbers(value)
    if isinstance(value, low.TensorArray):
        return [to_numpy(item, name) for item in array_items(value)]
    if isinstance(value, low.SelectedRows):
        return _selected_rows(value)
    if isinstance(value, low.Form):
        raise UninitializedError.shape_alone("a fetch", name, value.shape)
    if isinstance(value, low.LoDArray) and value.lod:
        raise RuntimeError(
            f"fetched variable {name!r} holds LoD information: expected a tensor without LoD to turn into a NumPy"
            " array, received one of ragged sequences. Pass return_numpy=False to Executor.run and use the LoDTensor,"
            " or numpy.array(tensor) for its rows alone"
        )
    if isinstance(value, low.LoDArray):
        return fetched(trim(value)[0])
    if isinstance(value, (low.RankTable, low.StepScopes)):
        return value
    return fetched(value)


def results(names: Sequence[str], values: Sequence[Any], return_numpy: bool) -> list[Any]:
    """What the user gets for the values that a run left under these names."""
    if return_numpy:
        named = zip(names, values, strict=True)
        return [fetched(value) if type(value) is ArrayImpl else to_numpy(value, name) for name, value in named]
    holders = [to_holder(value) for value in values]
    return [list(each) if isinstance(each, LoDTensorArray) else each for each in holders]
