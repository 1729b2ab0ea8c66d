"""Paddle's tensor streams, byte for byte.

    LoDTensor     uint32 version=0 | uint64 levels | per level: uint64 bytes, uint64 offsets[] | Tensor
    SelectedRows  uint32 version=0 | uint64 count | int64 rows[] | int64 height | Tensor
    Tensor        uint32 version=0 | int32 size | TensorDesc (protobuf) | the numbers, row-major

All little-endian. A combined file is LoDTensor streams one after another, without names.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from google.protobuf.message import DecodeError

from fluidjax.files.cursor import Cursor
from fluidjax.files.errors import bad_file
from fluidjax.proto import framework_pb2 as pb
from lowering import dtypes

MAX_LEVELS = 64
MAX_DESC_BYTES = 1 << 16
MAX_EXTENT = 1 << 48  # of the dims' product, dims of zero counted as one
_KEPT = 256  # heads of tensors: trainers and servers send the same ones in each step


@dataclass
class DenseValue:
    """A dense tensor: ``array`` and its LoD as offsets, outermost level first (empty: none)."""

    array: np.ndarray
    lod: list[list[int]] = field(default_factory=list)


@dataclass
class RowsValue:
    """A sparse matrix [height, ...]: ``array[i]`` belongs to row ``rows[i]``."""

    array: np.ndarray
    rows: Sequence[int] | np.ndarray
    height: int


Value = DenseValue | RowsValue


# ---- writing ----


def encode(value: Value) -> list[bytes | memoryview]:
    """The stream of a value, as chunks to be written one after another (the numbers are not copied)."""
    if isinstance(value, RowsValue):
        head = struct.pack("<IQ", 0, len(value.rows)) + np.asarray(value.rows, "<i8").tobytes()
        return [head + struct.pack("<q", value.height), *encode_tensor(value.array)]
    head = struct.pack("<IQ", 0, len(value.lod))
    for level in value.lod:
        offsets = np.asarray(level, "<u8").tobytes()
        head += struct.pack("<Q", len(offsets)) + offsets
    return [head, *encode_tensor(value.array)]


def encode_parts(parts: Iterable[np.ndarray], shape: Sequence[int], dtype: np.dtype) -> list[bytes | memoryview]:
    """The stream of a tensor without LoD whose elements come in parts, one after another."""
    head = struct.pack("<IQ", 0, 0)
    return [head, tensor_head(tuple(shape), dtype), *(numbers(np.asarray(part, dtype)) for part in parts)]


def encode_tensor(array: np.ndarray) -> list[bytes | memoryview]:
    """The stream of a Tensor, as chunks."""
    array = np.asarray(array)
    return [tensor_head(array.shape, array.dtype), numbers(array)]


@lru_cache(_KEPT)
def tensor_head(shape: tuple[int, ...], dtype: np.dtype) -> bytes:
    """What precedes the numbers in the stream of a Tensor."""
    message = pb.VarType.TensorDesc(dims=shape)
    message.data_type = pb.VarType.Type.ValueType(dtypes.from_numpy(dtype))
    desc = message.SerializeToString()
    return struct.pack("<Ii", 0, len(desc)) + desc


def numbers(array: np.ndarray) -> memoryview:
    """The bytes of an array's elements, little-endian, row-major; they are not copied where they lie so."""
    flat = np.ascontiguousarray(array, _little(array.dtype)).reshape(-1)
    return flat.view(np.uint8).data


@lru_cache(_KEPT)
def _little(dtype: np.dtype) -> np.dtype:
    return dtype.newbyteorder("<")


# ---- reading ----


def decode(cursor: Cursor) -> DenseValue:
    """Read one LoDTensor stream; FileFormatError (and nothing allocated) where a length or an offset is wrong."""
    _version(cursor, "LoDTensor")
    lod = _decode_lod(cursor)
    array = decode_tensor(cursor)
    _check_lod(cursor, lod, array.shape)
    return DenseValue(array, lod)


def decode_rows(cursor: Cursor) -> RowsValue:
    """Read one SelectedRows stream."""
    rows, array, height = read_rows(cursor)
    return RowsValue(array, rows.tolist(), height)


def read_rows(cursor: Cursor) -> tuple[np.ndarray, np.ndarray, int]:
    """(row numbers, values, height) in one SelectedRows stream."""
    _version(cursor, "SelectedRows")
    count = cursor.number("Q", "the number of rows")
    rows = cursor.array(np.dtype("<i8"), count, f"{count} row numbers")
    height = cursor.number("q", "the height")
    array = decode_tensor(cursor)
    outside = rows[(rows < 0) | (rows >= height)]
    if height < 0 or outside.size:
        received = f"row {outside[0]}" if outside.size else f"height {height}"
        raise bad_file(f"{cursor.label}: a row lies outside the matrix", f"0 <= row < {height}", received)
    if len(array.shape) == 0 or array.shape[0] < count:
        raise bad_file(
            f"{cursor.label}: there are more rows than values", f"{count} rows of values", f"values {array.shape}"
        )
    return rows, array[:count], height  # servers' tables have room for rows to come


