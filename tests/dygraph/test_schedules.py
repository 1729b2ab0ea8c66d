"""Learning-rate schedules that advance by epochs or by a loss; recorded scripts hold those that go by steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid

dg = fluid.dygraph


@pytest.fixture(autouse=True)
def eager() -> Any:
    with dg.guard():
        yield


def value(x: float) -> Any:
    return dg.to_variable(np.array([x], "float32"))


def rates(schedule: Any, count: int) -> list[float]:
    """The rates of so many epochs."""
    found = []
    for _ in range(count):
        found.append(float(schedule()))
        schedule.epoch()
    return found


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (lambda: dg.StepDecay(0.1, 2), [0.1, 0.1, 0.01, 0.01, 0.001]),
        (lambda: dg.StepDecay(1, 3, 0.5), [1, 1, 1, 0.5, 0.5]),
        (lambda: dg.MultiStepDecay(0.1, [1, 3]), [0.1, 0.01, 0.01, 0.001, 0.001]),
        (lambda: dg.LambdaDecay(0.1, lambda n: 0.9**n), [0.1, 0.09, 0.081, 0.0729, 0.06561]),
    ],
)
def test_rates_of_epochs(schedule: Any, expected: list[float]) -> None:
    np.testing.assert_allclose(rates(schedule(), 5), expected, rtol=1e-6)
    again = schedule()
    again.epoch(4)
    assert again.state_dict()["epoch_num"] == 4
    np.testing.assert_allclose(float(again()), expected[4], rtol=1e-6)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (
            lambda: dg.ExponentialDecay(1.0, 3, 0.5),
            [0.7937005, 0.62996054, 0.5, 0.39685026, 0.31498027, 0.25, 0.19842514],
        ),
        (lambda: dg.NaturalExpDecay(0.1, 7, 0.9), [0.087935075, 0.077325776, 0.06799648, 0.059792753, 0.052578803]),
        (
            lambda: dg.InverseTimeDecay(1.0, 3, 0.5),
            [0.85714287, 0.75, 0.6666667, 0.59999996, 0.54545456, 0.5, 0.4615385],
        ),
        (lambda: dg.CosineDecay(0.1, 2, 12), [0.1, 0.09829629, 0.09829629, 0.093301274, 0.093301274, 0.08535534]),
        (lambda: dg.NoamDecay(512, 80), [0.00012352648, 0.00018528971, 0.00024705296, 0.00030881618, 0.00037057942]),
        (lambda: dg.PolynomialDecay(1.0, 5), [0.80002004, 0.60004, 0.40005997, 0.20007999, 1e-04, 1e-04]),
        (lambda: dg.PolynomialDecay(0.1, 4, cycle=True), [0.075025, 0.05005, 0.025075, 1e-04, 0.0375625, 0.025075]),
        (lambda: dg.StepDecay(0.5, 2, 0.2), [0.5, 0.1, 0.1, 0.020000001, 0.020000001, 0.004, 0.004, 0.00080000004]),
        (lambda: dg.MultiStepDecay(0.5, [1, 3], 0.2), [0.1, 0.1, 0.020000001]),
    ],
)
def test_rates_to_the_last_bit(schedule: Any, expected: list[float]) -> None:
    """From the second rate on, as Paddle 1.8.5 computes them in float32."""
    rule, found = schedule(), []
    for _ in range(len(expected) + 1):
        found.append(rule().numpy()[0])
        if hasattr(rule, "epoch"):
            rule.epoch()
    assert found[1:] == list(np.array(expected, "float32"))


def test_a_rate_in_float64_is_computed_in_it() -> None:
    rule = dg.ExponentialDecay(1.0, 3, 0.5, dtype="float64")
    rule()
    np.testing.assert_allclose(rule().numpy(), [0.5 ** (1 / 3)], rtol=1e-15)


@pytest.mark.parametrize(
    ("settings", "losses", "expected"),
    [
        ({"patience": 1}, [1, 1, 1, 1, 1, 0.5], [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]),
        ({"patience": 0, "cooldown": 2}, [1, 2, 0.5, 0.6, 0.7, 2], [0.1, 0.01, 0.01, 0.01, 0.01, 0.001]),
        ({"patience": 0, "mode": "max", "threshold": 0.1, "threshold_mode": "abs"}, [1, 1.05, 1.2], [0.1, 0.01, 0.01]),
        ({"patience": 0, "threshold": 0.1}, [1, 0.95, 0.8], [0.1, 0.01, 0.01]),
        ({"patience": 0, "min_lr": 0.05}, [1, 1, 1], [0.1, 0.05, 0.05]),
        ({"patience": 0, "eps": 0.2}, [1, 1, 1], [0.1, 0.1, 0.1]),
    ],
)
def test_a_plateau_lowers_the_rate(settings: dict[str, Any], losses: list[float], expected: list[float]) -> None:
    schedule, found = dg.ReduceLROnPlateau(0.1, **settings), []
    for loss in losses:
        schedule.step(value(loss))
        found.append(float(schedule()))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert schedule.state_dict()["epoch_num"] == len(losses)


def test_a_plateau_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    schedule = dg.ReduceLROnPlateau(1.0, patience=0, decay_rate=0.5, verbose=True)
    for _ in range(2):
        schedule.step(value(1))
    assert capsys.readouterr().out == "Epoch 2: reducing learning rate from 1.0 to 0.5.\n"
    for wrong, error in ((dg.to_variable(np.ones(2, "float32")), AssertionError), (1.0, AttributeError)):
        with pytest.raises(error):
            schedule.step(wrong)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: dg.StepDecay(0.1, 2.5), TypeError),
        (lambda: dg.StepDecay("a", 2), TypeError),
        (lambda: dg.StepDecay(0.1, 2, 1.0), ValueError),
        (lambda: dg.MultiStepDecay(0.1, [3, 1]), ValueError),
        (lambda: dg.MultiStepDecay(0.1, 3), TypeError),
        (lambda: dg.LambdaDecay(0.1, 3), TypeError),
        (lambda: dg.ReduceLROnPlateau(0.1, mode="x"), ValueError),
        (lambda: dg.ReduceLROnPlateau("a"), TypeError),
        (lambda: dg.LinearLrWarmup("a", 4, 0.0, 0.1), TypeError),
        (lambda: dg.LinearLrWarmup(0.1, 4, 0.2, 0.1), AssertionError),
        (lambda: dg.learning_rate_scheduler.LearningRateDecay()(), NotImplementedError),
        (lambda: dg.NoamDecay(8, 4).set_dict({}), RuntimeError),
    ],
)
def test_wrong_arguments_are_said(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


def test_an_own_schedule_gives_floats_or_variables() -> None:
    class Own(dg.learning_rate_scheduler.LearningRateDecay):
        def step(self) -> float:
            return 0.1 * self.step_num

    net = dg.Linear(1, 1, bias_attr=False)
    opt = fluid.optimizer.SGD(Own(begin=1, step=2), parameter_list=net.parameters())
    used = []
    for _ in range(3):
        before = float(net.weight.numpy())
        loss = fluid.layers.reduce_sum(net(value(1.0)))
        loss.backward()
        opt.minimize(loss)
        used.append(before - float(net.weight.numpy()))
    np.testing.assert_allclose(used, [0.1, 0.3, 0.5], rtol=1e-5)
    np.testing.assert_allclose(opt.current_step_lr(), 0.5, rtol=1e-6)


def test_a_base_rate_may_be_a_variable() -> None:
    for schedule in (
        dg.NaturalExpDecay(value(0.2), 2, 0.5),
        dg.CosineDecay(value(0.2), 1, 4),
        dg.NoamDecay(4, 2, learning_rate=value(2.0)),
    ):
        rate = float(schedule())
        assert rate > 0 and isinstance(schedule(), fluid.core.VarBase)
    assert isinstance(fluid.layers.noam_decay(8, 4), dg.NoamDecay)


def test_a_warm_up_is_a_number_before_the_first_step() -> None:
    with fluid.dygraph.guard():
        rate = fluid.dygraph.LinearLrWarmup(fluid.dygraph.PolynomialDecay(0.01, 5, 0.0), 2, 0.0, 0.01)
        net = fluid.dygraph.Linear(2, 2)
        optimizer = fluid.optimizer.SGD(rate, parameter_list=net.parameters())
        assert isinstance(rate.step(), float) and type(optimizer.current_step_lr()) is float
