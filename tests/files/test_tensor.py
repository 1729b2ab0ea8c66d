"""LoDTensor and SelectedRows streams: exact bytes, and every way a file can lie."""

import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fluidjax.files.cursor import Cursor
from fluidjax.files.errors import FileFormatError
from fluidjax.files.tensor import DenseValue, RowsValue, decode, decode_all, decode_rows, encode, lod_problem

DTYPES = ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"]

arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)


def data_of(value):
    return b"".join(bytes(chunk) for chunk in encode(value))


def reads(data, what=decode):
    return what(Cursor(data, "a file"))


def stream(dtype=5, dims=(2,), payload=b"\0" * 8, lod=b"", levels=0, version=0):
    """A LoDTensor stream put together by hand."""
    desc = bytes([8, dtype]) + b"".join(b"\x10" + varint(d) for d in dims)
    head = struct.pack("<IQ", version, levels) + lod
    return head + struct.pack("<Ii", 0, len(desc)) + desc + payload


def varint(number):
    out = b""
    number &= (1 << 64) - 1
    while True:
        number, low = number >> 7, number & 127
        out += bytes([low | (128 if number else 0)])
        if not number:
            return out


def test_the_bytes_of_a_small_tensor():
    value = DenseValue(np.array([1.5, -2.0], "f4"), [[0, 1, 2]])
    lod = struct.pack("<Q3Q", 24, 0, 1, 2)
    assert data_of(value) == stream(payload=struct.pack("<2f", 1.5, -2.0), lod=lod, levels=1)


@given(arrays)
def test_dense_round_trip(array):
    back = reads(data_of(DenseValue(array)))
    assert back.array.dtype == array.dtype and back.lod == []
    np.testing.assert_array_equal(back.array, array)
    assert data_of(back) == data_of(DenseValue(array))


@given(st.lists(st.integers(0, 5), max_size=6), st.lists(st.integers(0, 3), max_size=5), st.integers(1, 3))
def test_lod_round_trip(inner, outer, width):
    fine = np.concatenate([[0], np.cumsum(inner)]).astype(int).tolist()
    coarse = np.minimum(np.concatenate([[0], np.cumsum(outer)]), len(inner)).astype(int).tolist() + [len(inner)]
    array = np.arange(fine[-1] * width, dtype="f4").reshape(fine[-1], width)
    back = reads(data_of(DenseValue(array, [coarse, fine])))
    assert back.lod == [coarse, fine]
    np.testing.assert_array_equal(back.array, array)


def test_bfloat16_round_trip():
    array = np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3)
    back = reads(data_of(DenseValue(array)))
    assert back.array.dtype == array.dtype and (back.array == array).all()


def test_selected_rows_round_trip(rng):
    value = RowsValue(rng.standard_normal((3, 4)).astype("f4"), [7, 0, 7], 9)
    back = reads(data_of(value), decode_rows)
    assert (back.rows, back.height) == ([7, 0, 7], 9)
    np.testing.assert_array_equal(back.array, value.array)


def test_a_fortran_ordered_array_is_written_row_major():
    array = np.asfortranarray(np.arange(6, dtype="f8").reshape(2, 3))
    np.testing.assert_array_equal(reads(data_of(DenseValue(array))).array, array)


@pytest.mark.parametrize(
    "data, message",
    [
        (stream(version=3), "version 3"),
        (stream(dims=(3,)), "does not fit"),
        (stream(dims=(1 << 40,)), "does not fit"),
        (stream(dims=(0, 1 << 60)), "multiply to too much"),
        (stream(dims=(1 << 62, 1 << 62, 4)), "multiply to too much"),
        (stream(dims=(-1,)), "shape cannot be"),
        (stream(dtype=9), "TensorDesc cannot be read"),
        (stream(dtype=22, dims=(4,), payload=b"\0" * 7), "does not fit"),
        (stream(levels=1 << 50), "too many LoD levels"),
        (stream(levels=1, lod=struct.pack("<Q", 1 << 60)), "does not fit"),
        (stream(levels=1, lod=struct.pack("<Q", 12) + b"\0" * 12), "is cut"),
        (stream(levels=1, lod=struct.pack("<Q3Q", 24, 0, 2, 1)), "never fall"),
        (stream(levels=1, lod=struct.pack("<Q2Q", 16, 0, 3)), "to end at 2"),
        (stream(levels=1, lod=struct.pack("<Q2Q", 16, 1, 2)), "to start at 0"),
        (stream(levels=1, lod=struct.pack("<Q", 0)), "to start at 0"),
        (stream()[:12] + struct.pack("<Ii", 0, -5), "size is absurd"),
        (stream()[:12] + struct.pack("<Ii", 0, 3) + b"\xff\xff\xff", "TensorDesc cannot be read"),
        (b"", "does not fit"),
    ],
)
def test_a_lie_in_the_file_is_named(data, message):
    with pytest.raises(FileFormatError, match=message) as error:
        reads(data)
    text = str(error.value)
    assert text.startswith("a file:")
    assert all(part in text for part in ("expected:", "received:", "what to do:"))


@given(arrays, st.data())
def test_a_file_cut_anywhere_is_refused(array, data):
    whole = data_of(DenseValue(array, []))
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(FileFormatError):
        reads(whole[:cut])


@given(st.data())
def test_changed_bytes_never_do_worse_than_a_refusal(data):
    whole = bytearray(data_of(DenseValue(np.arange(6, dtype="f4").reshape(3, 2), [[0, 1, 3]])))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        value = decode_all(Cursor(bytes(whole), "a file"), 1)[0]
    except FileFormatError:
        return
    assert value.array.nbytes <= len(whole)
    assert lod_problem(value.lod, value.array.shape[0] if value.array.ndim else 0) is None


@given(st.binary(max_size=200))
def test_garbage_is_refused(data):
    with pytest.raises(FileFormatError):
        decode_all(Cursor(data, "a file"), 2)
    with pytest.raises(FileFormatError):
        decode_rows(Cursor(data[:30], "a file"))


def test_rows_outside_the_matrix_are_refused():
    value = RowsValue(np.zeros((2, 1), "f4"), [0, 5], 5)
    with pytest.raises(FileFormatError, match="row 5"):
        reads(data_of(value), decode_rows)


def test_a_combined_file_must_hold_all_and_nothing_else():
    one = data_of(DenseValue(np.zeros(2, "f4")))
    assert len(decode_all(Cursor(one * 3, "a file"), 3)) == 3
    with pytest.raises(FileFormatError, match="ends after 1 of 2"):
        decode_all(Cursor(one, "a file"), 2)
    with pytest.raises(FileFormatError, match="follow the end"):
        decode_all(Cursor(one * 2, "a file"), 1)
