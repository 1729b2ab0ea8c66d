"""Several backward passes through one loop or branch: each is the derivative, as if it were alone in its program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.framework.view import program_view
from lowering import Runner
from lowering.errors import LoweringError
from tests.control_flow.running import build, ragged, run

pytestmark = pytest.mark.usefixtures("compiled_quickly")

layers = fluid.layers
STEPS, BATCH, WIDTH = 3, 2, 3


def _parameters() -> tuple[Any, Any]:
    return tuple(layers.create_parameter([WIDTH, WIDTH], "float64", name=name) for name in ("wx", "wh"))


def _start() -> Any:
    start = fluid.data("start", [BATCH, WIDTH], "float64")
    start.stop_gradient = False
    return start


def _next(row: Any, before: Any, wx: Any, wh: Any) -> Any:
    return layers.tanh(layers.elementwise_add(layers.mul(row, wx), layers.mul(before, wh)))


def while_loop(read_by_counter: bool = False):
    """h' = tanh(x wx + h wh); the losses: mean of the last h, and of h * h in the second step."""
    x, start, (wx, wh) = fluid.data("x", [STEPS, BATCH, WIDTH], "float64"), _start(), _parameters()
    i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", STEPS)
    memory, squares, inputs = layers.array_write(start, i), layers.create_array("float64"), None
    for k, row in enumerate(layers.split(x, STEPS, dim=0)):
        at = layers.fill_constant([1], "int64", k)
        inputs = layers.array_write(layers.reshape(row, [BATCH, WIDTH]), at, inputs)
    cond = layers.less_than(i, n)
    with layers.While(cond).block():
        after = _next(layers.array_read(inputs, i), layers.array_read(memory, i), wx, wh)
        layers.array_write(layers.elementwise_mul(after, after), i, squares)
        layers.increment(i, in_place=True)
        layers.array_write(after, i, memory)
        layers.less_than(i, n, cond=cond)
    last = layers.array_read(memory, i if read_by_counter else n)
    one = layers.fill_constant([1], "int64", 1)
    return layers.mean(last), layers.mean(layers.array_read(squares, one)), [wx, wh, start]


def while_read_by_counter():
    """The counter after the loop is an index: the first pass rewinds it."""
    return while_loop(True)


def dynamic_rnn():
    x, start, (wx, wh) = fluid.data("words", [None, WIDTH], "float64", lod_level=1), _start(), _parameters()
    rnn = layers.DynamicRNN()
    with rnn.block():
        word, before = rnn.step_input(x), rnn.memory(init=start)
        after = _next(word, before, wx, wh)
        rnn.update_memory(before, after)
        rnn.output(after, layers.elementwise_mul(after, after))
    states, squares = rnn()
    return (
        layers.mean(layers.sequence_last_step(states)),
        layers.mean(layers.sequence_pool(squares, "sum")),
        [
            wx,
            wh,
            start,
        ],
    )


def static_rnn():
    x, start, (wx, wh) = fluid.data("x", [STEPS, BATCH, WIDTH], "float64"), _start(), _parameters()
    rnn = layers.StaticRNN()
    with rnn.step():
        row, before = rnn.step_input(x), rnn.memory(init=start)
        after = _next(row, before, wx, wh)
        rnn.update_memory(before, after)
        rnn.step_output(after)
        rnn.step_output(layers.elementwise_mul(after, after))
    states, squares = rnn()
    return layers.mean(states), layers.mean(squares), [wx, wh, start]


def cond():
    x, start, (wx, wh) = fluid.data("x", [STEPS, BATCH, WIDTH], "float64"), _start(), _parameters()

    def small():
        state = layers.tanh(layers.mul(start, wx))
        return state, layers.elementwise_mul(state, start)

    def large():
        state = layers.mul(start, wh)
        return state, layers.elementwise_mul(state, state)

    limit = layers.fill_constant([1], "float64", 1e6)
    first, second = layers.cond(layers.less_than(layers.reduce_sum(x), limit), small, large)
    return layers.mean(first), layers.mean(second), [wx, wh, start]


