"""The items of a message (see ``wire``): names, each with or without a value.

Trainers and servers exchange the same few forms in every step, so tensors without LoD and rows are read in a few steps.
Where an item is not exactly one of these, all are read with care, by ``Cursor``, which says what is wrong.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from fluidjax.files.cursor import Cursor, View
from fluidjax.files.errors import FileFormatError, bad_file
from fluidjax.files.host_ops import from_file_value, to_file_value
from fluidjax.files.tensor import decode, encode, numbers, read_rows, tensor_desc, tensor_head
from lowering.values import SelectedRows

_NAME, _DENSE, _ROWS = range(3)
_LONGEST_NAME = 4096
_KEPT = 1024  # names, and forms of tensors
_LABEL = "a message"

ALIGNED = 16  # bytes, as are those of Python

_LENGTH = struct.Struct("<H")
_DENSE_HEAD = struct.Struct("<IQIi")  # version, levels of LoD | version, bytes of the TensorDesc
_ROWS_HEAD = struct.Struct("<IQ")  # version, number of rows
_ROWS_MIDDLE = struct.Struct("<qIi")  # height | version, bytes of the TensorDesc
_HEIGHT = struct.Struct("<q")
_PLAIN = struct.pack("<IQ", 0, 0)  # the version, and no level of LoD
_NO_VALUE = bytes([_NAME])
_ZEROS = [bytes(count) for count in range(ALIGNED)]
_INT64, _UINT64 = np.dtype("<i8"), np.dtype("<u8")


def written(name: str, value: Any, begin: int) -> tuple[list[Any], int]:
    """The parts of an item that begins at a place of the message, and where it ends; numbers are not copied.

    Parts are bytes, or arrays whose memory holds what is to be sent.
    """
    head = _named(name)
    if value is None:
        return [head, _NO_VALUE], begin + len(head) + 1
    if isinstance(value, SelectedRows):
        form, parts = _ROWS, _of_rows(value)
    elif type(value) is np.ndarray:
        form, parts = _DENSE, [_PLAIN, tensor_head(value.shape, value.dtype), _memory(value)]
    else:
        form, parts = _DENSE, encode(to_file_value(value))
    last = parts[-1].nbytes
    place = begin + len(head) + 2 + _size(parts) - last
    room = -place % ALIGNED
    return [head, bytes((form, room)), _ZEROS[room], *parts], place + room + last


def _of_rows(value: SelectedRows) -> list[Any]:
    rows, values = np.ascontiguousarray(value.rows, _INT64), np.asarray(value.values)
    tensor = tensor_head(values.shape, values.dtype)
    return [_ROWS_HEAD.pack(0, rows.size), rows, _HEIGHT.pack(value.height), tensor, _memory(values)]


def _memory(array: np.ndarray) -> Any:
    """What holds an array's numbers as they are sent: itself, where it can be."""
    return array if array.flags.c_contiguous and _as_sent(array.dtype) else numbers(array)


@lru_cache(_KEPT)
def _as_sent(dtype: np.dtype) -> bool:
    return dtype.isbuiltin == 1 and dtype.newbyteorder("<") == dtype  # others show nobody their memory


def _size(parts: Iterable[Any]) -> int:
    """The bytes of parts."""
    return sum(len(part) if type(part) is bytes else part.nbytes for part in parts)


@lru_cache(_KEPT)
def _named(name: str) -> bytes:
    text = name.encode()
    return _LENGTH.pack(len(text)) + text


def read(data: bytes, begin: int, end: int, count: int) -> list[tuple[str, Any]]:
    """``count`` items, from ``begin`` to ``end``; arrays lie where their numbers are.

    Raises FileFormatError or UnicodeDecodeError.
    """
    try:
        return _quick(data, begin, end, count)
    except (struct.error, LookupError, TypeError, ValueError, OverflowError):  # what is no usual item, or none at all
        return _careful(View(data, _LABEL, begin, end), count)


def _careful(cursor: Cursor, count: int) -> list[tuple[str, Any]]:
    cursor.need(count * 3, f"{count} items")
    items = [_item(cursor) for _ in range(count)]
    cursor.end()
    return items


def _item(cursor: Cursor) -> tuple[str, Any]:
    length = cursor.number("H", "the length of a name")
    if length > _LONGEST_NAME:
        raise bad_file("a name is too long", f"at most {_LONGEST_NAME} bytes", str(length))
    name = cursor.take(length, "a name").decode()
    form = cursor.number("B", "the form of a value")
    if form == _NAME:
        return name, None
    if form not in (_DENSE, _ROWS):
        raise bad_file("a value of unknown form", "a tensor or rows", str(form))
    cursor.skip(cursor.number("B", "the zeros before a value"), "the zeros before a value")
    if form == _DENSE:
        return name, from_file_value(decode(cursor))
    rows, values, height = read_rows(cursor)
    return name, SelectedRows(rows, values, height)


# ---- usual items; ValueError for others, and what Python and NumPy raise beyond the end of the data ----


def _quick(data: bytes, place: int, end: int, count: int) -> list[tuple[str, Any]]:
    items: list[tuple[str, Any]] = []
    for _ in range(count):
        start = place + _LENGTH.size
        place = start + _LENGTH.unpack_from(data, place)[0]
        name, form = data[start:place].decode(), data[place]
        if place - start > _LONGEST_NAME:
            raise ValueError
        if form == _NAME:
            items.append((name, None))
            place += 1
        else:
            value, place = _QUICK[form](data, place + 2 + data[place + 1])
            items.append((name, value))
    if place != end:
        raise ValueError
    return items


def _dense(data: bytes, place: int) -> tuple[np.ndarray, int]:
    version, levels, of_tensor, size = _DENSE_HEAD.unpack_from(data, place)
    if version or levels or of_tensor:
        raise ValueError
    return _tensor(data, place + _DENSE_HEAD.size, size)


def _rows(data: bytes, place: int) -> tuple[SelectedRows, int]:
    version, count = _ROWS_HEAD.unpack_from(data, place)
    place += _ROWS_HEAD.size
    rows = _array(data, place, _INT64, (count,))
    place += rows.nbytes
    height, of_tensor, size = _ROWS_MIDDLE.unpack_from(data, place)
    # As unsigned numbers, those below zero are above every height.
    outside = height < 0 or (count and np.maximum.reduce(rows.view(_UINT64)) >= height)
    values, place = _tensor(data, place + _ROWS_MIDDLE.size, size)
    if version or of_tensor or outside or values.shape[:1] != (count,):
        raise ValueError
    return SelectedRows(rows, values, height), place


def _tensor(data: bytes, place: int, size: int) -> tuple[np.ndarray, int]:
    numbers = place + size
    if size < 0 or numbers > len(data):
        raise ValueError
    dtype, shape, count = _form(data[place:numbers])
    return _array(data, numbers, dtype, shape), numbers + count


@lru_cache(_KEPT)
def _form(desc: bytes) -> tuple[np.dtype, tuple[int, ...], int]:
    """The dtype, shape and bytes of a tensor."""
    try:
        dtype, shape, _ = tensor_desc(desc, _LABEL)
    except FileFormatError as error:
        raise ValueError from error
    return dtype.newbyteorder("<"), shape, math.prod(shape) * dtype.itemsize


def _array(data: bytes, place: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    found = np.ndarray(shape, dtype, data, place)
    return found if found.flags.aligned else found.copy()


_QUICK: dict[int, Callable[[bytes, int], tuple[Any, int]]] = {_DENSE: _dense, _ROWS: _rows}
