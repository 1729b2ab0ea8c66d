"""What a DynamicRNN computes of its step inputs alone moves in front of the loop, and its gradients after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.execution import preparing
from fluidjax.framework.view import program_view
from lowering.loops.fission import split_loops
from lowering.program import ProgramView
from tests.control_flow.running import build, ragged, run

pytestmark = pytest.mark.usefixtures("compiled_quickly")

WIDTH, SIZE, LENGTHS = 3, 4, [2, 4, 1]
Body = Callable[[Any, Any, Any], Any]


def product(word: Any, memory: Any, _: Any) -> Any:
    return layers.fc([word, memory], SIZE, act="tanh")


def chain(word: Any, memory: Any, _: Any) -> Any:
    return layers.tanh(layers.fc(word, SIZE, act="sigmoid") + layers.fc(memory, SIZE, bias_attr=False))


def chain_read_in_the_middle(word: Any, memory: Any, _: Any) -> Any:
    before = layers.fc(word, SIZE, bias_attr=False)
    return layers.tanh(layers.relu(before) * before + memory)


def used_twice(word: Any, memory: Any, _: Any) -> Any:
    gate = layers.sigmoid(layers.fc(word, WIDTH) + layers.fc(memory, WIDTH))
    return layers.fc([layers.elementwise_mul(word, gate), memory], SIZE, act="tanh")


def three_products(word: Any, memory: Any, _: Any) -> Any:
    update = layers.sigmoid(layers.fc([word, memory], SIZE))
    return update * memory + layers.fc(word, SIZE) * layers.fc(word, SIZE, bias_attr=False)


def two_inputs(word: Any, memory: Any, other: Any) -> Any:
    return layers.tanh(layers.fc(word, SIZE) + layers.fc(other, SIZE) + memory)


def shared_weight(word: Any, memory: Any, other: Any) -> Any:
    both = [layers.fc(x, SIZE, param_attr="shared", bias_attr=False) for x in (word, other)]
    return layers.tanh(both[0] * both[1] + memory)


def network(body: Body, *, trained: bool = True, learned: bool = True) -> Callable[[], list[Any]]:
    def make() -> list[Any]:
        x = fluid.data("x", [None, WIDTH], "float32", lod_level=1)
        y = fluid.data("y", [None, WIDTH], "float32", lod_level=1)
        x.stop_gradient = not learned
        rnn = layers.DynamicRNN()
        with rnn.block():
            word, other = rnn.step_input(x), rnn.step_input(y)
            memory = rnn.memory(shape=[SIZE], value=0.5)
            hidden = body(word, memory, other)
            rnn.update_memory(memory, hidden)
            rnn.output(hidden)
        loss = layers.mean(layers.square(layers.sequence_pool(rnn(), "sum")))
        if not trained:
            return [loss]
        parameters = fluid.default_main_program().all_parameters()
        return [loss, *fluid.gradients([loss], [*([x] if learned else []), *parameters])]

    return make


def products_inside(view: ProgramView) -> int:
    return sum(op.type == "mul" for block in view.blocks[1:] for op in block.ops)


def outcomes(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, make: Any) -> tuple[list[Any], list[Any]]:
    """What a network computes with its loop split, and whole."""
    main, startup, fetch = build(make)
    feeds = {n: ragged(rng.standard_normal((sum(LENGTHS), WIDTH)).astype(np.float32), LENGTHS) for n in "xy"}
    weights = {p.name: rng.standard_normal(p.shape).astype(np.float32) for p in main.all_parameters()}
    split = run(main, startup, feeds, fetch, weights)
    monkeypatch.setattr(preparing, "split_loops", lambda program, kept=(): program)
    main.__dict__.pop("_prepared_cache", None)
    return split, run(main, startup, feeds, fetch, weights)


@pytest.mark.parametrize(
    ("body", "inside"),
    [
        (product, (2, 1)),
        (chain, (2, 1)),
        (chain_read_in_the_middle, (1, 0)),
        (used_twice, (4, 3)),
        (three_products, (4, 1)),
        (two_inputs, (2, 0)),
    ],
)
@pytest.mark.parametrize("learned", [True, False])
def test_a_split_loop_computes_the_same(rng, monkeypatch, body: Body, inside: tuple[int, int], learned: bool) -> None:
    main, _, _ = build(network(body, learned=learned))
    view = program_view(main)
    assert (products_inside(view), products_inside(split_loops(view))) == inside
    for a, b in zip(*outcomes(rng, monkeypatch, network(body, learned=learned)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_a_split_loop_without_a_gradient_computes_the_same(rng, monkeypatch) -> None:
    main, _, _ = build(network(chain, trained=False))
    assert products_inside(split_loops(program_view(main))) == 1
    for a, b in zip(*outcomes(rng, monkeypatch, network(chain, trained=False)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5)


def test_an_op_stays_where_the_loop_adds_to_its_weights_gradient_elsewhere() -> None:
    main, _, _ = build(network(shared_weight))
    view = program_view(main)
    assert split_loops(view) is view


def test_an_op_stays_where_a_run_asks_for_what_would_be_gone() -> None:
    main, _, _ = build(network(product))
    view = program_view(main)
    (grad,) = (op for op in view.blocks[0].ops if op.type == "while_grad")
    arrays = [n for n in grad.outputs["X@GRAD"] if "input_array_0" in n]
    assert len(arrays) == 1
    assert split_loops(view, arrays) is view


def test_an_op_stays_where_the_loop_may_end_early() -> None:
    def make() -> list[Any]:
        x = fluid.data("x", [None, WIDTH], "float32", lod_level=1)
        table = layers.lod_rank_table(x)
        steps, i = layers.lod_tensor_to_array(x, table), layers.fill_constant([1], "int64", 0)
        longest, total = layers.max_sequence_len(table), layers.fill_constant([1], "float32", 0.0)
        cond = layers.less_than(i, longest)
        with layers.While(cond).block():
            row = layers.fc(layers.array_read(steps, i), SIZE, bias_attr=False)
            layers.assign(total + layers.reduce_sum(row), total)
            layers.increment(i)
            layers.logical_and(layers.less_than(i, longest), layers.reduce_all(total < 9.0), out=cond)
        return [total]

    main, _, _ = build(make)
    view = program_view(main)
    assert products_inside(view) == 1
    assert split_loops(view) is view


def test_parameters_are_trained_alike_over_several_runs(rng, monkeypatch) -> None:
    """Optimizers find the gradients of what has moved."""

    def make() -> list[Any]:
        loss = network(three_products, trained=False)()[0]
        fluid.optimizer.Adam(0.01).minimize(loss)
        return [loss]

    losses = []
    feeds = {n: ragged(rng.standard_normal((sum(LENGTHS), WIDTH)).astype(np.float32), LENGTHS) for n in "xy"}
    for split in (True, False):
        if not split:
            monkeypatch.setattr(preparing, "split_loops", lambda program, kept=(): program)
        main, startup, fetch = build(make)
        main.random_seed = startup.random_seed = 3
        exe = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(fluid.Scope()):
            exe.run(startup)
            losses.append([float(exe.run(main, feed=feeds, fetch_list=fetch)[0][0]) for _ in range(4)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    assert losses[0][0] != losses[0][-1]


def test_messages_name_ops_where_they_stand_in_the_users_program(rng) -> None:
    def make() -> list[Any]:
        loss = network(product)()[0]
        return [layers.log(layers.scale(loss, -1.0))]

    main, startup, fetch = build(make)
    view = program_view(main)
    users = {op.label for block in view.blocks for op in block.ops}
    split = split_loops(view)
    assert len(split.blocks[0].ops) > len(view.blocks[0].ops)
    moved = {op.label for op in split.blocks[0].ops if op.type == "mul"}
    assert moved and moved <= {op.label for op in view.blocks[1].ops} <= users
    feeds = {n: ragged(rng.standard_normal((sum(LENGTHS), WIDTH)).astype(np.float32), LENGTHS) for n in "xy"}
    log = [op.type for op in main.global_block().ops].index("log")
    fluid.set_flags({"FLAGS_check_nan_inf": True})
    try:
        with pytest.raises(FloatingPointError, match=rf"op log \(#{log} of block 0\)"):
            run(main, startup, feeds, fetch, {})
    finally:
        fluid.set_flags({"FLAGS_check_nan_inf": False})
