"""Implementations of the ops save, load, save_combine and load_combine, called by the lowering."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidjax.base.errors import explain
from fluidjax.files import atomic
from fluidjax.files.cursor import Cursor
from fluidjax.files.errors import bad_file
from fluidjax.files.tensor import DenseValue, RowsValue, Value, decode, decode_rows, encode, encode_parts
from lowering.engine.host import provide
from lowering.values import LoDArray, SelectedRows


def to_file_value(value: Any) -> Value:
    """Convert from a value of the lowering."""
    if isinstance(value, SelectedRows):
        count = None if value.nrows is None else int(value.nrows)
        rows = np.asarray(value.rows)[:count].astype(np.int64).tolist()
        return RowsValue(np.asarray(value.values)[:count], rows, value.height)
    if isinstance(value, LoDArray):
        count = None if value.nrows is None else int(value.nrows)
        return DenseValue(np.asarray(value.data)[:count], [np.asarray(level).tolist() for level in value.lod])
    return DenseValue(np.asarray(value))


def from_file_value(value: Value) -> Any:
    """Convert to a value of the lowering."""
    if isinstance(value, RowsValue):
        return SelectedRows(np.asarray(value.rows, np.int32), value.array, value.height)
    if value.lod:
        return LoDArray(value.array, tuple(np.asarray(level, np.int32) for level in value.lod))
    return value.array


def _cast(value: Value, dtype: type) -> Value:
    if value.array.dtype.kind == "f":
        value.array = value.array.astype(dtype)
    return value


def save(values: Sequence[Any], path: str | None, overwrite: bool, as_fp16: bool) -> np.ndarray | None:
    """Write values to a file, or return the file's bytes as uint8 if ``path`` is None."""
    found = [to_file_value(value) for value in values]
    found = [_cast(value, np.float16) for value in found] if as_fp16 else found
    chunks = [chunk for value in found for chunk in encode(value)]
    if path is None:
        return np.frombuffer(b"".join(chunks), np.uint8)
    _check_new(path, overwrite)
    atomic.write_file(path, chunks)
    return None


def save_parts(parts: Sequence[np.ndarray], path: str, shape: Sequence[int], dtype: np.dtype, overwrite: bool) -> None:
    """Write a tensor of the given shape whose elements come in consecutive parts."""
    _check_new(path, overwrite)
    atomic.write_file(path, encode_parts(parts, shape, dtype))


def _check_new(path: str, overwrite: bool) -> None:
    if os.path.exists(path) and not overwrite:
        raise FileExistsError(
            explain(
                f"{path!r} exists already, cannot save to it",
                "a new file, as the op's attribute overwrite is False",
                "a file",
                "remove it, or set overwrite",
            )
        )


def load(source: str | bytes, sparse: Sequence[bool], as_fp16: bool, seek: int, shape: Sequence[int]) -> list[Any]:
    """Read as many values as ``sparse`` has entries from a file, or from its bytes."""
    if isinstance(source, bytes):
        values = _read(Cursor(source, "the bytes in attribute file_path"), sparse)
    else:
        with atomic.open_newest(*os.path.split(source)) as file:
            values = _read(Cursor(file, source), sparse)
    if seek >= 0:
        values = [_part(value, seek, tuple(shape)) for value in values]
    return [from_file_value(_cast(value, np.float16) if as_fp16 else value) for value in values]


def _read(cursor: Cursor, sparse: Sequence[bool]) -> list[Value]:
    values = [decode_rows(cursor) if is_sparse else decode(cursor) for is_sparse in sparse]
    cursor.end()
    return values


def _part(value: Value, seek: int, shape: tuple[int, ...]) -> DenseValue:
    flat = value.array.reshape(-1)
    count = math.prod(shape)
    if any(dim < 0 for dim in shape) or seek + count > flat.size:
        raise bad_file(
            f"elements {seek} to {seek + count} are not in the file",
            f"at most {flat.size} elements",
            f"seek {seek}, shape {shape}",
            "correct the attributes seek and shape",
        )
    return DenseValue(flat[seek : seek + count].reshape(shape))


def install() -> None:
    """Register these functions with the lowering's ops."""
    provide("save", save)
    provide("load", load)
