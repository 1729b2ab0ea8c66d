"""Gradients of nested loops, branches and recurrences, over variables that change, against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import fluidjax as fluid
from fluidjax.testing.nests import nests
from tests.control_flow.running import build, run

layers = fluid.layers
RANDOM = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def counting(body: Callable[[Any, Any], Any]):
    """d(x after the loop)/d(x, i) of ``while i < 4: x = body(i, x); i = increment(i)``, from x = 1, i = 0.5."""

    def network():
        x, start = fluid.data("x", [1], "float64"), fluid.data("i", [1], "float64")
        x.stop_gradient = start.stop_gradient = False
        limit = layers.fill_constant([1], "float64", 4.0)
        loop = [layers.scale(start, 1.0), layers.scale(x, 1.0)]

        def step(i, x):
            x = body(i, x)
            return [layers.increment(i), x]

        _, last = layers.while_loop(lambda i, x: layers.less_than(i, limit), step, loop)
        return [last, *fluid.gradients([last], [x, start])]

    return build(network)


@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize(
    "body, want",
    [
        (lambda i, x: x + i * i, [22.0, 1.0, 16.0]),
        (lambda i, x: i * i, [12.25, 0.0, 7.0]),
        (lambda i, x: x * i, [6.5625, 6.5625, 22.0]),
    ],
    ids=["added", "overwritten", "multiplied"],
)
def test_a_float_counter_advanced_by_increment_has_a_gradient(
    body: Callable[[Any, Any], Any], want: list[float], interpret: bool
) -> None:
    """At 0.5, 1.5, 2.5, 3.5: the gradient op of increment rewinds the counter, and lets its gradient pass."""
    main, startup, fetch = counting(body)
    got = run(main, startup, {"x": np.ones(1), "i": np.full(1, 0.5)}, fetch, interpret=interpret)
    np.testing.assert_allclose(np.concatenate(got), want, rtol=1e-12)


@pytest.mark.parametrize("interpret", [False, True])
def test_nested_loops_that_hand_a_variable_through(interpret: bool) -> None:
    """x is added once by the outer loop and twice by the inner one; both return it unchanged."""

    def network():
        x = fluid.data("x", [10], "float32")
        x.stop_gradient = False
        total = layers.fill_constant([10], "float32", 0.0)
        total.stop_gradient = False
        i, j = (layers.fill_constant([1], "int64", 0) for _ in range(2))
        one, two = (layers.fill_constant([1], "int64", k) for k in (1, 2))

        def inner(i, j, x, total):
            return [i, layers.increment(j), x, layers.elementwise_add(total, x)]

        def outer(i, j, x, total):
            total = layers.elementwise_add(total, x)
            j = layers.fill_constant([1], "int64", 0)
            i, j, x, total = layers.while_loop(lambda i, j, x, t: layers.less_than(j, two), inner, [i, j, x, total])
            return [layers.increment(i), j, x, total]

        total = layers.while_loop(lambda i, j, x, t: layers.less_than(i, one), outer, [i, j, x, total])[3]
        loss = layers.mean(total)
        return [loss, *fluid.gradients([loss], [x])]

    main, startup, fetch = build(network)
    loss, d_x = run(main, startup, {"x": np.ones(10, np.float32)}, fetch, interpret=interpret)
    assert loss.tolist() == [3.0]
    np.testing.assert_allclose(d_x, np.full(10, 0.3), rtol=1e-6)


def test_a_grad_op_reads_the_value_that_its_op_read() -> None:
    """y = x * x, then x is overwritten: outside of loops as well."""

    def network():
        x = fluid.data("x", [1], "float64")
        x.stop_gradient = False
        held = layers.scale(x, 1.0)
        square = layers.elementwise_mul(held, held)
        layers.assign(layers.scale(square, 5.0), held)
        loss = layers.reduce_sum(layers.elementwise_mul(square, held))  # 5 x^4
        return [loss, *fluid.gradients([loss], [x])]

    main, startup, fetch = build(network)
    loss, d_x = run(main, startup, {"x": np.full(1, 0.5)}, fetch)
    np.testing.assert_allclose([loss[0], d_x[0]], [5 * 0.5**4, 20 * 0.5**3], rtol=1e-12)


@pytest.mark.parametrize("interpret", [False, True])
def test_a_branch_inside_a_branch_takes_back_its_counters(interpret: bool) -> None:
    """The inner branch advances v in place; in front of both, x * v was computed from the v of before."""

    def network():
        x = fluid.data("x", [1], "float64")
        x.stop_gradient = False
        held = layers.scale(x, 1.0)
        product = layers.elementwise_mul(layers.scale(x, 3.0), held)
        positive = layers.greater_than(x, layers.fill_constant([1], "float64", 0.0))

        def advance():
            return layers.increment(held, 0.25)

        def nothing():
            return layers.scale(held, 1.0)

        result = layers.cond(positive, lambda: layers.cond(positive, advance, nothing), nothing)
        loss = layers.reduce_sum(layers.elementwise_add(product, result))
        return [held, *fluid.gradients([loss], [x])]

    main, startup, fetch = build(network)
    _, d_x = run(main, startup, {"x": np.full(1, 0.5)}, fetch, interpret=interpret)
    np.testing.assert_allclose(d_x, [4.0], rtol=1e-12)  # 6 x + 1


def overwrite(x: Any, held: Any) -> None:
    layers.assign(layers.scale(x, 3.0), held)


@pytest.mark.parametrize("loop", [False, True], ids=["cond", "While"])
@pytest.mark.parametrize("limit", [0.0, 9.0], ids=["runs", "does not run"])
def test_a_block_reads_what_a_block_inside_it_may_have_overwritten(limit: float, loop: bool) -> None:
    """held is 3 x where the inner block has run, else 2 y; the outer block returns tanh of it."""

    def network():
        x, y = (fluid.data(name, [1], "float64") for name in ("x", "y"))
        x.stop_gradient = y.stop_gradient = False
        held, result = layers.scale(y, 2.0), layers.scale(y, 1.0)
        small = layers.greater_than(x, layers.fill_constant([1], "float64", -1.0))

        def outer():
            large = layers.greater_than(x, layers.fill_constant([1], "float64", limit))
            layers.cond(large, lambda: overwrite(x, held))
            layers.assign(layers.tanh(held), result)

        if loop:
            with layers.While(small).block():
                outer()
                layers.assign(layers.greater_than(layers.fill_constant([1], "float64", -1.0), x), small)
        else:
            layers.cond(small, outer)
        loss = layers.reduce_sum(result)
        return [loss, *fluid.gradients([loss], [x, y])]

    main, startup, fetch = build(network)
    found = run(main, startup, {"x": np.full(1, 0.1), "y": np.full(1, 0.2)}, fetch)
    runs = limit < 0.1
    slope = 1 - np.tanh(0.3 if runs else 0.4) ** 2
    np.testing.assert_allclose(np.concatenate(found[1:]), [3 * slope, 0] if runs else [0, 2 * slope], atol=1e-12)


def test_what_a_branch_is_the_first_to_write_keeps_its_gradient() -> None:
    """The gradient of an IfElse's output can be fetched, as Paddle gives it: there is no value of before to end at."""

    def network():
        x = fluid.data("x", [2, 1], "float64")
        x.stop_gradient = False
        branches = layers.IfElse(layers.greater_than(x, layers.fill_constant([2, 1], "float64", 0.0)))
        with branches.true_block():
            branches.output(layers.scale(branches.input(x), 3.0))
        with branches.false_block():
            branches.output(layers.scale(branches.input(x), 5.0))
        (merged,) = branches()
        loss = layers.reduce_sum(layers.elementwise_mul(merged, merged))
        (d_x,) = fluid.gradients([loss], [x])
        merge = next(op for op in loss.block.ops if op.type == "merge_lod_tensor")
        return [d_x, *(f"{merge.input(slot)[0]}@GRAD" for slot in ("InTrue", "InFalse"))]

    main, startup, fetch = build(network)
    found = run(main, startup, {"x": np.array([[0.5], [-2.0]])}, fetch)
    assert [value.reshape(-1).tolist() for value in found] == [[9.0, -100.0], [3.0], [-20.0]]


