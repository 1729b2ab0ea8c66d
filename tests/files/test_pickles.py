"""The pickles of fluid.save: bytes that Python 3.7 would write, and a reader that runs nothing."""

import os
import pickle
import pickletools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fluidjax.files import pickle_writer, pickles
from fluidjax.files.errors import FileFormatError
from tests.effort import at_most_calls

DTYPES = ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"]
arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=3))
)
dicts = st.dictionaries(st.text(min_size=1, max_size=8), arrays, max_size=4)


def same(a, b):
    assert list(a) == list(b)
    for name in a:
        assert a[name].dtype == b[name].dtype
        np.testing.assert_array_equal(a[name], b[name])


@given(dicts)
def test_round_trip_through_ours_and_through_pickle_itself(values):
    data = pickles.dumps(values)
    same(pickles.loads(data, "a file"), values)
    same(pickle.loads(data), values)


@given(dicts, st.sampled_from([2, 3, 4]))
def test_what_pickle_writes_is_read(values, protocol):
    same(pickles.loads(pickle.dumps(values, protocol), "a file"), values)


def test_old_numpy_can_read_it():
    data = pickles.dumps({"w": np.zeros((2, 2), "f4")})
    assert data[:2] == b"\x80\x02"
    assert b"numpy.core.multiarray" in data and b"numpy._core" not in data


def test_many_variables_are_written_in_batches():
    values = {f"w{i}": np.full(1, i, "f4") for i in range(2001)}
    data = pickles.dumps(values)
    same(pickles.loads(data, "a file"), values)
    words = [word.name for word, _, _ in pickletools.genops(data)]
    assert words.count("SETITEMS") == 3 and words.count("SETITEM") == 0


@pytest.mark.parametrize("count", [0, 1, 2, 999, 1000, 1001, 2000])
def test_batches_are_those_of_python(count):
    values = {f"w{i}": i for i in range(count)}
    assert pickles.dumps(values) == pickle.dumps(values, 2)


def test_plain_values_are_written_as_python_writes_them():
    values = {"a": 1, "b": {"x": 0.5, "yy": None, "zz": True}, "c": "text", "d": [{"q": -3, "b": 1 << 40}, [], [2]]}
    assert pickles.dumps(values) == pickle.dumps(values, 2)


def test_numpy_numbers_come_back_as_such():
    values = {"state": {"rate": np.float32(0.5), "step": np.int64(3)}, "w": np.zeros(2, "f4")}
    data = pickles.dumps(values)
    assert pickle.loads(data)["state"] == values["state"]
    back = pickles.loads(data, "a file")["state"]
    assert [type(v) for v in back.values()] == [np.float32, np.int64] and back == values["state"]


def test_other_values_are_refused():
    with pytest.raises(TypeError, match="a set cannot be saved"):
        pickles.dumps({"a": {1}})


def test_fortran_order_is_kept():
    array = np.asfortranarray(np.arange(6, dtype="f4").reshape(2, 3))
    back = pickles.loads(pickles.dumps({"w": array}), "a file")["w"]
    assert back.flags.f_contiguous
    np.testing.assert_array_equal(back, array)


def test_names_of_structured_parameters_are_read():
    data = pickle.dumps({"fc.weight": np.zeros(2, "f4"), "StructuredToParameterName@@": {"fc.weight": "fc_0.w_0"}}, 2)
    assert pickles.loads(data, "a file")["StructuredToParameterName@@"] == {"fc.weight": "fc_0.w_0"}


