"""Recompute: the ops that Paddle writes, the same gradients, and less memory."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.backward import append_backward
from fluidjax.framework.view import program_view
from fluidjax.optimizer import Adam, RecomputeOptimizer
from lowering import Runner
from tests.backward.build import Builder, run

ROWS, WIDTH = 512, 64


def deep(checkpoints: bool, depth: int = 8) -> tuple[Builder, list[str]]:
    net = Builder()
    h = net.data("x", [ROWS, WIDTH])
    kept = []
    for i in range(depth):
        w = net.parameter(f"w{i}", [WIDTH, WIDTH])
        h = net.op("tanh", {"X": net.op("mul", {"X": h, "Y": w}, f"mul{i}")}, f"tanh{i}")
        h = net.op("square", {"X": h}, f"square{i}")
        if i % 2:
            kept.append(h)
    pairs = append_backward(net.op("mean", {"X": h}, "loss"), checkpoints=kept[:-1] if checkpoints else None)
    return net, [grad.name for _, grad in pairs]


def values(net: Builder, rng: np.random.Generator) -> dict[str, np.ndarray]:
    names = {p.name: p.shape for p in net.block.all_parameters()}
    feed = {name: rng.normal(size=shape).astype(np.float32) / 8 for name, shape in sorted(names.items())}
    return {**feed, "x": rng.normal(size=(ROWS, WIDTH)).astype(np.float32)}


def temporaries(net: Builder, feed: dict[str, np.ndarray], fetch: list[str]) -> int:
    view = program_view(net.program)

    def step(env: dict[str, Any]) -> list[Any]:
        done = Runner(view, platform=jax.default_backend()).run_block(0, dict(env))
        return [done[name] for name in fetch]

    with jax.enable_x64(True):
        return jax.jit(step).lower(feed).compile().memory_analysis().temp_size_in_bytes


def test_same_gradients_in_less_memory(rng: np.random.Generator) -> None:
    plain, grads = deep(False)
    again, grads_again = deep(True)
    assert grads == grads_again
    feed = values(plain, rng)
    for a, b in zip(run(plain.program, feed, grads), run(again.program, feed, grads), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-12)
    assert temporaries(again, feed, grads) < 0.7 * temporaries(plain, feed, grads)


def test_ops_are_paddles() -> None:
    """x -> fc relu (kept) -> fc relu, dropout -> fc relu (kept) -> fc -> loss, as Paddle 1.8.5 writes it."""
    net = Builder()
    h, kept = net.data("x", [-1, 4]), []
    for i, width in enumerate([8, 8, 8, 1]):
        w, b = net.parameter(f"w{i}", [h.shape[-1], width]), net.parameter(f"b{i}", [width])
        h = net.op("mul", {"X": h, "Y": w}, f"m{i}")
        h = net.op("elementwise_add", {"X": h, "Y": b}, f"a{i}", axis=1)
        if i < 3:
            h = net.op("relu", {"X": h}, f"r{i}")
        if i == 1:
            h = net.op("dropout", {"X": h}, {"Out": "d1", "Mask": "mask1"}, dropout_prob=0.3)
        if i in (0, 2):
            kept.append(h)
    append_backward(net.op("mean", {"X": h}, "loss"), checkpoints=kept)
    types = [op.type for op in net.block.ops]
    assert types[6:8] == ["seed", "dropout"]
    assert net.block.ops[7].input("Seed") == net.block.ops[6].output("Out")
    again = [op for op in net.block.ops if any(n.endswith(("subprog_0", "subprog_1")) for n in op.output_arg_names)]
    assert [(op.type, op.output("Out")[0]) for op in again if not op.type.endswith("_grad")] == [
        ("mul", "m1.subprog_0"),
        ("elementwise_add", "a1.subprog_0"),
        ("relu", "r1.subprog_0"),
        ("dropout", "d1.subprog_0"),
        ("mul", "m2.subprog_0"),
        ("elementwise_add", "a2.subprog_0"),
        ("mul", "m0.subprog_1"),
        ("elementwise_add", "a0.subprog_1"),
    ]
    backward = types[types.index("mean") + 1 :]
    assert (
        backward
        == (
            "fill_constant mean_grad elementwise_add_grad mul_grad "
            "mul elementwise_add relu dropout mul elementwise_add "
            "relu_grad elementwise_add_grad mul_grad dropout_grad relu_grad elementwise_add_grad mul_grad "
            "mul elementwise_add relu_grad elementwise_add_grad mul_grad"
        ).split()
    )
    relu_grad = next(op for op in net.block.ops if op.type == "relu_grad")
    assert relu_grad.input("Out") == ["r2"]  # a checkpoint, not computed again


def test_it_has_no_state_to_load() -> None:
    with pytest.raises(NotImplementedError, match=r"no state of its own to load.*fluid.load") as raised:
        RecomputeOptimizer(Adam(0.1)).load({})
    assert str(raised.value) == "load function is not supported by Recompute Optimizer for now"


def test_a_sub_block_is_refused() -> None:
    net = Builder()
    x = net.data("x", [2, 3], stop_gradient=False)
    net.program._create_block()
    net.program._rollback()
    cond = net.data("cond", [1], "bool")
    out = net.block.create_var(name="out", dtype="float32", shape=[2, 3])
    scope = net.block.create_var(name="scope", type=11)
    net.block.append_op(
        type="conditional_block",
        inputs={"Cond": cond, "Input": [x]},
        outputs={"Out": [out], "Scope": [scope]},
        attrs={"sub_block": net.program.block(1)},
    )
    loss = net.op("mean", {"X": out}, "loss")
    with pytest.raises(ValueError, match="recompute: op conditional_block has a sub-block"):
        append_backward(loss, checkpoints=[x])


def test_other_platforms_get_a_barrier_per_segment(rng: np.random.Generator) -> None:
    net, grads = deep(True)
    feed = values(net, rng)
    view = program_view(net.program)

    def step(env: dict[str, Any]) -> list[Any]:
        done = Runner(view, platform="gpu").run_block(0, dict(env))
        return [done[name] for name in grads]

    with jax.enable_x64(True):
        text = str(jax.make_jaxpr(step)(feed))
        got = jax.jit(step)(feed)
    assert text.count("optimization_barrier") == 3  # before, between and up to the last of three checkpoints
    for a, b in zip(run(net.program, feed, grads), got, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-9)


def test_what_is_computed_again_is_declared_with_its_shape() -> None:
    net, _ = deep(True)
    again = [v for v in net.program.list_vars() if ".subprog_" in v.name]
    assert again
    for var in again:
        assert var.shape == net.block.var(var.name.rpartition(".subprog_")[0]).shape != ()


def overwriting(checkpoints: bool, read_before: bool) -> tuple[Builder, list[str]]:
    """tanh in place on the product of x and w; ``read_before``: the product is read before it is overwritten."""
    net = Builder()
    product = net.op("mul", {"X": net.data("x", [2, 3]), "Y": net.parameter("w", [3, 3])}, "product")
    square = net.op("square", {"X": product}, "square") if read_before else product
    net.block.append_op(type="tanh", inputs={"X": [product]}, outputs={"Out": [product]})
    total = net.op("elementwise_add", {"X": square, "Y": product}, "total")
    loss = net.op("mean", {"X": net.op("square", {"X": total}, "squares")}, "loss")
    pairs = append_backward(loss, checkpoints=[total] if checkpoints else None)
    return net, [grad.name for _, grad in pairs]


def test_an_op_in_place_is_computed_again(rng: np.random.Generator) -> None:
    feed = {"x": rng.normal(size=(2, 3)).astype(np.float32), "w": rng.normal(size=(3, 3)).astype(np.float32)}
    plain, grads = overwriting(False, False)
    again, grads_again = overwriting(True, False)
    want, found = run(plain.program, feed, grads), run(again.program, feed, grads_again)
    np.testing.assert_allclose(found, want, rtol=1e-6)
    assert np.abs(want).max() > 0.01


def test_a_value_that_is_overwritten_cannot_be_computed_again() -> None:
    with pytest.raises(ValueError, match="recompute: op tanh .* overwrites 'product', which square .* has used"):
        overwriting(True, True)


def test_an_output_that_an_op_leaves_out_is_left_out_again() -> None:
    """MaxIndex of a sequence_pool that takes no maxima."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, 3], "float32", lod_level=1)
        h = fluid.layers.sequence_pool(fluid.layers.tanh(fluid.layers.fc(x, 3)), "sum")
        kept = fluid.layers.fc(h, 3)
        loss = fluid.layers.mean(fluid.layers.square(kept))
        optimizer = RecomputeOptimizer(fluid.optimizer.SGD(0.0))
        optimizer._set_checkpoints([kept])
        optimizer.minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        rows = fluid.create_lod_tensor(np.ones((5, 3), np.float32), [[2, 3]], fluid.CPUPlace())
        first, second = (exe.run(main, feed={"x": rows}, fetch_list=[loss])[0] for _ in range(2))
        assert first > 0 and first == second