def decode_all(cursor: Cursor, count: int) -> list[DenseValue]:
    """Read ``count`` streams that fill the file to its end (a combined file)."""
    values = []
    for index in range(count):
        if not cursor.left:
            raise bad_file(
                f"{cursor.label}: the file ends after {index} of {count} variables",
                f"{count} variables",
                str(index),
                "load it with the list of variables it was saved with; or save it again",
            )
        values.append(decode(cursor))
    cursor.end()
    return values


def _version(cursor: Cursor, what: str) -> None:
    version = cursor.number("I", f"the version of the {what}")
    if version != 0:
        raise bad_file(
            f"{cursor.label}: this is not a {what} stream that can be read",
            "version 0",
            f"version {version}",
            "name a file that Paddle's save functions or ours wrote",
        )


def _decode_lod(cursor: Cursor) -> list[list[int]]:
    levels = cursor.number("Q", "the number of LoD levels")
    if levels > MAX_LEVELS:
        raise bad_file(f"{cursor.label}: too many LoD levels", f"at most {MAX_LEVELS}", str(levels))
    lod = []
    for level in range(levels):
        size = cursor.number("Q", f"the size of LoD level {level}")
        if size % 8:
            raise bad_file(f"{cursor.label}: LoD level {level} is cut", "a multiple of 8 bytes", f"{size} bytes")
        lod.append(cursor.array(np.dtype("<u8"), size // 8, f"LoD level {level}").tolist())
    return lod


def decode_tensor(cursor: Cursor) -> np.ndarray:
    """Read one Tensor stream."""
    _version(cursor, "Tensor")
    size = cursor.number("i", "the size of the TensorDesc")
    if not 0 <= size <= MAX_DESC_BYTES:
        raise bad_file(f"{cursor.label}: the TensorDesc's size is absurd", f"0 to {MAX_DESC_BYTES}", str(size))
    dtype, shape, what = tensor_desc(cursor.take(size, "the TensorDesc"), cursor.label)
    array = cursor.array(_little(dtype), math.prod(shape), what)
    return array.astype(dtype, copy=False).reshape(shape)


@lru_cache(_KEPT)
def tensor_desc(data: bytes, label: str) -> tuple[np.dtype, tuple[int, ...], str]:
    """The dtype and shape of a tensor, and what its numbers are called in messages."""
    try:
        desc = pb.VarType.TensorDesc.FromString(data)
        dtype = dtypes.to_numpy(desc.data_type)
    except (DecodeError, ValueError) as error:
        raise bad_file(f"{label}: the TensorDesc cannot be read", "a TensorDesc message", str(error)) from error
    if any(dim < 0 for dim in desc.dims) or len(desc.dims) > 32:
        raise bad_file(f"{label}: the shape cannot be", "up to 32 dims of zero or more", str(list(desc.dims)[:40]))
    if math.prod(max(dim, 1) for dim in desc.dims) > MAX_EXTENT:
        raise bad_file(f"{label}: the dims multiply to too much", f"at most {MAX_EXTENT}", str(list(desc.dims)))
    shape = tuple(desc.dims)
    return dtype, shape, f"{math.prod(shape)} elements of {dtype} for shape {shape}"


def _check_lod(cursor: Cursor, lod: Sequence[Sequence[int]], shape: Sequence[int]) -> None:
    problem = lod_problem(lod, shape[0] if shape else 0)
    if problem:
        raise bad_file(f"{cursor.label}: the LoD is wrong", *problem)


def lod_problem(lod: Sequence[Sequence[int]], rows: int) -> tuple[str, str] | None:
    """What is wrong with a LoD over ``rows`` rows, as (expected, received); None when it is sound.

    Each level starts at 0, never falls, and ends at the number of sequences of the next level, the last at ``rows``.
    """
    if not lod:
        return None
    ends = [len(level) - 1 for level in lod[1:]] + [rows]
    for index, (level, end) in enumerate(zip(lod, ends, strict=True)):
        if not level or level[0] != 0:
            return f"level {index} to start at 0", f"{list(level[:8])}"
        if any(a > b for a, b in zip(level, level[1:], strict=False)):
            return f"offsets of level {index} that never fall", f"{list(level[:8])}"
        if level[-1] != end:
            return f"level {index} to end at {end}", f"{level[-1]}"
    return None
