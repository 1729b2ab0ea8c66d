"""Rows that trainers send, padded to a bucket of rows to bound the number of compilations, where blocks take them.

XLA would copy what arrived, as it is not aligned, in a thread of its own, and compute there, too. So rows are copied to
memory that stays, on which it computes in place, in the thread that calls it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fluidjax.execution.rooms.buckets import bucket
from fluidjax.execution.steps.in_place import MOST, room
from lowering.values import SelectedRows


class Room:
    """Memory for the rows of one gradient, of one number with padding, and the device's arrays on it."""

    def __init__(self, size: int, value: SelectedRows) -> None:
        forms = ((size,), value.rows.dtype), ((size, *value.values.shape[1:]), value.values.dtype), ((), np.int32)
        found = [room(np.empty(*form)) for form in forms]
        made = [each for each in found if each is not None]
        self.exists = len(made) == len(found)
        self._memory, self._arrays = [memory for memory, _ in made], [array for _, array in made]

    def take(self, value: SelectedRows) -> SelectedRows:
        """Copy rows; what is left is padding."""
        rows, values, number = self._memory
        count = len(value.rows)
        rows[:count], rows[count:] = value.rows, value.rows[0] if count else 0
        values[:count], values[count:] = value.values, 0
        number[...] = count
        return SelectedRows(self._arrays[0], self._arrays[1], value.height, self._arrays[2])


class Rooms:
    """Where the rows of all gradients of some blocks stand, by name and number."""

    def __init__(self) -> None:
        self._rooms: dict[Any, Room] = {}

    def taken(self, name: str, value: Any) -> Any:
        """What blocks are given for a value: SelectedRows with padding; others unchanged.

        It is valid until the next call for this name; what computes on it has to be done by then.
        """
        if not isinstance(value, SelectedRows):
            return value
        if value.values.nbytes > MOST:
            return padded(value)
        size = bucket(len(value.rows))
        form = name, size, value.rows.dtype, value.values.dtype, value.values.shape[1:]
        found = self._rooms.get(form)
        if found is None:
            found = self._rooms[form] = Room(size, value)
        return found.take(value) if found.exists else padded(value)


def padded(value: SelectedRows) -> SelectedRows:
    """SelectedRows with padding, in memory of their own."""
    count = len(value.rows)
    room = bucket(count) - count
    if not room:
        return replace(value, nrows=np.int32(count))
    first = value.rows[0] if count else 0
    rows = np.concatenate([np.asarray(value.rows), np.full(room, first, value.rows.dtype)])
    values = np.concatenate([value.values, np.zeros((room, *value.values.shape[1:]), value.values.dtype)])
    return replace(value, rows=rows, values=values, nrows=np.int32(count))
