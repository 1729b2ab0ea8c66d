"""The gradient ops of arrays, rank tables, loops and branches: small programs with each of them, in float64.

Each program's gradients, by Fluid's own backward pass, are held against jax's forward-mode derivative of the lowered
forward ops (loops with traced bounds have no reverse mode) and against central differences, along random directions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest

import fluidjax as fluid
import lowering
from fluidjax.framework.view import program_view
from lowering import LoDArray, Runner
from lowering.values import data_of
from tests.control_flow.running import build, ragged, run

layers, flow = fluid.layers, fluid.layers.control_flow
LENGTHS = [2, 0, 3, 1]
ROWS, WIDTH, STEP = sum(LENGTHS), 3, 1e-6


def data(name: str, shape: list[Any], lod_level: int = 0) -> Any:
    var = fluid.data(name, shape, "float64", lod_level=lod_level)
    var.stop_gradient = False
    return var


def number(value: int) -> Any:
    return layers.fill_constant([1], "int64", value)


def square(x: Any) -> Any:
    return layers.elementwise_mul(x, x)


def weighted(out: Any, x: Any) -> Any:
    """sum of out^2 * x: a loss that tells the places of out apart."""
    return layers.reduce_sum(layers.elementwise_mul(square(out), x))


def steps_and_back() -> tuple[Any, list[Any]]:
    x = data("x", [None, WIDTH], 1)
    table = flow.lod_rank_table(x)
    steps = flow.lod_tensor_to_array(x, table)
    first = layers.array_read(steps, number(0))
    back = flow.array_to_lod_tensor(steps, table)
    return layers.elementwise_add(weighted(back, x), layers.reduce_sum(layers.tanh(first))), [x]


def ranked() -> tuple[Any, list[Any]]:
    x, dense = data("x", [None, WIDTH], 1), data("dense", [len(LENGTHS), WIDTH])
    table = flow.lod_rank_table(x)
    rows = layers.reorder_lod_tensor_by_rank(dense, table)
    whole = layers.reorder_lod_tensor_by_rank(x, table)
    return layers.elementwise_add(weighted(rows, dense), weighted(whole, x)), [x, dense]


def shrunken() -> tuple[Any, list[Any]]:
    x, dense = data("x", [None, WIDTH], 1), data("dense", [len(LENGTHS), WIDTH])
    table = flow.lod_rank_table(x)
    parts = [layers.reduce_sum(square(flow.shrink_memory(dense, number(i), table))) for i in range(3)]
    return layers.sums([*parts, layers.reduce_sum(x)]), [dense]


def split_and_merged() -> tuple[Any, list[Any]]:
    x = data("dense", [len(LENGTHS), WIDTH])
    first = layers.slice(x, [1], [0], [1])
    mask = layers.less_than(first, layers.fill_constant([len(LENGTHS), 1], "float64", 0.0))
    true, false = flow.split_lod_tensor(x, mask)
    return weighted(flow.merge_lod_tensor(layers.tanh(true), square(false), x, mask), x), [x]


def sequences_split_and_merged() -> tuple[Any, list[Any]]:
    x, choice = data("x", [None, WIDTH], 1), data("dense", [len(LENGTHS), WIDTH])
    first = layers.slice(choice, [1], [0], [1])
    mask = layers.less_than(first, layers.fill_constant([len(LENGTHS), 1], "float64", 0.0))
    true, false = flow.split_lod_tensor(x, mask)
    return weighted(flow.merge_lod_tensor(layers.tanh(true), square(false), x, mask), x), [x]


def elements() -> tuple[Any, list[Any]]:
    """Two elements, one of them read twice, joined along an axis and stacked."""
    x, y = data("x", [2, WIDTH]), data("y", [2, WIDTH])
    array = layers.array_write(layers.tanh(y), number(1), layers.array_write(square(x), number(0)))
    reads = [layers.array_read(array, number(i)) for i in (0, 1, 1)]
    joined, _ = layers.tensor_array_to_tensor(array, axis=1)
    stacked, _ = layers.tensor_array_to_tensor(array, axis=0, use_stack=True)
    parts = [layers.reduce_sum(square(v)) for v in (*reads, layers.tanh(joined), layers.sigmoid(stacked))]
    return layers.sums(parts), [x, y]


def selected(which: int) -> Callable[[], tuple[Any, list[Any]]]:
    def network() -> tuple[Any, list[Any]]:
        x, y = data("x", [2, WIDTH]), data("y", [2, WIDTH])
        mask = layers.fill_constant([1], "int32", which)
        block = fluid.default_main_program().global_block()
        ways = [block.create_var(name=f"way{i}", shape=[2, WIDTH], dtype="float64") for i in range(2)]
        flow.select_output(square(x), ways, mask)
        chosen = flow.select_input(ways, mask)
        return layers.reduce_sum(layers.elementwise_mul(layers.tanh(chosen), layers.elementwise_add(x, y))), [x, y]

    return network


def branch() -> tuple[Any, list[Any]]:
    x, y = data("x", [2, WIDTH]), data("y", [2, WIDTH])
    small = layers.less_than(layers.reduce_sum(x), layers.fill_constant([1], "float64", 0.0))
    out = layers.cond(small, lambda: layers.elementwise_mul(layers.tanh(x), y), lambda: square(x))
    return weighted(out, x), [x, y]


def loop() -> tuple[Any, list[Any]]:
    x, w = data("x", [2, WIDTH]), data("w", [WIDTH, WIDTH])
    i, n = number(0), number(3)
    memory = layers.array_write(x, i)
    again = layers.less_than(i, n)
    with layers.While(again).block():
        after = layers.tanh(layers.matmul(layers.array_read(memory, i), w))
        layers.increment(i, in_place=True)
        layers.array_write(after, i, memory)
        layers.less_than(i, n, cond=again)
    return layers.reduce_sum(square(layers.array_read(memory, n))), [x, w]


def recurrence() -> tuple[Any, list[Any]]:
    x, h, w = data("x", [4, 2, WIDTH]), data("y", [2, WIDTH]), data("w", [WIDTH, WIDTH])
    rnn = layers.StaticRNN()
    with rnn.step():
        row, before = rnn.step_input(x), rnn.memory(init=h)
        after = layers.tanh(layers.elementwise_add(layers.matmul(before, w), row))
        rnn.update_memory(before, after)
        rnn.step_output(after)
    return layers.reduce_sum(square(rnn())), [x, h, w]


def shown() -> tuple[Any, list[Any]]:
    x = data("x", [2, WIDTH])
    return weighted(layers.Print(square(x), first_n=1, summarize=0), x), [x]


@dataclass(frozen=True)
class Case:
    """A network, the ops whose gradients it proves, and the shapes of what it is fed; "rows" has the LoD."""

    name: str
    ops: tuple[str, ...]
    network: Callable[[], tuple[Any, list[Any]]]
    feed: dict[str, tuple[int, ...]]


_RAGGED, _DENSE = {"x": (ROWS, WIDTH)}, {"dense": (len(LENGTHS), WIDTH)}
_PAIR, _SQUARE = {"x": (2, WIDTH), "y": (2, WIDTH)}, {"w": (WIDTH, WIDTH)}
CASES = [
    Case("steps", ("lod_tensor_to_array", "array_to_lod_tensor", "read_from_array"), steps_and_back, _RAGGED),
    Case("ranked", ("reorder_lod_tensor_by_rank",), ranked, {**_RAGGED, **_DENSE}),
    Case("shrunken", ("shrink_rnn_memory",), shrunken, {**_RAGGED, **_DENSE}),
    Case("rows-by-mask", ("split_lod_tensor", "merge_lod_tensor"), split_and_merged, _DENSE),
    Case(
        "sequences-by-mask",
        ("split_lod_tensor", "merge_lod_tensor"),
        sequences_split_and_merged,
        {**_RAGGED, **_DENSE},
    ),
    Case("elements", ("write_to_array", "read_from_array", "tensor_array_to_tensor"), elements, _PAIR),
    Case("selected-0", ("select_input", "select_output"), selected(0), _PAIR),
    Case("selected-1", ("select_input", "select_output"), selected(1), _PAIR),
    Case("branch", ("conditional_block", "select_input"), branch, _PAIR),
    Case("loop", ("while", "write_to_array", "read_from_array"), loop, {"x": (2, WIDTH), **_SQUARE}),
    Case(
        "recurrence", ("recurrent", "rnn_memory_helper"), recurrence, {"x": (4, 2, WIDTH), "y": (2, WIDTH), **_SQUARE}
    ),
    Case("shown", ("print",), shown, {"x": (2, WIDTH)}),
]
PROVEN = {op for case in CASES for op in case.ops} | {"py_func"}


def is_ragged(name: str, values: dict[str, np.ndarray]) -> bool:
    return name == "x" and len(values[name]) == ROWS


def feed_of(values: dict[str, np.ndarray]) -> dict[str, Any]:
    return {n: ragged(v, LENGTHS) if is_ragged(n, values) else v for n, v in values.items()}


def loss_and_slope(main: Any, loss: str, values: dict[str, np.ndarray], direction: dict[str, np.ndarray]) -> Any:
    """The loss of the forward ops alone and its derivative along ``direction``, by ``jax.jvp``."""
    view = program_view(main)
    forward = [op for op in view.blocks[0].ops if not op.is_backward and op.type not in ("feed", "fetch")]
    offsets = np.concatenate([[0], np.cumsum(LENGTHS)]).astype(np.int32)

    def objective(t: Any) -> Any:
        env: dict[str, Any] = {}
        for name, value in values.items():
            moved = value + t * direction[name]
            env[name] = LoDArray(moved, (offsets,)) if is_ragged(name, values) else moved
        return data_of(Runner(view, key=jax.random.key(0)).run_ops(forward, env)[loss]).reshape(())

    with jax.enable_x64(True):
        return jax.jvp(objective, (0.0,), (1.0,))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_gradients_are_derivatives(case: Case, rng: np.random.Generator) -> None:
    def network() -> tuple[Any, list[Any], list[Any]]:
        loss, wrt = case.network()
        return loss, wrt, fluid.gradients([loss], wrt)

    main, startup, (loss, wrt, grads) = build(network)
    present = {op.type for block in main.blocks for op in block.ops}
    assert set(case.ops) <= present
    values = {name: rng.standard_normal(shape) for name, shape in case.feed.items()}
    got = dict(zip([v.name for v in wrt], run(main, startup, feed_of(values), grads), strict=True))
    direction = {n: rng.standard_normal(v.shape) * (n in got) for n, v in values.items()}
    ours = sum(float(np.sum(np.asarray(g).reshape(values[n].shape) * direction[n])) for n, g in got.items())
    value, slope = loss_and_slope(main, loss.name, values, direction)
    ends = [
        float(run(main, startup, feed_of({n: v + s * direction[n] for n, v in values.items()}), [loss])[0][0])
        for s in (0.0, STEP, -STEP)
    ]
    assert ends[0] == pytest.approx(float(value), rel=1e-12)
    assert ours == pytest.approx(float(slope), rel=1e-10)
    assert ours == pytest.approx((ends[1] - ends[2]) / (2 * STEP), rel=1e-6)
    assert abs(ours) > 1e-3, "a gradient of nothing proves nothing"


def test_gradient_of_py_func_is_its_backward_function(rng: np.random.Generator) -> None:
    """sum(sin(x)^2 * x), where sin is a Python function with a Python derivative."""

    def network() -> tuple[Any, Any]:
        x = data("x", [2, WIDTH])
        out = fluid.default_main_program().global_block().create_var(name="out", shape=[2, WIDTH], dtype="float64")
        layers.py_func(lambda v: np.sin(np.array(v)), x, out, lambda v, o, d: np.array(d) * np.cos(np.array(v)))
        loss = weighted(out, x)
        return loss, fluid.gradients([loss], [x])[0]

    x = rng.standard_normal((2, WIDTH))
    main, startup, (loss, grad) = build(network)
    got = run(main, startup, {"x": x}, [grad])[0]
    direction = rng.standard_normal(x.shape)
    ends = [float(run(main, startup, {"x": x + s * direction}, [loss])[0][0]) for s in (STEP, -STEP)]
    with jax.enable_x64(True):
        want = jax.grad(lambda v: jax.numpy.sum(jax.numpy.sin(v) ** 2 * v))(x)
    np.testing.assert_allclose(got, want, rtol=1e-12)
    assert float(np.sum(got * direction)) == pytest.approx((ends[0] - ends[1]) / (2 * STEP), rel=1e-6)


def test_every_proven_op_is_differentiable() -> None:
    assert all(lowering.get_op(op).differentiable for op in PROVEN)
