"""Optimizers running: parameters after some steps against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import optimizer
from tests.optimizer.train import Data, Run

STEPS = 4


def minimized(make: Any) -> Any:
    return lambda loss: make().minimize(loss)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_momentum(rng: np.random.Generator, is_sparse: bool) -> None:
    """Also of a sparse gradient, of which rows are repeated in every step."""
    data = Data(rng)
    run = Run(data, minimized(lambda: optimizer.Momentum(0.1, 0.9)), is_sparse)
    values, speeds = [data.w, data.e], [0 * data.w, 0 * data.e]
    for step in range(STEPS):
        run.step(step)
        grads = data.gradients(step, *values)
        speeds = [0.9 * v + g for v, g in zip(speeds, grads, strict=True)]
        values = [p - 0.1 * v for p, v in zip(values, speeds, strict=True)]
    np.testing.assert_allclose(run["w"], values[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run["e"], values[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run["e_velocity_0"], speeds[1], rtol=1e-5, atol=1e-6)


def test_ftrl_uses_l2(rng: np.random.Generator) -> None:
    """Paddle passes l1 as l2 (docs/deviations.md)."""
    data = Data(rng)
    run = Run(data, minimized(lambda: optimizer.Ftrl(0.1, l1=0.001, l2=0.3)))
    run.step(0)
    g = data.gradients(0, data.w, data.e)[0]
    linear = g - np.abs(g) / 0.1 * data.w
    shrunk = (0.001 * np.sign(linear) - linear) / (np.abs(g) / 0.1 + 0.6)
    np.testing.assert_allclose(run["w"], np.where(np.abs(linear) > 0.001, shrunk, 0), rtol=1e-4, atol=1e-6)


def test_parameters_with_their_own_rate_and_untrained_ones(rng: np.random.Generator) -> None:
    def build(loss: Any) -> None:
        block = loss.block
        block.var("w").optimize_attr["learning_rate"] = 0.5
        block.var("e").trainable = False
        optimizer.SGD(0.1).minimize(loss)

    data = Data(rng)
    run = Run(data, build)
    run.step(0)
    np.testing.assert_allclose(run["w"], data.w - 0.05 * data.gradients(0, data.w, data.e)[0], rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(run["e"], data.e)
    assert not run.main.global_block().has_var("e@GRAD")


def test_parameter_list_and_no_grad_set(rng: np.random.Generator) -> None:
    data = Data(rng)
    run = Run(data, lambda loss: optimizer.SGD(0.1, parameter_list=["w"]).minimize(loss, no_grad_set={"e"})[1])
    assert [p.name for p, _ in run.made] == ["w"]
    run.step(0)
    np.testing.assert_array_equal(run["e"], data.e)


def test_lookahead(rng: np.random.Generator) -> None:
    data = Data(rng)
    run = Run(data, minimized(lambda: optimizer.LookaheadOptimizer(optimizer.SGD(0.1), alpha=0.3, k=2)))
    fast, slow = [data.w, data.e], [data.w, data.e]
    for step in range(STEPS):
        run.step(step)
        fast = [p - 0.1 * g for p, g in zip(fast, data.gradients(step, *fast), strict=True)]
        if step % 2:
            slow = fast = [0.3 * f + 0.7 * s for f, s in zip(fast, slow, strict=True)]
    np.testing.assert_allclose(run["w"], fast[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run["e@SLOW"], slow[1], rtol=1e-5, atol=1e-6)


def test_model_average_applies_and_restores(rng: np.random.Generator) -> None:
    data = Data(rng)

    def build(loss: Any) -> Any:
        optimizer.SGD(0.1).minimize(loss)
        return optimizer.ModelAverage(0.5, min_average_window=10, max_average_window=20)

    run = Run(data, build)
    seen = []
    for step in range(STEPS):
        run.step(step)
        seen.append(run["w"])
    with fluid.scope_guard(run.scope), run.made.apply(run.exe):
        np.testing.assert_allclose(run["w"], np.mean(seen, axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(run["w"], seen[-1])


def test_exponential_moving_average(rng: np.random.Generator) -> None:
    data = Data(rng)

    def build(loss: Any) -> Any:
        optimizer.SGD(0.1).minimize(loss)
        average = optimizer.ExponentialMovingAverage(0.9)
        average.update()
        return average

    run = Run(data, build)
    average = np.zeros_like(data.w)
    for step in range(STEPS):
        run.step(step)
        average = 0.9 * average + 0.1 * run["w"]
    trained = run["w"]
    with fluid.scope_guard(run.scope), run.made.apply(run.exe):
        np.testing.assert_allclose(run["w"], average / (1 - 0.9**STEPS), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(run["w"], trained)


def test_recompute_trains_alike(rng: np.random.Generator) -> None:
    data = Data(rng)

    def build(loss: Any) -> None:
        wrapped = optimizer.RecomputeOptimizer(optimizer.SGD(0.1))
        wrapped._set_checkpoints([op.output("Out")[0] for op in loss.block.ops if op.type == "mul"])
        wrapped.minimize(loss)

    plain, again = Run(data, minimized(lambda: optimizer.SGD(0.1))), Run(data, build)
    assert any("subprog" in name for op in again.main.global_block().ops for name in op.output_arg_names)
    for step in range(2):
        assert plain.step(step) == pytest.approx(again.step(step), rel=1e-6)
    np.testing.assert_allclose(again["e"], plain["e"], rtol=1e-6, atol=1e-8)


def test_decoupled_weight_decay(rng: np.random.Generator) -> None:
    data = Data(rng)
    decayed = fluid.contrib.extend_with_decoupled_weight_decay(optimizer.SGD)
    make = minimized(
        lambda: decayed(weight_decay=0.1, learning_rate=0.2, apply_decay_param_fun=lambda name: name == "w")
    )
    run = Run(data, make)
    run.step(0)
    grads = data.gradients(0, data.w, data.e)
    np.testing.assert_allclose(run["w"], 0.9 * data.w - 0.2 * grads[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run["e"], data.e - 0.2 * grads[1], rtol=1e-5, atol=1e-6)


def test_state_goes_out_and_in(rng: np.random.Generator) -> None:
    data = Data(rng)
    made: list[optimizer.Optimizer] = []

    def build(loss: Any) -> None:
        made.append(optimizer.Momentum(0.1, 0.9))
        made[0].minimize(loss)

    run = Run(data, build)
    run.step(0)
    with fluid.scope_guard(run.scope):
        assert made[0].current_step_lr() == pytest.approx(0.1)
        state = made[0].state_dict()
        assert sorted(state) == ["e_velocity_0", "w_velocity_0"]
        made[0].set_dict({name: value * 2 for name, value in state.items()})
        np.testing.assert_array_equal(run["w_velocity_0"], state["w_velocity_0"] * 2)
        with pytest.raises(ValueError, match="set_dict: the state lacks w_velocity_0"):
            made[0].set_dict({"e_velocity_0": state["e_velocity_0"]})


def test_names_after_an_average_go_on_as_in_paddle():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 3]), 1))
        fluid.optimizer.SGD(0.1).minimize(loss)
        fluid.optimizer.ModelAverage(0.5)
        assert fluid.unique_name.generate("elementwise_div") == "elementwise_div_2"  # one for each parameter
