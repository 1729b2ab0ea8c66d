"""While loops and their gradients, against jax.grad of a scan, finite differences and plain NumPy."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.framework.view import program_view
from lowering import LoDArray, Runner
from tests.control_flow.running import build, run

layers = fluid.layers
WIDTH = 3


def recurrent_sum(steps: int, extra_read: bool = False):
    """h' = tanh(h W + x) ``steps`` times through an array; the loss also reads element 1 when ``extra_read``."""

    def network():
        x = fluid.data("x", [2, WIDTH], "float64")
        x.stop_gradient = False
        w = layers.create_parameter([WIDTH, WIDTH], "float64", name="w")
        i = layers.fill_constant([1], "int64", 0)
        n = layers.fill_constant([1], "int64", steps)
        memory = layers.array_write(x, i)
        cond = layers.less_than(i, n)
        with layers.While(cond).block():
            before = layers.array_read(memory, i)
            after = layers.tanh(layers.elementwise_add(layers.matmul(before, w), x))
            layers.increment(i, in_place=True)
            layers.array_write(after, i, memory)
            layers.less_than(i, n, cond=cond)
        loss = layers.reduce_sum(layers.array_read(memory, n))
        if extra_read:
            one = layers.fill_constant([1], "int64", 1)
            loss = loss + 2.0 * layers.reduce_sum(layers.array_read(memory, one))
        return [loss, *fluid.gradients([loss], [x, w]), i]

    return build(network)


def scanned(x, w, steps: int, extra_read: bool):
    states = [x]
    for _ in range(steps):
        states.append(jnp.tanh(states[-1] @ w + x))
    return states[-1].sum() + (2.0 * states[1].sum() if extra_read else 0.0)


@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize("extra_read", [False, True])
def test_gradients_of_a_while_equal_those_of_its_scan(rng, interpret: bool, extra_read: bool) -> None:
    """An array element read in the loop and after it gets both gradients."""
    x, w = rng.normal(size=(2, WIDTH)), rng.normal(size=(WIDTH, WIDTH))
    main, startup, fetch = recurrent_sum(4, extra_read)
    got = run(main, startup, {"x": x}, fetch, {"w": w}, interpret)
    with jax.enable_x64(True):
        want = jax.value_and_grad(scanned, (0, 1))(x, w, 4, extra_read)
    np.testing.assert_allclose(got[0], [want[0]], rtol=1e-12)
    np.testing.assert_allclose(got[1], want[1][0], rtol=1e-10)
    np.testing.assert_allclose(got[2], want[1][1], rtol=1e-10)
    assert got[3].tolist() == [0], "the gradient of increment rewinds the counter"


def test_gradients_of_a_while_equal_finite_differences(rng) -> None:
    x, w = rng.normal(size=(2, WIDTH)), rng.normal(size=(WIDTH, WIDTH))
    main, startup, fetch = recurrent_sum(3, True)
    _, _, d_w, _ = run(main, startup, {"x": x}, fetch, {"w": w})
    direction, step = rng.normal(size=w.shape), 1e-6
    ends = [run(main, startup, {"x": x}, fetch[:1], {"w": w + s * step * direction})[0][0] for s in (1, -1)]
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(np.sum(d_w * direction), rel=1e-6)


def halving(limit: float = 1.0):
    """x is halved until its norm is below ``limit``: the number of steps depends on the data."""

    def network():
        x = fluid.data("x", [WIDTH], "float64")
        x.stop_gradient = False
        i = layers.fill_constant([1], "int64", 0)
        values = layers.array_write(x, i)
        top = layers.fill_constant([1], "float64", limit)
        cond = layers.greater_than(layers.reduce_sum(layers.abs(x)), top)
        with layers.While(cond).block():
            half = layers.scale(layers.array_read(values, i), 0.5)
            layers.increment(i, in_place=True)
            layers.array_write(half, i, values)
            layers.greater_than(layers.reduce_sum(layers.abs(half)), top, cond=cond)
        loss = layers.reduce_sum(layers.array_read(values, i))
        return [loss, *fluid.gradients([loss], [x])]

    return build(network)


