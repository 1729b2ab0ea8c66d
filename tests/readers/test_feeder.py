"""DataFeeder and the checks beside it: the results of Paddle 1.8.5."""

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.data_feeder import (
    BatchedTensorProvider,
    check_dtype,
    check_type,
    check_variable_and_dtype,
    convert_dtype,
)
from fluidjax.layers import io as layers

CPU = fluid.CPUPlace()


@pytest.fixture
def variables():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        yield {
            "x": fluid.data("x", [None, 2]),
            "w": fluid.data("w", [None, 1], "int64", lod_level=1),
            "ww": fluid.data("ww", [None, 1], "int64", lod_level=2),
            "im": layers.data("im", [1, 2, 2]),
            "any2": fluid.data("any2", [None, None]),
        }


def feed(variables, names, samples):
    found = fluid.DataFeeder([variables[n] for n in names.split()], CPU).feed(samples)
    return {
        name: (np.array(t).tolist(), np.array(t).dtype.name, t.recursive_sequence_lengths())
        for name, t in found.items()
    }


def test_dense_and_ragged(variables):
    assert feed(variables, "x w", [([1, 2], [3, 4]), ([5, 6], [7])]) == {
        "x": ([[1.0, 2.0], [5.0, 6.0]], "float32", []),
        "w": ([[3], [4], [7]], "int64", [[2, 1]]),
    }


def test_two_levels(variables):
    assert feed(variables, "ww", [([[1, 2], [3]],), ([[4]],)]) == {
        "ww": ([[1], [2], [3], [4]], "int64", [[2, 1], [2, 1, 1]])
    }


def test_empty_sequences(variables):
    assert feed(variables, "w", [([],), ([1, 2],), ([],)]) == {"w": ([[1], [2]], "int64", [[0, 2, 0]])}


def test_flat_samples_are_reshaped(variables):
    picture = [[[[1.0, 2.0], [3.0, 4.0]]], [[[5.0, 6.0], [7.0, 8.0]]]]
    assert feed(variables, "im", [([1, 2, 3, 4],), ([5, 6, 7, 8],)]) == {"im": (picture, "float32", [])}
    with pytest.raises(ValueError, match="Reshape error"):
        feed(variables, "im", [([1, 2, 3],)])


def test_two_unknown_dims_keep_the_shape(variables):
    assert feed(variables, "any2", [([1, 2, 3],)]) == {"any2": ([[1.0, 2.0, 3.0]], "float32", [])}


def test_values_take_the_variables_type(variables):
    assert feed(variables, "x", [(np.array([1.5, 2]),)])["x"] == ([[1.5, 2.0]], "float32", [])


def test_wrong_samples(variables):
    with pytest.raises(AssertionError, match=r"fields in data \(1\) does not match len\(feed_list\) \(2\)"):
        feed(variables, "x w", [([1, 2],)])
    with pytest.raises(TypeError, match="list of variable"):
        fluid.DataFeeder([3], CPU)


def test_names_are_found_in_the_program(variables):
    feeder = fluid.DataFeeder(["x"], CPU)
    assert feeder.feed_vars[0] is variables["x"]
    other = fluid.Program()
    with pytest.raises(ValueError, match="var x not in this block"):
        fluid.DataFeeder(["x"], CPU, program=other)


def test_several_devices(variables):
    feeder = fluid.DataFeeder([variables["x"]], CPU)
    batches = [[([1, 2],)], [([3, 4],)], [([5, 6],)]]
    feeds = list(feeder.feed_parallel(batches[:2], 2))
    assert [np.array(f["x"]).tolist() for f in feeds] == [[[1.0, 2.0]], [[3.0, 4.0]]]
    with pytest.raises(ValueError, match="must be same"):
        list(feeder.feed_parallel(batches, 2))
    assert [sorted(f) for f in feeder.decorate_reader(lambda: batches, False)()] == [["x"]] * 3
    assert [len(f) for f in feeder.decorate_reader(lambda: batches, True, 2)()] == [2]
    with pytest.raises(ValueError, match="left over"):
        list(feeder.decorate_reader(lambda: batches, True, 2, drop_last=False)())


def test_batched_tensor_provider(variables):
    samples = [([1, 2],), ([3, 4],), ([5, 6],)]
    for drop_last, sizes in ((True, [2]), (False, [2, 1])):
        provider = BatchedTensorProvider([variables["x"]], CPU, 2, lambda: samples, drop_last)
        assert [batch[0].shape()[0] for batch in provider()] == sizes


@pytest.mark.parametrize(
    "dtype, name",
    [
        (np.float32, "float32"),
        ("float64", "float64"),
        (np.dtype("int64"), "int64"),
        (bool, "bool"),
        (fluid.core.VarDesc.VarType.FP16, "float16"),
        (np.bool_, "bool"),
    ],
)
def test_convert_dtype(dtype, name):
    assert convert_dtype(dtype) == name


@pytest.mark.parametrize("dtype", [int, float, "int", "bfloat16", np.uint16, None])
def test_types_without_tensors(dtype):
    with pytest.raises(ValueError, match="dtype must be any of"):
        convert_dtype(dtype)


def test_checks(variables):
    check_type(3, "x", (int, str), "fc")
    check_dtype("int32", "x", ["int32"], "fc")
    check_variable_and_dtype(variables["x"], "x", ["float32"], "fc")
    with pytest.raises(
        TypeError, match="The type of 'x' in fc must be <class 'str'>, but received <class 'int'>. more"
    ):
        check_type(3, "x", str, "fc", "more")
    with pytest.raises(TypeError, match=r"The data type of 'x' in fc must be \['int64'\], but received float32"):
        check_variable_and_dtype(variables["x"], "x", ["int64"], "fc")


def test_input_variables(variables):
    x, im = variables["x"], variables["im"]
    assert (x.shape, im.shape) == ((-1, 2), (-1, 1, 2, 2))
    assert (x.proto.need_check_feed, im.proto.need_check_feed) == (True, False)
    assert x.is_data and im.is_data and x.stop_gradient and not x.persistable
    assert layers.data("a", [2, None, 3]).shape == (2, -1, 3)
    assert layers.data("b", [3], append_batch_size=False).shape == (3,)
    assert layers.data("c", [-1, 3]).shape == (-1, 3)
    assert fluid.data("x", [None, 2]).name == "x"
    with pytest.raises(ValueError, match="created before"):
        fluid.data("x", [None, 3])
    with pytest.raises(TypeError, match="'shape' in data"):
        fluid.data("y", 3)
    with pytest.raises(TypeError, match="'name' in data"):
        layers.data(3, [1])
