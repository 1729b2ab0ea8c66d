"""Variables that share memory with NumPy arrays, as to_variable makes them."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import dygraph as dg
from fluidjax import layers
from fluidjax.base.flags import FLAGS


def ones() -> np.ndarray:
    return np.ones((2, 3), "float32")


def test_what_is_written_into_the_array_shows_in_the_variable_and_not_in_what_was_computed() -> None:
    with dg.guard():
        array = ones()
        x = dg.to_variable(array)
        before, detached, item = x + 1, x.detach(), x[0]
        array[0, 0] = 5
        assert x.numpy()[0, 0] == 5 and (x + 1).numpy()[0, 0] == 6
        assert before.numpy()[0, 0] == 2 and detached.numpy()[0, 0] == 1 and item.numpy()[0] == 1
        x.numpy()[0, 0] = 9
        assert array[0, 0] == 5


def test_what_the_variable_is_set_to_shows_in_the_array() -> None:
    with dg.guard():
        array = ones()
        x = dg.to_variable(array)
        x.set_value(np.zeros((2, 3), "float32"))
        assert not array.any()
        array[1, 1] = 4
        assert x.numpy()[1, 1] == 4


@pytest.mark.parametrize("blocks", [True, False])
def test_what_an_op_computes_into_the_variable_shows_in_the_array(
    blocks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FLAGS, "FLAGS_eager_blocks", blocks)
    with dg.guard():
        array, count = ones(), np.zeros(1, "float32")
        x, steps = dg.to_variable(array), dg.to_variable(count)
        for k in range(3):
            layers.increment(steps)
            assert count.tolist() == [k + 1]
        layers.assign(x * 3 + steps, x)
        assert array.tolist() == [[6, 6, 6]] * 2
        array[0, 0] = 1
        assert (x + 1).numpy().tolist() == [[2, 7, 7], [7, 7, 7]]


def test_what_does_not_fit_the_array_leaves_it_as_it_is() -> None:
    with dg.guard():
        array = ones()
        x = dg.to_variable(array)
        layers.assign(dg.to_variable(np.zeros(7, "float32")), x)
        assert array.all() and x.shape == [7]


def test_a_gradient_is_that_of_the_numbers_there_are_then() -> None:
    with dg.guard():
        array = np.ones(2, "float32")
        x = dg.to_variable(array)
        x.stop_gradient = False
        loss = layers.reduce_sum(x * x)
        array[0] = 3
        loss.backward()
        assert loss.numpy() == [2] and x.gradient().tolist() == [6, 2]


def test_what_is_copied() -> None:
    with dg.guard():
        array = np.arange(6, dtype="float32").reshape(2, 3)
        copied = dg.to_variable(array, zero_copy=False)
        turned, parts = dg.to_variable(array.T), dg.to_variable(array[:, ::2])
        part = dg.to_variable(array[1])
        array[...] = 7
        assert copied.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
        assert turned.numpy().tolist() == [[0, 3], [1, 4], [2, 5]] and parts.numpy().tolist() == [[0, 2], [3, 5]]
        assert part.numpy().tolist() == [7, 7, 7]


def test_a_nan_does_not_count_as_written() -> None:
    with dg.guard():
        array = np.full(2, np.nan, "float32")
        x = dg.to_variable(array)
        assert x._value is x._value and x._held.array is array


def test_it_stops_looking_when_nobody_else_has_the_array() -> None:
    with dg.guard():
        array = np.arange(6, dtype="float32").reshape(2, 3)
        x = dg.to_variable(array)
        x.numpy()
        assert x._held.array is array
        del array
        assert x.numpy()[1, 2] == 5 and x._held.array is None


def test_a_layer_of_python_that_returns_what_it_is_given() -> None:
    class Same(dg.PyLayer):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    with dg.guard():
        array = np.ones(2, "float32")
        x = dg.to_variable(array)
        x.stop_gradient = False
        layers.reduce_sum(Same.apply(x)).backward()
        assert x.gradient().tolist() == [2, 2]


def test_the_class_is_that_of_every_variable() -> None:
    with dg.guard():
        x = dg.to_variable(ones())
        assert type(x) is type(x + 1) is fluid.core_avx.VarBase


def test_what_is_written_before_the_value_is_first_asked_for_shows() -> None:
    with dg.guard():
        array = ones()
        x, y = dg.to_variable(array), dg.to_variable(ones())
        array[0, 0] = 3
        assert x.shape == [2, 3]
        assert (x + y).numpy().tolist() == [[4, 2, 2], [2, 2, 2]]
        array[0, 0] = 4
        assert (x + y).numpy().tolist() == [[5, 2, 2], [2, 2, 2]]


def test_an_array_that_nobody_else_has_is_taken_as_it_is() -> None:
    """Its numbers are those of the variable from then on, and of nothing else."""
    with dg.guard():
        array = np.ones((2, 3), "float32")
        where = array.ctypes.data
        x = dg.to_variable(array)
        del array
        held = x._value
        assert held is not None and held.array.ctypes.data == where
        x.numpy()[...] = 7
        x.set_value(np.zeros((2, 3), "float32"))
        assert held.array.all() and not x.numpy().any()