@pytest.mark.parametrize("size, steps", [(0.1, 0), (16.0, 6), (3e7, 27)])
def test_trip_counts_that_depend_on_data(size: float, steps: int) -> None:
    """None at all, a few, and more than there was room for at first: the run is repeated with more."""
    x = np.full(WIDTH, size)
    main, startup, fetch = halving()
    loss, d_x = run(main, startup, {"x": x}, fetch)
    np.testing.assert_allclose(loss, [3 * size * 0.5**steps], rtol=1e-12)
    np.testing.assert_allclose(d_x, np.full(WIDTH, 0.5**steps), rtol=1e-12)


def test_a_loop_that_runs_no_step_has_zero_gradients(rng) -> None:
    main, startup, fetch = recurrent_sum(0)
    x, w = rng.normal(size=(2, WIDTH)), rng.normal(size=(WIDTH, WIDTH))
    loss, d_x, d_w, _ = run(main, startup, {"x": x}, fetch, {"w": w})
    np.testing.assert_allclose(loss, [x.sum()], rtol=1e-12)
    np.testing.assert_allclose(d_x, np.ones_like(x))
    np.testing.assert_array_equal(d_w, np.zeros_like(w))


@pytest.mark.parametrize("squared", [False, True])
def test_gradients_through_two_nested_loops(rng, squared: bool) -> None:
    """h' = h after three times tanh(h * w), twice: inner arrays and counters live in a step of the outer loop.

    ``squared`` multiplies by a copy, so that the inner loop's record holds one array under two names.
    """

    def network():
        w = layers.create_parameter([WIDTH], "float64", name="w")
        x = fluid.data("x", [WIDTH], "float64")
        i, two = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 2)
        outer = layers.array_write(x, i)
        cond = layers.less_than(i, two)
        with layers.While(cond).block():
            h = layers.array_read(outer, i)
            j, three = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
            inner = layers.array_write(h, j)
            again = layers.less_than(j, three)
            with layers.While(again).block():
                h = layers.tanh(layers.elementwise_mul(layers.array_read(inner, j), w))
                h = layers.elementwise_mul(layers.assign(h), h) if squared else h
                layers.increment(j, in_place=True)
                layers.array_write(h, j, inner)
                layers.less_than(j, three, cond=again)
            last = layers.array_read(inner, three)
            layers.increment(i, in_place=True)
            layers.array_write(last, i, outer)
            layers.less_than(i, two, cond=cond)
        loss = layers.reduce_sum(layers.array_read(outer, two))
        return [loss, *fluid.gradients([loss], [w])]

    def plain(w, x):
        for _ in range(6):
            x = jnp.tanh(x * w)
            x = x * x if squared else x
        return x.sum()

    x, w = rng.normal(size=WIDTH), rng.normal(size=WIDTH)
    main, startup, fetch = build(network)
    loss, d_w = run(main, startup, {"x": x}, fetch, {"w": w})
    with jax.enable_x64(True):
        want, d_want = jax.value_and_grad(plain)(w, x)
    np.testing.assert_allclose(loss, [want], rtol=1e-12)
    np.testing.assert_allclose(d_w, d_want, rtol=1e-10)


def test_an_outer_variable_assigned_in_a_loop_has_the_right_gradient(rng) -> None:
    """s = s * w three times by assign: the reference's weight gradient is wrong here."""

    def network():
        w = layers.create_parameter([WIDTH], "float64", name="w")
        x = fluid.data("x", [WIDTH], "float64")
        x.stop_gradient = False
        s = layers.scale(x, 1.0)
        i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
        cond = layers.less_than(i, n)
        with layers.While(cond).block():
            layers.assign(layers.elementwise_mul(s, w), s)
            layers.increment(i, in_place=True)
            layers.less_than(i, n, cond=cond)
        loss = layers.reduce_sum(s)
        return [loss, *fluid.gradients([loss], [x, w])]

    x, w = rng.normal(size=WIDTH), rng.normal(size=WIDTH)
    main, startup, fetch = build(network)
    loss, d_x, d_w = run(main, startup, {"x": x}, fetch, {"w": w})
    np.testing.assert_allclose(loss, [np.sum(x * w**3)], rtol=1e-12)
    np.testing.assert_allclose(d_x, w**3, rtol=1e-12)
    np.testing.assert_allclose(d_w, 3 * x * w**2, rtol=1e-12)


