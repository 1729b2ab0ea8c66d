"""What loops save for their gradients, and what they need not: against jax.grad, and in the compiled HLO."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.framework.view import program_view
from lowering import Runner
from lowering.loops.facts import Affine, find_facts
from tests.control_flow.running import build, run

layers = fluid.layers
BATCH, WIDTH = 2, 3


def _integer(value: int) -> Any:
    return layers.fill_constant([1], "int64", value)


def _cell(before: Any, w: Any) -> Any:
    return layers.tanh(layers.matmul(before, w))


def one_cell(x, w):
    """The state lives in element 0, which each step overwrites."""
    i, n, zero = _integer(0), _integer(3), _integer(0)
    memory = layers.array_write(x, zero)
    cond = layers.less_than(i, n)
    with layers.While(cond).block():
        layers.array_write(_cell(layers.array_read(memory, zero), w), zero, memory)
        layers.increment(i, in_place=True)
        layers.less_than(i, n, cond=cond)
    return layers.reduce_sum(layers.array_read(memory, zero))


def one_cell_plain(x, w):
    for _ in range(3):
        x = jnp.tanh(x @ w)
    return x.sum()


def overwritten_in_place(x, w):
    """Each step replaces an element that it has read; what was there before the loop has a gradient of its own."""
    i, n = _integer(0), _integer(3)
    values = None
    for k in range(4):
        values = layers.array_write(layers.scale(x, float(k + 1)), _integer(k), values)
    cond = layers.less_than(i, n)
    with layers.While(cond).block():
        layers.array_write(_cell(layers.array_read(values, i), w), i, values)
        layers.increment(i, in_place=True)
        layers.less_than(i, n, cond=cond)
    return layers.sums([layers.reduce_sum(layers.array_read(values, _integer(k))) for k in range(4)])


def overwritten_in_place_plain(x, w):
    return sum(jnp.tanh((k + 1) * x @ w).sum() for k in range(3)) + (4 * x).sum()


def overwritten_before_reading(x, w):
    """Elements from before the loop are overwritten unread, so their own gradient is zero."""
    i, n = _integer(0), _integer(2)
    values = layers.array_write(layers.scale(x, 5.0), _integer(1), layers.array_write(x, _integer(0)))
    cond = layers.less_than(i, n)
    with layers.While(cond).block():
        before = layers.array_read(values, i)
        layers.increment(i, in_place=True)
        layers.array_write(_cell(before, w), i, values)
        layers.less_than(i, n, cond=cond)
    return layers.reduce_sum(layers.array_read(values, n))


def overwritten_before_reading_plain(x, w):
    return jnp.tanh(jnp.tanh(x @ w) @ w).sum()


def overwritten_after_the_loop(x, w):
    """The array is changed between the loop and its gradient."""
    i, n = _integer(0), _integer(3)
    memory = layers.array_write(x, i)
    cond = layers.less_than(i, n)
    with layers.While(cond).block():
        before = layers.array_read(memory, i)
        layers.increment(i, in_place=True)
        layers.array_write(_cell(before, w), i, memory)
        layers.less_than(i, n, cond=cond)
    last = layers.array_read(memory, n)
    layers.array_write(layers.scale(last, 10.0), _integer(1), memory)
    return layers.reduce_sum(layers.elementwise_add(last, layers.array_read(memory, _integer(1))))


def overwritten_after_the_loop_plain(x, w):
    for _ in range(3):
        x = jnp.tanh(x @ w)
    return 11 * x.sum()


def backwards(x, w):
    """The counter runs down, two elements at a time."""
    i, end = _integer(6), _integer(0)
    memory = layers.array_write(x, i)
    cond = layers.greater_than(i, end)
    with layers.While(cond).block():
        before = layers.array_read(memory, i)
        layers.increment(i, value=-2, in_place=True)
        layers.array_write(_cell(before, w), i, memory)
        layers.greater_than(i, end, cond=cond)
    return layers.reduce_sum(layers.array_read(memory, end))


backwards_plain = one_cell_plain

CASES = [
    (one_cell, one_cell_plain),
    (overwritten_in_place, overwritten_in_place_plain),
    (overwritten_before_reading, overwritten_before_reading_plain),
    (overwritten_after_the_loop, overwritten_after_the_loop_plain),
    (backwards, backwards_plain),
]


def _differentiated(network: Callable, batch: int = BATCH, width: int = WIDTH):
    def with_gradients():
        x = fluid.data("x", [batch, width], "float64")
        x.stop_gradient = False
        w = layers.create_parameter([width, width], "float64", name="w")
        loss = network(x, w)
        return [loss, *fluid.gradients([loss], [x, w])]

    return build(with_gradients)


def _compare(got: list, plain: Callable, x: np.ndarray, w: np.ndarray) -> None:
    with jax.enable_x64(True):
        value, (d_x, d_w) = jax.value_and_grad(plain, (0, 1))(jnp.asarray(x), jnp.asarray(w))
    np.testing.assert_allclose(got[0], [value], rtol=1e-11)
    np.testing.assert_allclose(got[1], d_x, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(got[2], d_w, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("network, plain", CASES, ids=lambda f: f.__name__)
def test_arrays_that_are_written_again(rng, network: Callable, plain: Callable) -> None:
    x, w = rng.normal(size=(BATCH, WIDTH)), rng.normal(size=(WIDTH, WIDTH))
    main, startup, fetch = _differentiated(network)
    _compare(run(main, startup, {"x": x}, fetch, {"w": w}), plain, x, w)


def until(x, w):
    """As many steps as are fed."""
    i, n = _integer(0), fluid.data("n", [1], "int64")
    memory = layers.array_write(x, i)
    cond = layers.less_than(i, n)
    with layers.While(cond).block():
        before = layers.array_read(memory, i)
        layers.increment(i, in_place=True)
        layers.array_write(layers.elementwise_add(_cell(before, w), layers.mul(x, w)), i, memory)
        layers.less_than(i, n, cond=cond)
    return layers.reduce_sum(layers.array_read(memory, i))


@pytest.mark.parametrize("batch, width", [(32, 16), (64, 3)])
def test_weight_gradients_of_fed_trip_counts(rng, batch: int, width: int) -> None:
    """Products after the loop, several of them for many steps (of 16 rows), and in the loop where rows are many."""
    x, w = rng.normal(size=(batch, width)), 0.3 * rng.normal(size=(width, width))
    main, startup, fetch = _differentiated(until, batch, width)
    for steps in (0, 1, 5, 41):

        def plain(x, w, steps=steps):
            state = x
            for _ in range(steps):
                state = jnp.tanh(state @ w) + x @ w
            return state.sum()

        got = run(main, startup, {"x": x, "n": np.array([steps])}, fetch, {"w": w})
        _compare(got, plain, x, w)


def _facts(network: Callable) -> Any:
    main, _, _ = _differentiated(network)
    view = program_view(main)
    op = next(o for o in view.blocks[0].ops if o.type == "while")
    runner, env = Runner(view), {"x": np.zeros((BATCH, WIDTH)), "w": np.zeros((WIDTH, WIDTH)), "n": np.array([3])}
    runner.run_ops(view.blocks[0].ops[: op.index], env)
    return find_facts(view, op, view.blocks[int(op.attrs["sub_block"])], env), op


def test_facts_of_a_memory_array() -> None:
    with jax.enable_x64(True):
        facts, op = _facts(until)
    (memory,) = facts.once
    assert sorted(facts.reads.values()) == [(memory, Affine(0, 1))]
    assert sorted(facts.writes.values()) == [(memory, Affine(1, 1))]
    assert Affine(1, 1) in facts.ends.values(), "the counter at the end of a step"


@pytest.mark.parametrize("network", [one_cell, overwritten_in_place, overwritten_after_the_loop])
def test_no_facts_where_elements_do_not_stay(network: Callable) -> None:
    with jax.enable_x64(True):
        facts, _ = _facts(network)
    assert facts.reads == {}
    assert facts.once == () or network is overwritten_after_the_loop
    assert facts.writes == {} or network is overwritten_in_place


# --- compiled -----------------------------------------------------------------------------------------------------


def _hlo(steps: int, batch: int, width: int) -> str:
    """An RNN over ``x`` with a fed trip count and room for ``steps``, its loss and its gradients."""

    def network():
        x = fluid.data("x", [batch, width], "float32")
        w = layers.create_parameter([width, width], "float32", name="w")
        loss = until(x, w)
        return [loss, *fluid.gradients([loss], [w])]

    main, _, fetch = build(network)
    view = program_view(main)
    scopes = next(op.output("StepScopes")[0] for op in main.global_block().ops if op.type == "while")

    def call(x, w, n):
        env = {"x": x, "w": w, "n": n}
        Runner(view, capacities={f"loop/{scopes}": steps}).run_block(0, env)
        return [env[v.name] for v in fetch]

    with jax.enable_x64(True):
        arguments = np.zeros((batch, width), "f"), np.zeros((width, width), "f"), np.array([3])
        return jax.jit(call).lower(*arguments).compile().as_text()


def _computation(text: str, name: str) -> str:
    start = re.search(rf"^(?:ENTRY )?%?{re.escape(name)} .*{{$", text, re.M)
    assert start is not None
    return text[start.end() : text.index("\n}", start.end())]


def _whole_buffers(body: str, steps: int, batch: int, width: int) -> list[str]:
    """The ops of a computation whose result has the size of a buffer over all steps, by what they are called."""
    shape = rf"f32\[(?:{steps}|{steps + 1}),{batch},{width}\]"
    found = re.findall(rf"^\s*(?:ROOT )?%([\w.\-]+) = {shape}\S* ([\w\-]+)\(", body, re.M)
    return [name if op == "fusion" else op for name, op in found if op not in ("get-tuple-element", "parameter")]


def test_work_on_whole_buffers_does_not_depend_on_the_capacity() -> None:
    """In the loops buffers are only updated in place; around them each is filled once, whatever its size."""
    batch, width = 5, 7
    counts = []
    for steps in (50, 800):
        text = _hlo(steps, batch, width)
        bodies = set(re.findall(r"body=%?([\w.\-]+)", text))
        inside = [op for body in bodies for op in _whole_buffers(_computation(text, body), steps, batch, width)]
        assert inside and all("dynamic-update-slice" in op for op in inside), inside
        entry = re.search(r"^ENTRY %?([\w.\-]+)", text, re.M)
        assert entry is not None
        counts.append(len(_whole_buffers(_computation(text, entry[1]), steps, batch, width)))
        loops = re.findall(r"= (\(.*\)) while\(", text)
        assert loops and not any(f"pred[{steps + 1}]" in carried for carried in loops), "no flags are carried"
    assert counts[0] == counts[1] <= 4