def penalized(kept: list[int], rng_values: np.ndarray) -> np.ndarray:
    """The gradients of mean(y) + mean((dy/dx)^2), y = tanh(tanh(x w0) w1), recomputed from the kept layers."""
    net = Builder()
    x = net.data("x", [2, 2])
    x.stop_gradient = False
    h, layers = x, []
    for i in range(2):
        h = net.op("mul", {"X": h, "Y": net.parameter(f"w{i}", [2, 2])}, f"mul{i}")
        h = net.op("tanh", {"X": h}, f"tanh{i}")
        layers.append(h)
    (slope,) = fluid.gradients(h, x)
    penalty = net.op("mean", {"X": net.op("square", {"X": slope}, "squares")}, "penalty")
    loss = net.op("elementwise_add", {"X": net.op("mean", {"X": h}, "mean"), "Y": penalty}, "loss")
    pairs = append_backward(loss, checkpoints=[layers[i] for i in kept])
    feed = {name: rng_values[i] for i, name in enumerate(["x", "w0", "w1"])}
    return np.stack(run(net.program, feed, [grad.name for _, grad in pairs]))


@pytest.mark.parametrize("kept", [[0], [0, 1]])
def test_a_penalty_of_gradients_is_recomputed(kept: list[int], rng: np.random.Generator) -> None:
    """The second pass reads what the first one's ops read, under names of its own."""
    given = rng.normal(size=(3, 2, 2)).astype(np.float32)
    np.testing.assert_allclose(penalized(kept, given), penalized([], given), rtol=1e-5)
