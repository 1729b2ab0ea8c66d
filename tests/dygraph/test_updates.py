"""Updates that are done again: the same parameters, and what differs is seen."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.eager.recorded.pending import Recorder, recorder
from fluidjax.eager.repeated.replay import Replay

dg, optimizer = fluid.dygraph, fluid.optimizer
DATA = np.array([[1.0, -2.0], [0.5, 3.0]], "float32")


@pytest.fixture(autouse=True)
def guard() -> Iterator[None]:
    with dg.guard():
        yield


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[int]:
    """One entry for each call of a method."""
    found: list[int] = []
    method = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda self, *args: found.append(1) or method(self, *args))
    return found


class Net:
    """A linear layer and its optimizer; `step` may change things before each update."""

    def __init__(self, make: Callable[..., Any], before: Callable[[Net, int], Any] = lambda net, k: None) -> None:
        self.layer = dg.Linear(2, 3)
        for k, p in enumerate(self.layer.parameters()):
            p.set_value(np.full(p.shape, 0.5 + k, "float32"))
        self.optimizer = make(parameter_list=self.layer.parameters())
        self.before, self.steps = before, 0

    def step(self) -> list[Any]:
        """One step; the parameters after it."""
        loss = layers.reduce_mean(layers.square(self.layer(dg.to_variable(DATA))))
        loss.backward()
        self.before(self, self.steps)
        self.optimizer.minimize(loss)
        self.layer.clear_gradients()
        self.steps += 1
        return [p.numpy().tolist() for p in self.layer.parameters()]


def flat(steps: list[list[Any]]) -> np.ndarray:
    """All numbers in one row."""
    return np.concatenate([np.ravel(values) for step in steps for values in step])


def compare(make: Callable[..., Any], before: Callable[[Net, int], Any] = lambda net, k: None) -> None:
    """Parameters with blocks are those without."""
    nets = [Net(make, before) for _ in range(2)]
    found = [nets[0].step() for _ in range(10)]
    fluid.set_flags({"FLAGS_eager_blocks": False})
    try:
        expected = [nets[1].step() for _ in range(10)]
    finally:
        fluid.set_flags({"FLAGS_eager_blocks": True})
    np.testing.assert_allclose(flat(found), flat(expected), rtol=1e-5)


def adam(**settings: Any) -> Any:
    return optimizer.Adam(0.01, **settings)


def clipped(**settings: Any) -> Any:
    return optimizer.Momentum(0.1, 0.9, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.1), **settings)


def decayed(**settings: Any) -> Any:
    rate = dg.NoamDecay(16, 4)
    return optimizer.SGD(rate, regularization=fluid.regularizer.L2Decay(0.1), **settings)


@pytest.mark.parametrize("make", [adam, clipped, decayed])
def test_a_repeated_update_is_one_entry(make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(make)
    for _ in range(6):
        net.step()
    recorder.blocks.wait()
    for _ in range(6):
        net.step()
    slow = counted(monkeypatch, Replay, "_run")
    net.step()
    net.step()
    assert slow == []


@pytest.mark.parametrize("make", [adam, clipped, decayed])
def test_updates_are_those_without_blocks(make: Callable[..., Any]) -> None:
    compare(make)


def test_a_cleared_gradient_is_seen() -> None:
    compare(adam, lambda net, k: net.layer.bias.clear_gradient() if k % 3 == 2 else None)


def test_a_parameter_that_is_set_is_seen() -> None:
    compare(adam, lambda net, k: net.layer.bias.set_value(np.ones(3, "float32")) if k in (5, 8) else None)


def test_a_parameter_that_is_looked_at_is_seen() -> None:
    compare(clipped, lambda net, k: net.layer.weight.gradient() if k % 2 else None)


def test_parameters_that_come_to_share_a_value_are_seen() -> None:
    def share(net: Net, k: int) -> None:
        if k == 7:  # as two accumulators that are loaded from one variable
            first, second = net.optimizer._accumulators["beta1_pow_acc"].values()
            second._value = first._value

    compare(adam, share)


def test_a_parameter_that_is_frozen_is_seen() -> None:
    def freeze(net: Net, k: int) -> None:
        net.layer.bias.trainable = k < 6

    compare(adam, freeze)


CHANGED: dict[str, tuple[Callable[..., Any], Callable[[Net], Any]]] = {
    "a number": (adam, lambda net: setattr(net.optimizer, "_beta1", 0.3)),
    "a clip's": (clipped, lambda net: setattr(net.optimizer._grad_clip, "clip_norm", 1.0)),
    "another clip": (clipped, lambda net: setattr(net.optimizer, "_grad_clip", fluid.clip.GradientClipByValue(0.01))),
    "decay's": (decayed, lambda net: setattr(net.optimizer.regularization, "_regularization_coeff", 0.7)),
    "one's own": (adam, lambda net: setattr(net.layer.bias, "optimize_attr", {"learning_rate": 0.1})),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_setting_that_changes_is_seen(name: str) -> None:
    make, change = CHANGED[name]
    compare(make, lambda net, k: change(net) if k == 6 else None)


def test_a_setting_that_is_set_to_what_it_was_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(adam, lambda net, k: setattr(net.optimizer, "_beta1", float("0.9")))
    for _ in range(8):
        net.step()
    slow = counted(monkeypatch, Replay, "_run")
    net.step()
    assert slow == []


def test_an_optimizer_that_is_gone_leaves_no_parameters() -> None:
    net = Net(adam)
    for _ in range(6):
        net.step()
    weight = weakref.ref(net.layer.weight)
    del net
    gc.collect()
    assert weight() is None


def test_a_division_that_demands_nothing_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = [dg.to_variable(DATA + k) for k in range(2)]

    def step() -> Any:
        return ((x / y) / y).numpy()

    step()
    afresh = counted(monkeypatch, Recorder, "_run_other")
    np.testing.assert_allclose(step(), DATA / (DATA + 1) / (DATA + 1), rtol=1e-6)
    assert afresh == []


def test_a_division_that_demands_something_is_checked_each_time() -> None:
    x = dg.to_variable(np.array([6, 8], "int64"))
    for divisor, expected in (([2, 4], [3, 2]), ([3, 2], [2, 4]), ([1, 1], [6, 8])):
        assert (x // dg.to_variable(np.array(divisor, "int64"))).numpy().tolist() == expected
    with pytest.raises(fluid.core.EnforceNotMet, match="cannot take the value 0"):
        (x // dg.to_variable(np.array([2, 0], "int64"))).numpy()
