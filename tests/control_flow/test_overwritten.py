"""The gradient of a value ends where the value is overwritten, also by what no gradient passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from tests.control_flow.running import build, run

layers = fluid.layers


def number(value: int) -> Any:
    return layers.fill_constant([1], "int64", value)


def constant() -> Any:
    """Stops gradients: Fluid writes no grad op for where it goes."""
    return layers.fill_constant([1], "float64", 2.0)


def add(*values: Any) -> Any:
    return layers.sums(list(values))


def twice(body: Callable[[], Any]) -> None:
    i, end = number(0), number(2)
    more = layers.less_than(i, end)
    with layers.While(more).block():
        body()
        layers.increment(i)
        layers.less_than(i, end, cond=more)


def filled_in_place(value: Any) -> None:
    value.block.program.current_block().append_op(
        type="fill_any_like", inputs={"X": [value]}, outputs={"Out": [value]}, attrs={"value": 2.0, "dtype": -1}
    )


def an_element(x: Any) -> Any:
    at = number(0)
    array = layers.array_write(layers.scale(x, 3.0), at)
    layers.array_write(constant(), at, array)
    return add(layers.array_read(array, at), x)


def an_element_in_a_branch(x: Any) -> Any:
    at = number(0)
    array = layers.array_write(layers.scale(x, 3.0), at)
    small = layers.less_than(x, layers.fill_constant([1], "float64", 1.0))
    layers.cond(small, lambda: [layers.array_write(constant(), at, array), None][1])
    return add(layers.array_read(array, at), x)


def an_element_in_a_loop(x: Any) -> Any:
    """What the first step reads is 3 x; what the second and the sum read is constant."""
    at, total = number(0), layers.scale(x, 0.0)
    array = layers.array_write(layers.scale(x, 3.0), at)

    def step() -> None:
        layers.assign(add(total, layers.array_read(array, at)), total)
        layers.array_write(constant(), at, array)

    twice(step)
    return add(total, x, layers.array_read(array, at))


def an_element_of_the_step_before(x: Any) -> Any:
    """Each step overwrites 5 x of the step before, or 3 x in front of the loop, and reads the constant."""
    at, total = number(0), layers.scale(x, 0.0)
    array = layers.array_write(layers.scale(x, 3.0), at)

    def step() -> None:
        layers.array_write(constant(), at, array)
        layers.assign(add(total, layers.array_read(array, at)), total)
        layers.array_write(layers.scale(x, 5.0), at, array)

    twice(step)
    return add(total, layers.array_read(array, at))


def a_whole_array(x: Any) -> Any:
    at = number(0)
    array, other = (layers.array_write(layers.scale(x, factor), at) for factor in (3.0, 7.0))
    layers.assign(other, array)
    return add(layers.array_read(array, at), x)


def a_variable(x: Any) -> Any:
    value = layers.scale(x, 3.0)
    layers.assign(constant(), value)
    return add(value, x)


def a_variable_in_place(x: Any) -> Any:
    value = layers.scale(x, 3.0)
    filled_in_place(value)
    return add(value, x)


def a_variable_in_place_in_a_loop(x: Any) -> Any:
    value, total = layers.scale(x, 3.0), layers.scale(x, 0.0)

    def step() -> None:
        layers.assign(add(total, value), total)
        filled_in_place(value)

    twice(step)
    return add(total, value, x)


def a_variable_in_place_in_branches(x: Any) -> Any:
    """The branch inside reads the constant, so that its block computes a gradient of that name too."""
    value, limit = layers.scale(x, 3.0), layers.fill_constant([1], "float64", 9.0)

    def outer() -> Any:
        filled_in_place(value)
        return layers.cond(layers.less_than(value, limit), lambda: layers.tanh(value), lambda: layers.scale(value, 2.0))

    result = layers.cond(layers.less_than(x, limit), outer, lambda: layers.scale(x, 1.0))
    return add(result, value, x)


def what_was_read_of_an_element(x: Any) -> Any:
    """The loop overwrites what it has read, so no gradient reaches the element through that, nor the write before."""
    at, held = number(0), layers.fill_constant([1], "float64", 0.3)
    held.stop_gradient = False
    array = layers.array_write(layers.scale(x, 3.0), at)

    def step() -> None:
        layers.array_write(held, at, array)
        read = layers.array_read(array, at)
        layers.assign(layers.scale(x, 2.0), read)
        layers.assign(read, held)

    twice(step)
    return add(held, layers.array_read(array, at), x)


def what_a_dead_recurrence_read(x: Any) -> Any:
    """Its result is advanced by a loop of which another result is used: no gradient comes back to ``value``."""
    value, used = layers.tanh(x), layers.scale(x, 1.0)
    rnn = layers.StaticRNN()
    steps, start = layers.stack([value, value], axis=0), layers.scale(value, 1.0)
    with rnn.step():
        memory = rnn.memory(init=start)
        rnn.update_memory(memory, layers.tanh(layers.elementwise_add(memory, rnn.step_input(steps))))
        rnn.step_output(memory)
    dead = layers.reduce_sum(rnn(), dim=0)
    twice(lambda: [layers.increment(dead), layers.increment(used)])
    layers.assign(constant(), value)
    return add(layers.scale(value, 3.0), used)


def two_elements_read_in_a_loop(x: Any) -> Any:
    """Not overwritten: each step adds two gradients to the array's, which the loop does not write."""
    total, places = layers.scale(x, 0.0), [number(0), number(1)]
    array = layers.array_write(layers.scale(x, 3.0), places[0])
    layers.array_write(layers.scale(x, 4.0), places[1], array)
    twice(lambda: layers.assign(add(total, *(layers.array_read(array, at) for at in places)), total))
    return add(total, layers.array_read(array, places[0]))


