"""Fetched arrays: one element converts to a Python number under every NumPy, and otherwise they are NumPy's arrays."""

import copy
import io
import math
import operator
import pickle
import warnings

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.execution.scopes.fetched import FetchedArray, fetched

F, D, P = "%f", "%d", "%5.2f%%"  # as scripts print


@pytest.fixture(scope="module")
def results():
    """(loss [1] = 1.875, count [1] = 3, rows [2, 1] = 2.5 and 5, a parameter [1] = 4)."""
    with fluid.scope_guard(fluid.Scope()), fluid.program_guard(fluid.Program(), fluid.Program()):
        x, n = fluid.data("x", [None, 1], "float32"), fluid.data("n", [None, 1], "int64")
        weight = fluid.layers.create_parameter([1], "float32", default_initializer=fluid.initializer.Constant(4.0))
        fetches = [fluid.layers.mean(x), fluid.layers.reduce_sum(n), fluid.layers.scale(x, 2.0), weight]
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fluid.default_startup_program())
        feed = {"x": np.array([[1.25], [2.5]], "float32"), "n": np.array([[1], [2]])}
        return exe.run(feed=feed, fetch_list=fetches)


def test_one_element_converts_as_in_fluid(results):
    loss, count, rows, weight = results
    assert (float(loss), int(loss), complex(loss), int(count), float(weight)) == (1.875, 1, 1.875 + 0j, 3, 4.0)
    assert (F % loss, D % count, P % (loss * 100)) == (
        "1.875000",
        "3",
        "187.50%",
    )
    assert [F % value for value in rows] == ["2.500000", "5.000000"]
    assert (round(float(loss), 2), math.sqrt(weight), math.isnan(loss)) == (1.88, 2.0, False)
    assert (f"{float(loss):.3f}", f"{loss}", [0] * int(count)) == ("1.875", "[1.875]", [0, 0, 0])


def test_what_is_computed_with_one_converts_too(results):
    loss, _, rows, _ = results
    total = 0.0
    for value in (loss, loss):
        total += value
    assert float(total) == 3.75 and F % (sum([loss, loss]) / 2) == "1.875000"
    assert float(-loss) == -1.875 and float(rows.sum(axis=0)) == 7.5 and float(rows[1] - loss) == 3.125
    assert [F % row for row in np.concatenate([rows, np.ones((1, 1))])] == ["2.500000", "5.000000", "1.000000"]
    into = np.zeros(2)
    into[0] = loss
    assert into[0] == 1.875


def test_reductions_and_elements_are_scalars(results):
    loss, _, rows, _ = results
    scalars = [loss[0], loss.mean(), loss.sum(axis=0), np.mean(loss), np.max(rows), rows.min(), loss @ loss, rows[0, 0]]
    assert [type(s) for s in scalars] == [np.float32] * len(scalars)
    assert type(rows.argmax()) is np.int64 and type(np.mean([loss, loss])) is np.float32
    assert np.array([loss, loss]).shape == (2, 1)


@pytest.mark.parametrize("convert", [float, int, complex, math.sqrt, F.__mod__])
def test_more_elements_do_not_convert(results, convert):
    with pytest.raises(TypeError, match=r"one element.*received shape \(2, 1\)"):
        convert(results[2])


def test_an_index_is_a_true_scalar(results):
    with pytest.raises(TypeError):
        operator.index(results[1])
    assert [10, 11, 12, 13][results[1][0]] == 13


def test_it_is_an_array(results):
    loss, _, rows, weight = results
    assert isinstance(loss, np.ndarray) and repr(rows) == "array([[2.5],\n       [5. ]], dtype=float32)"
    for array in results:
        array.sort()
        array += 1
        array -= 1
    assert (rows == [[2.5], [5.0]]).all() and bool(loss == 1.875)
    assert type(np.array(loss)) is type(np.asarray(loss)) is np.ndarray
    assert type(copy.deepcopy(rows)) in (np.ndarray, FetchedArray) and (copy.deepcopy(rows) == rows).all()


def test_the_state_keeps_its_value_when_a_fetch_is_written():
    with fluid.scope_guard(fluid.Scope()), fluid.program_guard(fluid.Program(), fluid.Program()):
        weight = fluid.layers.create_parameter([3], "float32", default_initializer=fluid.initializer.Constant(4.0))
        fluid.layers.increment(fluid.layers.fill_constant([1], "float32", 0.0))
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fluid.default_startup_program())
        (value,) = exe.run(fetch_list=[weight])
        value[:] = 0
        assert exe.run(fetch_list=[weight])[0].tolist() == [4.0] * 3


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_and_files_are_plain(results, protocol):
    data = pickle.dumps({"loss": results[0]}, protocol)
    assert b"fluidjax" not in data
    again = pickle.loads(data)["loss"]
    assert type(again) is np.ndarray and again.tolist() == [1.875]
    file = io.BytesIO()
    np.save(file, results[2])
    file.seek(0)
    assert np.load(file, allow_pickle=False).tolist() == [[2.5], [5.0]]


def test_fetches_are_feeds(results):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 1], "float32")
        (doubled,) = fluid.Executor(fluid.CPUPlace()).run(
            feed={"x": results[2]}, fetch_list=[fluid.layers.scale(x, 2.0)]
        )
    tensor = fluid.create_lod_tensor(results[2], [[1, 1]], fluid.CPUPlace())
    assert doubled.tolist() == [[5.0], [10.0]] and np.array(tensor).tolist() == [[2.5], [5.0]]


@pytest.mark.parametrize("dtype", ["bool", "float16", "float64", "int32", "uint8"])
def test_every_dtype_converts_quietly(dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = fetched(np.ones((1, 1), dtype))
        assert (float(one), int(one)) == (1.0, 1)