def test_while_loop_function_and_its_results() -> None:
    def network():
        i = layers.fill_constant([1], "int64", 0)
        total = layers.fill_constant([1], "float32", 0.0)
        n = fluid.data("n", [1], "int64")
        done = layers.while_loop(
            lambda i, total: layers.less_than(i, n),
            lambda i, total: [i + 1, total + layers.cast(i, "float32")],
            [i, total],
        )
        return done

    main, startup, fetch = build(network)
    for n in (0, 1, 40):
        i, total = run(main, startup, {"n": np.array([n])}, fetch)
        assert (i.tolist(), total.tolist()) == ([n], [n * (n - 1) / 2])


def test_no_copy_of_a_whole_buffer_inside_the_compiled_loops() -> None:
    """Of a DynamicRNN and its gradient: what is stacked over the steps is written and read in place."""
    steps, batch, width = 12, 5, 7

    def network():
        x = fluid.data("x", [None, width], "float32", lod_level=1)
        x.stop_gradient = False
        w = layers.create_parameter([width, width], "float32", name="w")
        rnn = layers.DynamicRNN()
        with rnn.block():
            word, before = rnn.step_input(x), rnn.memory(shape=[width])
            after = layers.tanh(layers.elementwise_add(layers.matmul(before, w), word))
            rnn.update_memory(before, after)
            rnn.output(after)
        loss = layers.reduce_sum(layers.sequence_last_step(rnn()))
        return [loss, *fluid.gradients([loss], [x, w])]

    main, _, fetch = build(network)
    view = program_view(main)

    def call(x, lod, w):
        env = {"x": LoDArray(x, (lod,), lod[-1], None, (steps,)), "w": w}
        Runner(view).run_block(0, env)
        return [getattr(env[v.name], "data", env[v.name]) for v in fetch]

    x = np.zeros((steps * batch, width), np.float32)
    lod = np.arange(batch + 1, dtype=np.int32) * steps
    with jax.enable_x64(True):
        text = jax.jit(call).lower(x, lod, np.eye(width, dtype=np.float32)).compile().as_text()
    bodies = set(re.findall(r"body=%?([\w.\-]+)", text))
    assert bodies
    stacked = rf"f32\[(?:{steps}|{steps + 1}),{batch},{width}\]"
    inside, with_buffers = [], 0
    for name in bodies:
        start = re.search(rf"^%?{re.escape(name)} .*{{$", text, re.M)
        assert start is not None
        body = text[start.end() : text.index("\n}", start.end())]
        with_buffers += bool(re.search(stacked, body))
        inside += re.findall(rf"= {stacked}\S* copy(?:-start)?\(.*", body)
    assert with_buffers >= 2, "the forward and the backward loop carry stacked buffers"
    assert inside == []


@pytest.mark.parametrize("interpret", [False, True])
def test_a_loop_around_a_host_op_draws(interpret: bool) -> None:
    """The loop runs op by op, and its dropout draws as in any other program: another mask in each iteration."""

    def network() -> list[Any]:
        ones, step = layers.fill_constant([64], "float32", 1.0), layers.fill_constant([1], "int64", 0)
        masks = [layers.fill_constant([64], "float32", 0.0) for _ in range(2)]

        def body(step: Any, last: Any, before: Any) -> list[Any]:
            drawn = layers.dropout(ones, 0.5, dropout_implementation="upscale_in_train")
            made = drawn.block.create_var(name="made", shape=[64], dtype="float32")
            return [step + 1, layers.py_func(np.array, drawn, made), layers.assign(last)]

        return layers.while_loop(lambda step, *_: step < 2, body, [step, *masks])[1:]

    main, startup, fetch = build(network)
    last, before = run(main, startup, {}, fetch, interpret=interpret)
    assert set(last) == set(before) == {0.0, 2.0}
    assert (last != before).any()