def an_element_read_by_a_recurrence_in_a_branch(x: Any) -> Any:
    """Not overwritten: the recurrence adds to the gradient that the read after the branch has left."""
    at = number(0)
    array = layers.array_write(layers.scale(x, 3.0), at)

    def branch() -> Any:
        steps, start = layers.stack([x, x], axis=0), layers.scale(x, 0.0)
        rnn = layers.StaticRNN()
        with rnn.step():
            memory, _ = rnn.memory(init=start), rnn.step_input(steps)
            rnn.update_memory(memory, layers.elementwise_add(memory, layers.array_read(array, at)))
            rnn.step_output(layers.elementwise_add(memory, layers.array_read(array, at)))
        return layers.reduce_sum(rnn(), dim=0)

    small = layers.less_than(x, layers.fill_constant([1], "float64", 1.0))
    result = layers.cond(small, branch, lambda: layers.scale(x, 1.0))
    return add(result, layers.array_read(array, at))


def what_fed_a_loop_of_no_use(x: Any) -> Any:
    """The loop inside has no gradient, and so what it read of the step's first value gives none to ``value``."""
    value, none = layers.scale(x, 3.0), number(0)

    def step() -> None:
        read = layers.tanh(value)
        first = layers.scale(x, 2.0)
        layers.assign(layers.scale(first, 2.5), value)
        layers.while_loop(
            lambda i, *_: layers.less_than(i, none), lambda i, a, b, c: [i + 1, layers.tanh(c), b, c],
            [number(0), first, read, value],
        )  # fmt: skip

    twice(step)
    return add(value, x)


def an_element_written_by_one_of_two_branches(x: Any) -> Any:
    """Not overwritten: parts of an array's gradient are held in two ways, as the inner condition is not known."""
    limit, known = layers.fill_constant([1], "float64", 9.0), layers.fill_constant([1], "float64", 0.0)
    array = layers.array_write(layers.scale(x, 3.0), number(0))
    layers.array_write(layers.scale(x, 7.0), number(1), array)
    held = layers.array_read(array, number(0))

    def outer() -> Any:
        def write() -> Any:
            layers.array_write(layers.scale(x, 5.0), number(1), array)
            return layers.scale(x, 2.0)

        return layers.cond(layers.less_than(x, limit), write, lambda: layers.scale(x, 1.0))

    result = layers.cond(layers.less_than(known, limit), outer, lambda: layers.scale(x, 1.0))
    return add(result, held, layers.array_read(array, number(1)))


def a_value_in_loops_three_deep(x: Any) -> Any:
    """Not by a constant: x ** 9, of which each level keeps how often the loops inside it ran."""
    value = layers.scale(x, 1.0)
    twice(lambda: twice(lambda: twice(lambda: layers.assign(layers.elementwise_mul(value, x), value))))
    return value


SLOPES = {
    an_element: 1.0,
    an_element_in_a_branch: 1.0,
    an_element_in_a_loop: 4.0,
    an_element_of_the_step_before: 5.0,
    a_whole_array: 8.0,
    a_variable: 1.0,
    a_variable_in_place: 1.0,
    a_variable_in_place_in_a_loop: 4.0,
    a_variable_in_place_in_branches: 1.0,
    what_was_read_of_an_element: 5.0,
    what_a_dead_recurrence_read: 1.0,
    two_elements_read_in_a_loop: 17.0,
    an_element_read_by_a_recurrence_in_a_branch: 12.0,
    a_value_in_loops_three_deep: 9 * 0.5**8,
    what_fed_a_loop_of_no_use: 6.0,
    an_element_written_by_one_of_two_branches: 10.0,
}


def slope(make: Callable[[Any], Any]):
    def network():
        x = fluid.data("x", [1], "float64")
        x.stop_gradient = False
        return fluid.gradients([make(x)], [x])

    return build(network)