class Evil:
    def __init__(self, function, *args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_nothing_in_a_pickle_is_run(tmp_path, protocol):
    mark = tmp_path / "ran"
    with pytest.raises(FileFormatError, match="posix.system|nt.system"):
        pickles.loads(pickle.dumps({"w": Evil(os.system, f"touch {mark}")}, protocol), "a file")
    assert not mark.exists()


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "EOF|ran out|exhausted|pickle"),
        (b"\x80\x02K\x05.", "holds a int"),
        (b"\x80\x02}q\x00K\x01K\x02s.", "not a dict from names"),
        (b"\x80\x02}r\xff\xff\xff\x7f.", "numbers an object"),
        (b"\x80\x05\x96\xff\xff\xff\xff\xff\x00\x00\x00.", "."),
        (b"\x80\x02X\xff\xff\xff\x7fabc.", "."),
        (pickle.dumps({"w": np.array([{}, 1], object)}, 2), "not one of numbers"),
        (pickle.dumps({"w": np.array(["a"])}, 2), "not one of numbers"),
        (pickle.dumps({"w": np.zeros(2, [("a", "f4")])}, 2), "."),
        (pickle.dumps({"w": {1, 2}}, 2), "set"),
        (pickle.dumps({"w": 1j}, 2), "complex"),
        (b"\x80\x02c__builtin__\neval\n.", "eval"),
        (b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01h\x00s.", "hold each other"),
    ],
)
def test_what_is_no_parameter_file_is_refused(data, message):
    with pytest.raises(FileFormatError, match=message) as error:
        pickles.loads(data, "model.pdparams")
    assert all(part in str(error.value) for part in ("model.pdparams", "expected:", "received:", "what to do:"))


def test_shapes_that_do_not_fit_their_data_are_refused():
    data = pickles.dumps({"w": np.zeros((3, 5), "f4")})
    with pytest.raises(FileFormatError, match="does not fit"):
        pickles.loads(data.replace(b"K\x03K\x05", b"K\x03K\x06"), "a file")


def test_one_text_turned_into_many_arrays_is_refused():
    """Repeating a call of 2 bytes must not multiply a text of a megabyte."""
    text = b"a" * 1_000_000
    head = b"\x80\x02]q\x00(c_codecs\nencode\nq\x01X" + len(text).to_bytes(4, "little") + text + b"q\x02"
    head += b"X\x06\x00\x00\x00latin1q\x03\x86q\x04R"
    with pytest.raises(FileFormatError, match="adds up"):
        pickles.loads(head + b"h\x01h\x04R" * 1000 + b"e.", "a file")


@given(dicts, st.data())
def test_a_pickle_cut_anywhere_is_refused(values, data):
    whole = pickles.dumps(values)
    with pytest.raises(FileFormatError):
        pickles.loads(whole[: data.draw(st.integers(0, len(whole) - 1))], "a file")


@given(st.data())
def test_changed_bytes_never_do_worse_than_a_refusal(data):
    whole = bytearray(pickles.dumps({"w": np.arange(6, dtype="f4"), "b": np.zeros((2, 2), "i8")}))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        loaded = pickles.loads(bytes(whole), "a file")
    except FileFormatError:
        return
    assert all(isinstance(name, str) for name in loaded)


def nested_key(levels):
    return b"\x80\x02}(" + b")" + b"\x85" * levels + b"K\x01u."


def shared(keys, size):
    """``keys`` keys that share one list of ``size`` numbers."""
    names = b"".join(b"X\x06\x00\x00\x00%06d" % i + b"h\x00" for i in range(keys))
    return b"\x80\x02}(X\x01\x00\x00\x00l](" + b"K\x01" * size + b"eq\x00" + names + b"u."


@pytest.mark.parametrize(
    "data",
    [
        nested_key(150_000),
        b"\x80\x02}(X\x01\x00\x00\x00k" + b"]" * 150_000 + b"a" * 149_999 + b"u.",
        b"\x80\x02}(" + b"(" * 100_000 + b"t" * 100_000 + b"K\x01u.",
        shared(20_000, 20_000),
    ],
    ids=["tuple", "list", "marks", "shared"],
)
def test_deep_and_repeated_containers_are_refused(data):
    """A tuple of 150,000 levels as a key ended the process, and keys that share a list were read for minutes."""
    with at_most_calls(10_000_000, "read the file"), pytest.raises(FileFormatError, match=r"nested|hold each other"):
        pickles.loads(data, "file")


def test_many_batches_of_one_dict_are_not_deep():
    arrays = {f"w{i}": np.zeros(1, np.float32) for i in range(70 * pickle_writer.BATCH)}
    assert len(pickles.loads(pickles.dumps(arrays), "file")) == len(arrays)
