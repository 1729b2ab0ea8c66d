"""The items of messages: what is read in a few steps is what is read with care, whatever the bytes are."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fluidjax.distributed import items
from fluidjax.files.cursor import View
from fluidjax.files.errors import FileFormatError
from lowering.values import LoDArray, SelectedRows

ROWS = SelectedRows(np.array([4, 0, 4], np.int64), np.arange(6, dtype="float32").reshape(3, 2), 5)


def encoded(named: list[tuple[str, Any]]) -> bytes:
    parts: list[Any] = []
    place = 0
    for name, value in named:
        found, place = items.written(name, value, place)
        parts += found
    data = b"".join(parts)
    assert len(data) == place
    return data


def outcome(read: Any) -> Any:
    """What is read, as it can be compared, or the error."""
    try:
        return [(name, described(value)) for name, value in read()]
    except (FileFormatError, UnicodeDecodeError) as error:
        return type(error), str(error)


def described(value: Any) -> Any:
    if isinstance(value, SelectedRows):
        return "rows", described(value.rows), described(value.values), value.height
    if isinstance(value, LoDArray):
        return "ragged", described(value.data), [level.tolist() for level in value.lod]
    return None if value is None else (value.dtype, value.shape, value.tobytes())


def with_care(data: bytes, count: int) -> Any:
    return outcome(lambda: items._careful(View(data, "a message", 0, len(data)), count))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_any_byte_that_differs_is_read_as_with_care(count: int) -> None:
    data = encoded([("BATCH", None), ("w", np.arange(3, dtype="int32")), ("t", ROWS)])
    seen = set()
    for place in range(len(data)):
        for change in (1, 0x80, 0xFF):
            other = data[:place] + bytes([data[place] ^ change]) + data[place + 1 :]
            found = outcome(lambda other=other: items.read(other, 0, len(other), count))
            assert found == with_care(other, count), place
            seen.add(type(found))
    assert seen == ({tuple, list} if count == 3 else {tuple})


def test_any_end_is_found_as_with_care() -> None:
    data = encoded([("w", np.arange(3.0)), ("t", ROWS), ("last", None)])
    for end in range(len(data)):
        whole = outcome(lambda end=end: items.read(data, 0, end, 3))
        assert whole[0] is FileFormatError
        assert outcome(lambda end=end: items.read(data[:end], 0, end, 3)) == with_care(data[:end], 3)


@pytest.mark.parametrize(
    "value",
    [
        np.float32(3), np.zeros((0, 4), "float32"), np.arange(12.0).reshape(3, 4)[:, ::2],
        np.array([True, False]), np.arange(3, dtype="float32").astype(ml_dtypes.bfloat16),
        LoDArray(np.arange(6.0).reshape(3, 2), (np.array([0, 1, 3], np.int32),)), ROWS,
        SelectedRows(np.zeros(0, np.int64), np.zeros((0, 2), "float32"), 5),
        SelectedRows(np.arange(6, dtype=np.int32)[::2], np.ones((3, 2)), 5),
    ],
    ids=["number", "empty", "strided", "bools", "bfloat16", "ragged", "rows", "no rows", "int32 rows"],
)  # fmt: skip
def test_values_of_all_kinds_arrive(value: Any) -> None:
    (found,) = items.read(data := encoded([("v", value)]), 0, len(data), 1)
    assert [("v", described(found[1]))] == with_care(data, 1)
    sent = {"rows": value.rows, "values": value.values} if isinstance(value, SelectedRows) else {"data": value}
    if isinstance(value, LoDArray):
        sent = {"data": value.data}
    for part, numbers in sent.items():
        arrived = found[1] if isinstance(found[1], np.ndarray) else getattr(found[1], part)
        np.testing.assert_array_equal(arrived, numbers)
