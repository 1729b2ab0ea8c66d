"""Optimizers in eager mode: what minimize does and does not, their state, rates, clips and weight decay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid

dg, layers, optimizer = fluid.dygraph, fluid.layers, fluid.optimizer


@pytest.fixture(autouse=True)
def under_guard() -> Iterator[None]:
    """Each test has a guard of its own."""
    with dg.guard():
        yield


def var(values: Any, dtype: str = "float32") -> Any:
    return dg.to_variable(np.array(values, dtype))


def linear(**settings: Any) -> Any:
    net = dg.Linear(2, 2, **settings)
    for p in net.parameters():
        p.set_value(np.ones(p.shape, "float32"))
    return net


def backward(net: Any, scale: float = 1.0) -> Any:
    """The gradients become [[1, 1], [2, 2]] and [1, 1], times `scale`."""
    loss = layers.reduce_sum(net(var([[1.0, 2.0]]))) * scale
    loss.backward()
    return loss


def same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, np.array(expected, "float32"), rtol=1e-5, atol=1e-7)


WEIGHT = np.array([[1.0, 1.0], [2.0, 2.0]], "float32")


def test_minimize_runs_no_backward() -> None:
    net = linear()
    opt = optimizer.SGD(0.1, parameter_list=net.parameters())
    assert opt.minimize(layers.reduce_sum(net(var([[1.0, 2.0]])))) == ([], [])
    same(net.weight.numpy(), np.ones([2, 2]))


def test_minimize_gives_parameters_and_raw_gradients() -> None:
    net = linear()
    clip = fluid.clip.GradientClipByValue(0.5)
    decay = fluid.regularizer.L2Decay(0.1)
    opt = optimizer.SGD(0.1, parameter_list=net.parameters(), grad_clip=clip, regularization=decay)
    ops, pairs = opt.minimize(backward(net))
    assert ops == []
    assert [p.name for p, _ in pairs] == [net.weight.name, net.bias.name]
    same(pairs[0][1].numpy(), WEIGHT)
    same(net.weight.gradient(), WEIGHT)
    same(net.weight.numpy(), 1 - 0.1 * (np.full([2, 2], 0.5) + 0.1))  # clipped first, then decayed


def test_the_list_of_the_constructor_counts() -> None:
    net = linear()
    opt = optimizer.SGD(0.1, parameter_list=net.parameters())
    _, pairs = opt.minimize(backward(net), parameter_list=[net.bias], no_grad_set={net.weight.name})
    assert len(pairs) == 2


def test_a_second_minimize_applies_the_same_gradients() -> None:
    net = linear()
    opt = optimizer.SGD(0.1, parameter_list=net.parameters())
    loss = backward(net)
    opt.minimize(loss)
    opt.minimize(loss)
    same(net.weight.numpy(), 1 - 0.2 * WEIGHT)


def test_cleared_gradients_are_zeros_and_momentum_goes_on() -> None:
    net = linear()
    opt = optimizer.Momentum(0.1, 0.5, parameter_list=net.parameters())
    loss = backward(net)
    opt.minimize(loss)
    opt.clear_gradients()
    same(net.weight.gradient(), np.zeros([2, 2]))
    opt.minimize(loss)
    same(net.weight.numpy(), 1 - 0.15 * WEIGHT)


def test_a_parameters_own_settings_win() -> None:
    attr = fluid.ParamAttr(regularizer=fluid.regularizer.L2Decay(1.0), learning_rate=0.5)
    net = linear(param_attr=attr, bias_attr=fluid.ParamAttr(learning_rate=0.0))
    opt = optimizer.SGD(0.1, parameter_list=net.parameters(), regularization=fluid.regularizer.L2Decay(9.0))
    opt.minimize(backward(net))
    same(net.weight.numpy(), 1 - 0.05 * (WEIGHT + 1))
    same(net.bias.numpy(), [1, 1])


def test_l1_decay() -> None:
    net = linear()
    opt = optimizer.SGD(0.1, parameter_list=net.parameters(), regularization=fluid.regularizer.L1Decay(0.5))
    opt.minimize(backward(net))
    same(net.weight.numpy(), 1 - 0.1 * (WEIGHT + 0.5))


def test_a_clip_by_global_norm_leaves_out_what_it_is_told_to() -> None:
    net = linear()
    clip = fluid.clip.GradientClipByGlobalNorm(1.0, need_clip=lambda p: p.name.endswith("w_0"))
    opt = optimizer.SGD(1.0, parameter_list=net.parameters(), grad_clip=clip)
    opt.minimize(backward(net))
    same(net.weight.numpy(), 1 - WEIGHT / np.sqrt(10))
    same(net.bias.numpy(), [0, 0])


@pytest.mark.parametrize("sparse", [False, True])
def test_clips_take_sparse_gradients(sparse: bool) -> None:
    table = dg.Embedding([4, 2], is_sparse=sparse)
    table.weight.set_value(np.ones([4, 2], "float32"))
    clip = fluid.clip.GradientClipByGlobalNorm(1.0)
    opt = optimizer.SGD(1.0, parameter_list=table.parameters(), grad_clip=clip)
    loss = layers.reduce_sum(table(var([1, 2, 1], "int64")))
    loss.backward()
    opt.minimize(loss)
    same(table.weight.numpy(), 1 - np.array([[0, 0], [2, 2], [1, 1], [0, 0]]) / np.sqrt(10))


# What is wrong.

WRONG: dict[str, tuple[type[Exception], Callable[[Any], Any]]] = {
    "no parameters": (AttributeError, lambda p: optimizer.SGD(0.1)),
    "int rate": (TypeError, lambda p: optimizer.SGD(1, parameter_list=p)),
    "variable rate": (TypeError, lambda p: optimizer.SGD(var([0.1]), parameter_list=p)),
    "a layer": (TypeError, lambda p: optimizer.SGD(0.1, parameter_list=linear())),
    "a parameter": (TypeError, lambda p: optimizer.SGD(0.1, parameter_list=p[0])),
    "loss": (AssertionError, lambda p: optimizer.SGD(0.1, parameter_list=p).minimize(3)),
    "DGC": (Exception, lambda p: optimizer.DGCMomentumOptimizer(0.1, 0.9, 0, parameter_list=p)),
    "ModelAverage": (Exception, lambda p: optimizer.ModelAverage(0.15)),
    "EMA": (Exception, lambda p: optimizer.ExponentialMovingAverage(0.9)),
    "Lookahead": (Exception, lambda p: optimizer.LookaheadOptimizer(optimizer.SGD(0.1, parameter_list=p))),
    "Recompute": (Exception, lambda p: optimizer.RecomputeOptimizer(optimizer.SGD(0.1, parameter_list=p))),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name: str) -> None:
    error, make = WRONG[name]
    with pytest.raises(error) as caught:
        make(linear().parameters())
    assert caught.type is error


STATIC_ONLY: dict[str, Callable[[], Any]] = {
    "ModelAverage": lambda: fluid.optimizer.ModelAverage(0.15),
    "DGCMomentumOptimizer": lambda: fluid.optimizer.DGCMomentumOptimizer(0.1, 0.9, 0),
    "ExponentialMovingAverage": lambda: fluid.optimizer.ExponentialMovingAverage(0.9),
    "PipelineOptimizer": lambda: fluid.optimizer.PipelineOptimizer(None),
    "LookaheadOptimizer": lambda: fluid.optimizer.LookaheadOptimizer(None),
    "RecomputeOptimizer": lambda: fluid.optimizer.RecomputeOptimizer(None),
}


@pytest.mark.parametrize("name", STATIC_ONLY)
def test_the_words_that_scripts_compare_are_fluids_and_a_note_says_more(name: str) -> None:
    with pytest.raises(Exception, match="support") as error:
        STATIC_ONLY[name]()
    assert str(error.value) == f"In dygraph, don't support {name}."
    assert error.value.__notes__ == [
        "It rewrites programs: expected static mode. Leave the guard, or use another optimizer."
    ]


def test_an_optimizer_without_parameters_says_so_in_fluids_words() -> None:
    with pytest.raises(AttributeError) as error:
        fluid.optimizer.SGD(0.1)
    assert str(error.value) == "parameter_list argument given to the Optimizer should not be None in dygraph mode."
    assert "SGDOptimizer got none" in error.value.__notes__[0]


@pytest.mark.parametrize("name", ["step", "clear_grad", "set_lr", "get_lr"])
def test_names_of_later_versions_are_absent(name: str) -> None:
    assert not hasattr(optimizer.SGD(0.1, parameter_list=linear().parameters()), name)


# State.

STATES: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "SGD": (lambda p: optimizer.SGD(0.1, parameter_list=p), []),
    "Momentum": (lambda p: optimizer.Momentum(0.1, 0.9, parameter_list=p), ["velocity"]),
    "Lars": (lambda p: optimizer.LarsMomentum(0.1, 0.9, parameter_list=p), ["velocity"]),
    "Adam": (
        lambda p: optimizer.Adam(0.1, parameter_list=p),
        ["moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc"],
    ),
    "Lamb": (
        lambda p: optimizer.Lamb(0.1, parameter_list=p),
        ["moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc"],
    ),
    "Adamax": (lambda p: optimizer.Adamax(0.1, parameter_list=p), ["moment", "inf_norm", "beta1_pow_acc"]),
    "Adagrad": (lambda p: optimizer.Adagrad(0.1, parameter_list=p), ["moment"]),
    "DecayedAdagrad": (lambda p: optimizer.DecayedAdagrad(0.1, parameter_list=p), ["moment"]),
    "Adadelta": (
        lambda p: optimizer.Adadelta(0.1, parameter_list=p),
        ["_avg_squared_grad", "_avg_squared_update"],
    ),
    "RMSProp": (
        lambda p: optimizer.RMSProp(0.1, parameter_list=p),
        ["momentum", "mean_square", "mean_grad"],
    ),
    "Ftrl": (lambda p: optimizer.Ftrl(0.1, parameter_list=p), ["squared", "linear"]),
    "named": (lambda p: optimizer.Momentum(0.1, 0.9, parameter_list=p, name="opt"), ["opt_velocity"]),
    "Dpsgd": (lambda p: optimizer.Dpsgd(0.1, 0.9, 1.0, 1e-8, parameter_list=p), []),
}


@pytest.mark.parametrize("name", STATES)
def test_state_is_named_by_kind_then_parameter(name: str) -> None:
    make, kinds = STATES[name]
    net = linear()
    opt = make(net.parameters())
    assert opt.state_dict() == {}
    opt.minimize(backward(net))
    assert list(opt.state_dict()) == [f"{p.name}_{kind}_0" for kind in kinds for p in net.parameters()]


def test_state_goes_on_in_an_optimizer_of_a_fresh_guard() -> None:
    def trained(rounds: int, state: Any = None, weights: Any = None) -> tuple[Any, Any]:
        with dg.guard():
            net = linear()
            if weights is not None:
                net.set_dict(weights)
            opt = optimizer.Adam(dg.ExponentialDecay(0.1, 1, 0.5), parameter_list=net.parameters())
            if state is not None:
                opt.set_dict(state)
            for _ in range(rounds):
                opt.minimize(backward(net))
            copied = {k: v.numpy() if hasattr(v, "numpy") else v for k, v in opt.state_dict().items()}
            number = copied["LR_Scheduler"]["step_num"]  # pickled as it is
            assert type(number) is (int if state is None else np.int64)
            return copied, {k: v.numpy() for k, v in net.state_dict().items()}

    state, weights = trained(2)
    assert state["LR_Scheduler"] == {"step_num": 2}
    assert state["global_step"].tolist() == [2]
    _, resumed = trained(2, state, weights)
    _, straight = trained(4)
    for name, expected in straight.items():
        same(resumed[name], expected)


def test_a_second_optimizer_counts_on() -> None:
    net = linear()
    for number in range(2):
        opt = optimizer.Momentum(0.1, 0.9, parameter_list=net.parameters())
        opt.minimize(backward(net))
        assert list(opt.state_dict()) == [f"{p.name}_velocity_{number}" for p in net.parameters()]


TAKEN: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "sgd": (0, lambda p: optimizer.SGD(0.1, parameter_list=p)),
    "weight decay": (4, lambda p: optimizer.Adam(0.1, parameter_list=p, regularization=fluid.regularizer.L2Decay(0.1))),
    "global norm": (
        12,
        lambda p: optimizer.SGD(0.1, parameter_list=p, grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0)),
    ),
    "schedule": (2, lambda p: optimizer.SGD(dg.NoamDecay(64, 10), parameter_list=p)),
    "staircase": (4, lambda p: optimizer.SGD(dg.ExponentialDecay(0.1, 2, 0.5, True), parameter_list=p)),
    "polynomial": (6, lambda p: optimizer.SGD(dg.PolynomialDecay(0.1, 2), parameter_list=p)),
    "epochs": (0, lambda p: optimizer.SGD(dg.StepDecay(0.1, 2), parameter_list=p)),
}


@pytest.mark.parametrize("name", TAKEN)
def test_every_step_takes_the_same_names(name: str) -> None:
    """Also from the third on, when its ops are repeated: what follows is named as in Fluid."""
    count, make = TAKEN[name]
    net = linear()
    opt = make(net.parameters())
    for _ in range(4):
        loss = backward(net)
        first = int(var([1.0]).name.rsplit("_", 1)[1])
        opt.minimize(loss)
        assert var([1.0]).name == f"generated_var_{first + 1 + count}"


# Rates.


def test_the_rate_of_the_last_step() -> None:
    net = linear()
    assert optimizer.SGD(0.25, parameter_list=net.parameters()).current_step_lr() == 0.25
    opt = optimizer.SGD(dg.PiecewiseDecay([2], [0.5, 0.25], begin=0), parameter_list=net.parameters())
    rates = [opt.current_step_lr()]
    for _ in range(4):
        opt.minimize(backward(net))
        rates.append(opt.current_step_lr())
    assert rates == [0.5, 0.5, 0.5, 0.25, 0.25]


def test_a_rate_prints_as_it_was_given() -> None:
    net = linear()
    opt = optimizer.SGD(0.1, parameter_list=net.parameters())
    opt.minimize(backward(net))
    assert str(opt.current_step_lr()) == "0.1"  # a float32, not the float 0.10000000149011612
    scheduled = optimizer.SGD(dg.NoamDecay(10, 10), parameter_list=net.parameters())
    assert isinstance(scheduled.current_step_lr(), np.float32)


class Decayed(optimizer.SGD):
    """Halves the parameters after each step."""

    def apply_optimize(self, loss: Any, startup_program: Any, params_grads: Any) -> Any:
        ops = super().apply_optimize(loss, startup_program, params_grads)
        for param, _ in params_grads:
            fluid.layers.assign(param * 0.5, param)
        return ops


def test_minimize_takes_the_step_that_a_subclass_gives() -> None:
    net, plain = linear(), linear()
    start = [p.numpy() for p in net.parameters()]
    for param, value in zip(plain.parameters(), start, strict=True):
        param.set_value(value)
    for opt, layer in [(Decayed, net), (optimizer.SGD, plain)]:
        opt(0.1, parameter_list=layer.parameters()).minimize(backward(layer))
    for halved, whole in zip(net.parameters(), plain.parameters(), strict=True):
        np.testing.assert_allclose(halved.numpy(), whole.numpy() / 2, rtol=1e-6)


def test_what_changes_between_steps_is_seen() -> None:
    net = linear()
    opt = optimizer.Momentum(0.1, 0.0, parameter_list=net.parameters())
    for _ in range(4):
        opt.minimize(backward(net))
    same(net.bias.numpy(), np.full(2, 0.6))
    opt._momentum = 1.0
    opt.minimize(backward(net))
    same(net.bias.numpy(), np.full(2, 0.4))  # the velocity of the last step counts now
    net.weight.trainable = False
    before = net.weight.numpy()
    opt.minimize(backward(net))
    same(net.weight.numpy(), before)
    opt.regularization = fluid.regularizer.L2Decay(10.0)
    bias, velocity = net.bias.numpy(), opt.state_dict()["linear_0.b_0_velocity_0"].numpy()
    opt.minimize(backward(net))
    same(net.bias.numpy(), bias - 0.1 * (velocity + 1 + 10 * bias))


def test_clips_of_ones_own_are_asked_each_time() -> None:
    factors = iter([1.0, 2.0, 3.0, 4.0])

    class Mine(fluid.clip.GradientClipBase):
        def __call__(self, params_grads: Any) -> Any:
            factor = next(factors)
            return [(p, g * factor) for p, g in params_grads]

    net = linear()
    opt = optimizer.SGD(0.1, parameter_list=net.parameters(), grad_clip=Mine())
    for _ in range(4):
        opt.minimize(backward(net))
    same(net.bias.numpy(), np.zeros(2))