@pytest.mark.parametrize("interpret", [False, True], ids=["compiled", "op by op"])
@pytest.mark.parametrize("make", SLOPES, ids=lambda make: make.__name__)
def test_a_gradient_ends_where_its_value_is_overwritten(make: Callable[[Any], Any], interpret: bool) -> None:
    main, startup, fetch = slope(make)
    (d_x,) = run(main, startup, {"x": np.full(1, 0.5)}, fetch, interpret=interpret)
    np.testing.assert_allclose(d_x, [SLOPES[make]], rtol=1e-12)


def test_zeros_for_a_later_value_take_no_earlier_one_with_them() -> None:
    """The loop writes a value of no use, whose gradient is zeros under the name that ``read``'s gradient has too."""

    def network():
        x, y = (fluid.data(name, [1], "float64") for name in "xy")
        x.stop_gradient = y.stop_gradient = False
        value, other = layers.scale(x, 2.0), layers.scale(y, 5.0)
        read = layers.scale(value, 3.0)
        layers.assign(layers.assign(value), value)
        twice(lambda: [layers.assign(constant(), value), layers.assign(other, value), layers.assign(other, other)])
        filled_in_place(value)
        return fluid.gradients([add(read, other)], [x, y])

    main, startup, fetch = build(network)
    found = run(main, startup, {"x": np.full(1, 0.5), "y": np.full(1, 0.5)}, fetch)
    np.testing.assert_allclose(np.concatenate(found), [6.0, 5.0], rtol=1e-12)


def test_the_first_write_of_a_constant_has_no_grad_op() -> None:
    """As in Fluid: nothing was there whose gradient could end."""

    def make(x: Any) -> Any:
        array = layers.array_write(constant(), number(0))
        layers.array_write(layers.scale(x, 3.0), number(1), array)
        return add(layers.array_read(array, number(1)), x)

    main, _, _ = slope(make)
    assert sum(op.type == "read_from_array" for op in main.global_block().ops) == 2  # of the read and of one write


def test_the_steps_of_a_recurrence_may_take_other_branches_op_by_op() -> None:
    """Each step keeps what its own branch has computed; where both are known, only one of them runs."""

    def network():
        x = fluid.data("x", [1], "float64")
        x.stop_gradient = False
        steps, start = layers.stack([x, layers.scale(x, 4.0)], axis=0), layers.scale(x, 1.0)
        limit = layers.fill_constant([1], "float64", 1.0)
        rnn = layers.StaticRNN()
        with rnn.step():
            row, memory = rnn.step_input(steps), rnn.memory(init=start)
            large = layers.greater_than(row, limit)
            part = layers.cond(large, lambda: layers.scale(layers.square(row), 3.0), lambda: layers.tanh(row))
            rnn.update_memory(memory, layers.elementwise_mul(memory, part))
            rnn.step_output(layers.elementwise_mul(memory, part))
        loss = layers.reduce_sum(rnn())
        return [loss, *fluid.gradients([loss], [x])]

    main, startup, fetch = build(network)
    feed = {"x": np.full(1, 0.5)}
    compiled, stepwise = (run(main, startup, feed, fetch, interpret=interpret) for interpret in (False, True))
    step = np.tanh(0.5)
    first, d_first = 0.5 * step, step + 0.5 * (1 - step**2)
    np.testing.assert_allclose(np.concatenate(compiled), [first * 13, d_first * 13 + first * 48], rtol=1e-12)
    np.testing.assert_allclose(np.concatenate(stepwise), np.concatenate(compiled), rtol=1e-12)


def test_a_branch_inside_one_that_does_not_run_leaves_no_gradient() -> None:
    """The inner branches return what nothing has computed, op by op."""

    def network():
        x, other = (fluid.data(name, [1], "float64") for name in ("x", "other"))
        x.stop_gradient = other.stop_gradient = False
        held = layers.scale(x, 1.0)
        above, below = (layers.greater_than(x, layers.fill_constant([1], "float64", k)) for k in (9.0, -9.0))

        def overwritten() -> Any:
            layers.assign(constant(), other)
            return other

        def nested() -> Any:
            return layers.cond(below, lambda: layers.tanh(held), overwritten)

        inner = layers.cond(
            above, nested, lambda: layers.cond(below, lambda: layers.increment(held, 0.25), overwritten)
        )
        loss = add(inner, layers.scale(held, 3.0), other)
        return fluid.gradients([loss], [x, other])

    main, startup, fetch = build(network)
    feed = {"x": np.full(1, 0.5), "other": np.full(1, 0.5)}
    for interpret in (False, True):
        found = run(main, startup, feed, fetch, interpret=interpret)
        np.testing.assert_allclose(np.concatenate(found), [4.0, 1.0], rtol=1e-12)
