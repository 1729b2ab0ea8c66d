"""Tensor arrays and rank tables: known and traced, exact and padded, give the same."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fluidjax as fluid
from lowering import LoDArray, TensorArray
from lowering.errors import CarryChanges
from lowering.loops import arrays, ranks
from lowering.loops.carried import fit, join
from tests.control_flow.running import build, run

layers = fluid.layers

ROOM = 12


def padded(rows: np.ndarray, offsets: np.ndarray) -> LoDArray:
    data = np.concatenate([rows, np.repeat(rows[:1], ROOM - len(rows), axis=0)])
    return LoDArray(jnp.asarray(data), (jnp.asarray(offsets),), jnp.int32(len(rows)), None, (6,))


@jax.jit
def there_and_back(x: LoDArray):
    table = ranks.rank_table(x, 0)
    steps = ranks.steps_of(x, table, backward=False)
    return steps, ranks.sequences_of(steps, table, ROOM, backward=False)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=3, max_size=3).filter(lambda n: 0 < sum(n)))
def test_steps_of_sequences_and_back(lengths: list[int]) -> None:
    """Step t holds row t of each sequence longer than t, longest sequences first; joining the steps undoes it."""
    rows = np.arange(1.0, sum(lengths) + 1).reshape(-1, 1)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    order = np.argsort([-n for n in lengths], kind="stable")
    exact = LoDArray(rows, (offsets,))
    table = ranks.rank_table(exact, 0)
    known_steps = ranks.steps_of(exact, table, backward=False)
    steps, back = there_and_back(padded(rows, offsets))
    for t in range(max(lengths)):
        want = [rows[offsets[k] + t, 0] for k in order if lengths[k] > t]
        assert np.asarray(known_steps.items[t]).ravel().tolist() == want
        count = int(steps.buffer.nrows[t])
        assert np.asarray(steps.buffer.data[t, :count]).ravel().tolist() == want
    assert int(steps.length) == max(lengths)
    assert int(back.nrows) == len(rows)
    np.testing.assert_array_equal(back.data[: len(rows)], rows)
    np.testing.assert_array_equal(
        np.asarray(ranks.sequences_of(known_steps, table, len(rows), backward=False).data), rows
    )


def test_gradients_of_reads_add_up_and_are_taken_once() -> None:
    forward = TensorArray((np.zeros(2, np.float32), np.zeros(2, np.float32)))
    for array in (
        arrays.gradient_like(None, forward),
        arrays.gradient_like(None, arrays.as_stacked(forward, np.zeros(2, np.float32), 4)),
    ):
        array = arrays.put(array, np.array([1]), jnp.ones(2), 4, add=True)
        array = arrays.put(array, np.array([1]), jnp.ones(2), 4, add=True)
        value, array = arrays.take(array, np.array([1]))
        np.testing.assert_array_equal(value, [2.0, 2.0])
        again, array = arrays.take(array, np.array([1]))
        assert again is None or not np.asarray(again).any()
        array = arrays.put(array, np.array([1]), jnp.ones(2), 4, add=True)
        np.testing.assert_array_equal(arrays.take(array, np.array([1]))[0], [1.0, 1.0])


def test_a_gradient_array_has_the_room_of_its_forward_array() -> None:
    """The gradient of what was joined without a bound has room for all rows in each element."""

    def array(rows: int, values: np.ndarray) -> TensorArray:
        data = np.zeros((2, rows, 1), np.float32)
        data[:, :3, 0] = values
        return TensorArray(None, LoDArray(jnp.asarray(data), (), jnp.array([3, 2], np.int32)), jnp.int32(2))

    values = np.array([[1, 2, 3], [4, 5, 0]], np.float32)
    found = arrays.gradient_like(array(9, values), array(4, np.ones((2, 3))))
    assert found.buffer.data.shape == (2, 4, 1) and found.buffer.nrows.tolist() == [3, 2]
    np.testing.assert_array_equal(found.buffer.data[:, :3, 0], values)


def test_values_that_grow_are_padded_to_the_larger() -> None:
    small, large = LoDArray(jnp.ones((2, 3))), LoDArray(jnp.ones((5, 3)), (), jnp.int32(4))
    template = join(small, large)
    grown = fit(small, template)
    assert grown.capacity == 5 and int(grown.nrows) == 2
    assert fit(large, template).capacity == 5


@pytest.mark.parametrize(
    "other, what", [(np.int32([1, 2]), "dtype changes from float32 to int32"), (np.ones([2, 3], np.float32), "shape")]
)
def test_what_no_padding_makes_alike_is_said(other: np.ndarray, what: str) -> None:
    with pytest.raises(CarryChanges, match=what) as caught:
        join(np.float32([1, 2]), other)
    assert "expected: a value that has the same dtype, rank" in str(caught.value.refusal())


@pytest.mark.parametrize("index", [0, 2])
def test_known_and_traced_indices_agree(index: int) -> None:
    def write_and_read(i):
        array = arrays.put(None, i, jnp.arange(3.0), 4)
        return arrays.get(array, i)

    known = write_and_read(np.array([index]))
    traced = jax.jit(write_and_read)(jnp.array([index]))
    np.testing.assert_array_equal(known, traced)


@pytest.mark.parametrize("interpret", [False, True])
def test_an_element_taken_before_a_host_op_stays_taken(interpret: bool) -> None:
    """3 x overwrites element 0 that x is in: the gradient of 2 array[0] by x is 6, not 6 and the 2 of the new value.

    Python functions cut the backward pass between its write of array@GRAD and the two ops that take it.
    """

    def treble(value: Any) -> Any:
        made = (
            fluid.default_main_program()
            .current_block()
            .create_var(name=fluid.unique_name.generate("made"), shape=[1], dtype="float64")
        )
        return layers.py_func(lambda a: np.asarray(a) * 3.0, value, made, lambda a, b, d: np.asarray(d) * 3.0)

    def network():
        x = fluid.data("x", [1], "float64")
        x.stop_gradient = False
        first = layers.fill_constant([1], "int64", 0)
        array = layers.array_write(layers.scale(x, 1.0), first)
        layers.array_write(treble(layers.array_read(array, first)), first, array)
        other = treble(layers.scale(x, 1.0))
        loss = layers.elementwise_add(layers.scale(layers.array_read(array, first), 2.0), other)
        return [loss, *fluid.gradients([loss], [x])]

    main, startup, fetch = build(network)
    loss, d_x = run(main, startup, {"x": np.full(1, 0.5)}, fetch, interpret=interpret)
    np.testing.assert_allclose([loss.item(), d_x.item()], [4.5, 9.0])


def test_a_gradient_array_has_the_lod_level_of_what_was_last_written_to_it() -> None:
    """As Fluid declares it: in the gradient of a loop a sum of two gradients, the first of which has no level."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = layers.data("x", [3], lod_level=1)
        i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 2)
        row, beside = layers.fc(x, 3), layers.fc(x, 3)
        array = layers.array_write(row, layers.fill_constant([1], "int64", 0))
        more = layers.less_than(i, n)
        loop = layers.While(more)
        with loop.block():
            before = layers.array_read(array, i)
            after = layers.elementwise_add(layers.elementwise_mul(before, beside), layers.fc(before, 3))
            layers.increment(i, 1, in_place=True)
            layers.array_write(after, i=i, array=array)
            layers.less_than(i, n, cond=more)
        last = layers.array_read(array, i)
        fluid.backward.append_backward(layers.mean(last))
    found = [main.global_block().var(v.name + "@GRAD") for v in (last, array, row)]
    assert [v.lod_level for v in found] == [1, 0, 0]


