"""Numeric arrays in MATLAB files (level 5), read defensively: SciPy's reader can crash on a malicious file."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from fluidjax.files.cursor import Cursor
from fluidjax.paddle.dataset import archives

_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}


def load(path: str) -> dict[str, np.ndarray]:
    """The numeric arrays in a file, by name. Raises FileFormatError if it is corrupt or contains anything else."""
    with archives.sound(path), open(path, "rb") as file:
        data = file.read()
        order = {b"IM": "<", b"MI": ">"}[data[126:_HEADER]]
        return dict(_variable(*element, path, order) for element in _elements(data[_HEADER:], path, order))


def _elements(data: bytes, path: str, order: str) -> list[tuple[int, bytes]]:
    """The (type, content) elements; the size of one with up to four bytes is in the upper half of its type."""
    cursor, found = Cursor(data, path), []
    while cursor.left:
        (kind,) = struct.unpack(order + "I", cursor.take(4, "a type"))
        if size := kind >> 16:
            found.append((kind & 0xFFFF, cursor.take(4, "a small element")[:size]))
            continue
        (size,) = struct.unpack(order + "I", cursor.take(4, "a size"))
        found.append((kind, cursor.take(size, "an element")))
        if kind != _COMPRESSED:
            cursor.skip(min(-size % 8, cursor.left), "padding")
    return found


def _variable(kind: int, content: bytes, path: str, order: str) -> tuple[str, np.ndarray]:
    if kind == _COMPRESSED:
        ((kind, content),) = _elements(_inflated(content, path), path, order)
    if kind != _MATRIX:
        raise ValueError(f"an element of type {kind}, no matrix")
    _, dims, name, numbers = _elements(content, path, order)
    array = np.frombuffer(numbers[1], order + _NUMBERS[numbers[0]])
    return name[1].decode(), array.reshape(np.frombuffer(dims[1], order + "i4"), order="F")


def _inflated(content: bytes, path: str) -> bytes:
    data = zlib.decompressobj().decompress(content, room := archives.allowance(path))
    if len(data) >= room:
        raise archives.too_much(path, len(data))
    return data