def cond_in_while():
    """A branch inside a loop: the second pass goes through two gradient blocks."""
    start, (wx, wh) = _start(), _parameters()
    i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", STEPS)
    one = layers.fill_constant([1], "int64", 1)
    memory, squares = layers.array_write(start, i), layers.create_array("float64")
    running = layers.less_than(i, n)
    with layers.While(running).block():
        before = layers.array_read(memory, i)
        after = layers.cond(
            layers.less_than(i, one),
            lambda: layers.tanh(layers.mul(before, wx)),
            lambda: layers.mul(before, wh),
        )
        layers.array_write(layers.elementwise_mul(after, after), i, squares)
        layers.increment(i, in_place=True)
        layers.array_write(after, i, memory)
        layers.less_than(i, n, cond=running)
    return layers.mean(layers.array_read(memory, n)), layers.mean(layers.array_read(squares, one)), [wx, wh, start]


NETWORKS = [while_loop, while_read_by_counter, dynamic_rnn, static_rnn, cond, cond_in_while]


def _values(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {name: 0.5 * rng.normal(size=(WIDTH, WIDTH)) for name in ("wx", "wh")}


def _feed(network: Callable, rng: np.random.Generator) -> dict[str, Any]:
    feed: dict[str, Any] = {"start": rng.normal(size=(BATCH, WIDTH))}
    if network is dynamic_rnn:
        feed["words"] = ragged(rng.normal(size=(STEPS + 1, WIDTH)), [1, STEPS])
    elif network is not cond_in_while:
        feed["x"] = rng.normal(size=(STEPS, BATCH, WIDTH))
    return feed


def _gradients(network: Callable, order: tuple[int, ...], feed: dict, values: dict, interpret: bool = False) -> list:
    """The gradients of the losses ``order`` of a network, in one program, one after another."""

    def passes():
        *losses, inputs = network()
        return [g for k in order for g in fluid.gradients([losses[k]], inputs)]

    main, startup, fetch = build(passes)
    flat = run(main, startup, feed, fetch, values, interpret)
    return [flat[3 * k : 3 * k + 3] for k in range(len(order))]


@pytest.mark.parametrize("network", NETWORKS)
def test_each_of_two_passes_is_the_derivative(rng, network: Callable) -> None:
    feed, values = _feed(network, rng), _values(rng)
    alone = [_gradients(network, (k,), feed, values)[0] for k in (0, 1)]
    assert all(np.abs(g).max() > 1e-3 for single in alone for g in single[2:]), "the start matters to both losses"
    for order in ((0, 1), (1, 0)):
        for k, got in zip(order, _gradients(network, order, feed, values), strict=True):
            for mine, want in zip(got, alone[k], strict=True):
                np.testing.assert_allclose(mine, want, rtol=1e-11, atol=1e-14)


def test_two_passes_step_by_step_and_a_pass_repeated(rng) -> None:
    network = while_read_by_counter
    feed, values = _feed(network, rng), _values(rng)
    first, second, again = _gradients(network, (0, 1, 0), feed, values, interpret=True)
    for mine, want in zip(first, again, strict=True):
        np.testing.assert_allclose(mine, want, rtol=1e-12)
    for mine, want in zip(second, _gradients(network, (1,), feed, values)[0], strict=True):
        np.testing.assert_allclose(mine, want, rtol=1e-11, atol=1e-14)


def test_two_passes_equal_jax_grad(rng) -> None:
    feed, values = _feed(while_loop, rng), _values(rng)

    def losses(wx, wh, start):
        state, states = start, []
        for row in feed["x"]:
            state = jnp.tanh(row @ wx + state @ wh)
            states.append(state)
        return state.mean(), (states[1] ** 2).mean()

    with jax.enable_x64(True):
        point = (values["wx"], values["wh"], feed["start"])
        want = [jax.grad(lambda *a, k=k: losses(*a)[k], (0, 1, 2))(*point) for k in (1, 0)]
    for mine, theirs in zip(_gradients(while_loop, (1, 0), feed, values), want, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14)


def test_an_array_that_only_the_other_loss_reads_behind_the_loop(rng) -> None:
    """In the loop both losses go through both arrays; after it each reads one, and the first pass leaves nothing."""

    def network():
        start, (wx, wh) = _start(), _parameters()
        i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", STEPS)
        left, right = layers.array_write(start, i), layers.array_write(layers.scale(start, 2.0), i)
        running = layers.less_than(i, n)
        with layers.While(running).block():
            a, b = layers.array_read(left, i), layers.array_read(right, i)
            layers.increment(i, in_place=True)
            layers.array_write(layers.tanh(layers.mul(b, wx)), i, left)
            layers.array_write(layers.tanh(layers.mul(a, wh)), i, right)
            layers.less_than(i, n, cond=running)
        last = [layers.array_read(array, n) for array in (left, right)]
        return layers.mean(last[0]), layers.reduce_sum(layers.square(last[1])), [wx, wh, start]

    feed, values = {"start": rng.normal(size=(BATCH, WIDTH))}, _values(rng)
    for order in ((0, 1), (1, 0)):
        for k, got in zip(order, _gradients(network, order, feed, values), strict=True):
            for mine, want in zip(got, _gradients(network, (k,), feed, values)[0], strict=True):
                np.testing.assert_allclose(mine, want, rtol=1e-11, atol=1e-14)


def test_a_loss_that_is_built_after_the_first_pass_reads_the_rewound_counter(rng) -> None:
    """Forward ops after a backward pass see the counter rewound, and so do their gradients."""

    def network():
        first, _, inputs = while_loop()
        one = [*fluid.gradients([first], inputs)]
        block = fluid.default_main_program().global_block()
        memory = block.var("array_write_0.out")
        i = block.var("fill_constant_0.tmp_0")
        two = fluid.gradients([layers.reduce_sum(layers.array_read(memory, i))], inputs[2:])
        return [*one, *two]

    feed, values = _feed(while_loop, rng), _values(rng)
    main, startup, fetch = build(network)
    got = run(main, startup, feed, fetch, values)
    for mine, want in zip(got, _gradients(while_loop, (0,), feed, values)[0], strict=False):
        np.testing.assert_allclose(mine, want, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(got[3], np.ones((BATCH, WIDTH)))


def test_two_optimizers_through_one_loop(rng) -> None:
    """Each trains its own parameter by its own loss."""

    def network():
        first, second, _ = while_loop()
        fluid.optimizer.SGD(1.0).minimize(first, parameter_list=["wx"])
        fluid.optimizer.SGD(1.0).minimize(second, parameter_list=["wh"])
        return [first.block.var("wx"), first.block.var("wh")]

    feed, values = _feed(while_loop, rng), _values(rng)
    main, startup, fetch = build(network)
    wx, wh = run(main, startup, feed, fetch, values)
    alone = [_gradients(while_loop, (k,), feed, values)[0] for k in (0, 1)]
    np.testing.assert_allclose(wx, values["wx"] - alone[0][0], rtol=1e-10)
    # The second pass runs after the first update, on the states of this run: wh's own gradient reads no wx.
    np.testing.assert_allclose(wh, values["wh"] - alone[1][1], rtol=1e-10)


@pytest.mark.parametrize("network", [while_loop, dynamic_rnn, static_rnn, cond])
def test_a_gradient_of_a_gradient_is_refused(network: Callable) -> None:
    def twice(constant: bool):
        loss, _, inputs = network()
        (gradient,) = fluid.gradients([loss], inputs[:1])
        gradient.stop_gradient = constant
        penalty = layers.reduce_sum(layers.square(gradient))
        return fluid.gradients([layers.elementwise_add(loss, penalty)], inputs[:1])

    with pytest.raises(
        ValueError, match=r"wx@GRAD, which op (while|recurrent|conditional_block)_grad computes"
    ) as told:
        build(lambda: twice(False))
    assert "expected:" in str(told.value) and "stop_gradient = True" in str(told.value)
    build(lambda: twice(True))


def test_a_gradient_that_does_not_reach_the_loop_is_no_zero(rng) -> None:
    """A program whose names do not fit: the gradient after the loop is computed, but while_grad reads another."""
    main, startup, _ = build(lambda: [fluid.gradients([while_loop()[0]], [_var("wx")])])
    block = main.global_block()
    reader = next(op for op in block.ops if op.type == "while_grad")
    (produced,) = [n for n in reader.input("Out@GRAD") if n.startswith("array_write_0.out")]
    renamed = [n + "@RENAME@block0@7" if n == produced else n for n in reader.input("Out@GRAD")]
    reader.desc.set_input("Out@GRAD", renamed)
    main._descs_changed()
    feed = _feed(while_loop, rng)
    env = {**feed, **_values(rng)}
    with pytest.raises(LoweringError, match=r"no value for 'array_write_0\.out@GRAD@RENAME@block0@7'"):
        with jax.enable_x64(True):
            Runner(program_view(main)).run_block(0, env)


def _var(name: str) -> Any:
    return fluid.default_main_program().global_block().var(name)