def test_an_element_of_an_array_by_its_number_has_the_declared_shape_of_elements() -> None:
    def network():
        x = fluid.data("x", [4, 3])
        array = layers.create_array("float32")
        for k in range(3):
            layers.array_write(x + k, layers.fill_constant([1], "int64", k), array)
        element, later = array[-1], array[1:]
        assert (element.shape, later.shape) == ((4, 3), (4, 3))
        assert later.type == fluid.core.VarDesc.VarType.LOD_TENSOR_ARRAY
        return [layers.concat([element, array[1]], axis=1), layers.array_length(later)]

    main, startup, fetch = build(network)
    found, count = run(main, startup, {"x": np.zeros((4, 3), "float32")}, fetch)
    np.testing.assert_array_equal(found, np.repeat([[2.0, 1.0]], 3, axis=1)[[0] * 4])
    assert count == 2


def test_a_copy_of_an_array_and_a_sum_of_arrays_are_arrays() -> None:
    """They have the kind of what they are made of, so that they can be read, and their gradients go on to the parts."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [2, 3])
        x.stop_gradient = False
        start = fluid.layers.fill_constant([1], "int64", 0)
        array = fluid.layers.array_write(x * 2.0, start)
        copy = fluid.layers.assign(array)
        assert copy.type == fluid.core.VarDesc.VarType.LOD_TENSOR_ARRAY
        total = fluid.layers.sum([array, copy])
        assert total.type == fluid.core.VarDesc.VarType.LOD_TENSOR_ARRAY
        out = fluid.layers.reduce_sum(fluid.layers.array_read(copy, start))
        (grad,) = fluid.gradients([out], [x])
        fed = np.arange(6, dtype=np.float32).reshape(2, 3)
        result, slope = fluid.Executor(fluid.CPUPlace()).run(feed={"x": fed}, fetch_list=[out, grad])
    assert result == 2 * fed.sum()
    np.testing.assert_array_equal(slope, np.full((2, 3), 2.0))