def test_data_overwritten_before_it_is_used_has_no_gradient() -> None:
    def network():
        x = fluid.data("x", [1], "float64")
        x.stop_gradient = False
        two = layers.fill_constant([1], "float64", 2.0)
        two.stop_gradient = False
        layers.assign(two, x)
        loss = layers.reduce_sum(layers.elementwise_mul(x, x))
        return [loss, *fluid.gradients([loss], [x])]

    main, startup, fetch = build(network)
    loss, d_x = run(main, startup, {"x": np.full(1, 0.5)}, fetch)
    assert [loss[0], d_x[0]] == [4.0, 0.0]


def test_a_parameter_overwritten_before_it_is_used_has_no_gradient() -> None:
    def network():
        weight = layers.create_parameter([1], "float64", default_initializer=fluid.initializer.Constant(0.5))
        layers.assign(layers.scale(fluid.data("x", [1], "float64"), 2.0), weight)
        loss = layers.reduce_sum(layers.elementwise_mul(weight, weight))
        return [loss, *(gradient for _, gradient in fluid.backward.append_backward(loss))]

    main, startup, fetch = build(network)
    loss, gradient = run(main, startup, {"x": np.full(1, 0.5)}, fetch)
    assert [loss[0], gradient[0]] == [1.0, 0.0]


def product_of_steps(overwrite: Callable[[Any, Any], Any]):
    """The sum of a StaticRNN's x * x and x * x * 2x, whose inputs are overwritten after it, and d/dx."""

    def network():
        x = fluid.data("x", [1], "float64")
        x.stop_gradient = False
        steps, boot = layers.stack([x, layers.scale(x, 2.0)], axis=0), layers.scale(x, 1.0)
        rnn = layers.StaticRNN()
        with rnn.step():
            memory = rnn.memory(init=boot)
            product = layers.elementwise_mul(memory, rnn.step_input(steps))
            rnn.update_memory(memory, product)
            rnn.step_output(product)
        result = rnn()
        overwrite(steps, boot)
        loss = layers.reduce_sum(result)
        return [loss, *fluid.gradients([loss], [x])]

    return build(network)


def test_the_memory_a_static_rnn_began_with_may_be_overwritten() -> None:
    main, startup, fetch = product_of_steps(lambda steps, boot: layers.assign(layers.scale(boot, 7.0), boot))
    loss, d_x = run(main, startup, {"x": np.full(1, 0.5)}, fetch)
    np.testing.assert_allclose([loss[0], d_x[0]], [0.5, 2.5], rtol=1e-12)


def test_the_input_of_a_static_rnn_may_not_be_overwritten() -> None:
    with pytest.raises(ValueError, match="step_input 'stack_0.tmp_0' is overwritten after it"):
        product_of_steps(lambda steps, boot: layers.assign(layers.scale(steps, 7.0), steps))


@settings(RANDOM, max_examples=12)
@given(nests(("while_loop", "float_loop", "While"), depth=3))
def test_gradients_of_nested_loops(nest) -> None:
    nest.check()


@settings(RANDOM, max_examples=2)
@given(nests(("while_loop", "float_loop"), depth=2))
def test_gradients_of_compiled_nested_loops(nest) -> None:
    nest.check(interpret=False)


@settings(RANDOM, max_examples=12)
@given(nests(("cond",), depth=2))
def test_gradients_of_branches(nest) -> None:
    nest.check()


@settings(RANDOM, max_examples=5)
@given(nests(("StaticRNN", "DynamicRNN"), depth=1))
def test_gradients_of_recurrences(nest) -> None:
    nest.check()


@settings(RANDOM, max_examples=8)
@given(nests(("while_loop", "cond"), depth=2))
def test_gradients_of_branches_in_loops(nest) -> None:
    nest.check()


@settings(RANDOM, max_examples=4)
@given(nests(("while_loop", "float_loop", "While", "cond", "case", "switch_case"), depth=3))
def test_gradients_of_loops_and_branches_of_every_kind(nest) -> None:
    nest.check()


@settings(RANDOM, max_examples=4)
@given(nests(("StaticRNN", "DynamicRNN", "cond", "while_loop"), depth=2))
def test_gradients_of_recurrences_among_loops_and_branches(nest) -> None:
    nest.check()
