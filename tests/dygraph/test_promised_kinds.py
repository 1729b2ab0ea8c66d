"""Training steps that are known as a whole, of other kinds: running statistics, metrics, variables that are stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from tests.dygraph.test_promised import (
    DOES,
    FROM,
    MAKE,
    Logits,
    Net,
    Outside,
    Training,
    both,
    compare,
    flags_off,
    nothing,
    ran,
)

dg = fluid.dygraph
__all__ = ["ran"]


class Normed(Net):
    """With statistics, which each call replaces: those of the batch alone, so that rounding stays small."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = dg.BatchNorm(3, momentum=0.8), self.b
        self.b = dg.Sequential(self.norm, self.last)

    def forward(self, x: Any) -> Any:
        out = self.last(self.a(self.norm(x)))
        wanted = self.fixed(x)
        wanted.stop_gradient = True
        return layers.reduce_mean(layers.square(out - wanted))


class Statistics(Training):
    """A net whose parameters and statistics are replaced in each step."""

    kind = Normed

    def run(self, steps: int = 0, rows: tuple[int, ...] = (4,)) -> list[Any]:
        return super().run(steps or FROM + 3 * len(self.places), rows)


def look_at_statistics(t: Training) -> Any:
    return [t.net.norm._mean.numpy(), t.net.norm._variance.numpy()]


def set_statistics(t: Training) -> None:
    t.net.norm._mean.set_value(np.full([3], t.step / 10, "float32"))


def compute_with_statistics(t: Training) -> Any:
    return (t.net.norm._variance * 2).numpy()


def another_norm(t: Training) -> None:
    """Statistics that are other variables from now on."""
    before, t.net.norm._mean = t.net.norm._mean, dg.BatchNorm(3)._mean
    t.held.append(before)


def call_without_learning(t: Training) -> Any:
    return t.net(dg.to_variable(t.data)).numpy()


STATISTICS = [look_at_statistics, set_statistics, compute_with_statistics, another_norm, call_without_learning]


@pytest.mark.parametrize("does", [*STATISTICS, *DOES])
def test_whatever_is_done_to_a_net_with_statistics_is_seen(does: Any, ran: list[str]) -> None:
    """At each place of a step; the same with each op run at once."""
    try:
        compare(*both(lambda: [*(t := Statistics(does)).run(), look_at_statistics(t)]))
    finally:
        fluid.set_flags({"FLAGS_eager_layers": True})
    assert ran.count("_run") >= 2


@pytest.mark.parametrize("make", MAKE)
@pytest.mark.parametrize("rows", [(4,), (4, 2)])
def test_statistics_are_part_of_the_step(make: str, rows: tuple[int, ...], ran: list[str]) -> None:
    """For batches of one size or of two."""
    compare(*both(lambda: [*(t := Statistics(nothing, MAKE[make])).run(40, rows), look_at_statistics(t)]))
    assert ran.count("_run") >= 16 and "record" not in ran


def test_two_nets_that_share_what_is_trained(ran: list[str]) -> None:
    """Each has its own statistics: those of one are not taken for the other's."""

    def train() -> list[Any]:
        t = Statistics(nothing)
        one, other = t.net, Normed()
        other.a, other.b, other.last, other.fixed = one.a, one.b, one.last, one.fixed
        other.norm.weight, other.norm.bias = one.norm.weight, one.norm.bias
        found = []
        for turn in range(8):
            t.net = (one, other)[turn % 2]
            for _ in range(6):
                t.advance()
            found += [each.numpy() for net in (one, other) for each in (net.norm._mean, net.norm._variance)]
        return [*found, *t.seen]

    compare(*both(train))
    assert ran.count("_run") >= 4


class Measured(Outside):
    """Metrics of what the net gives, and a part of the loss through which no gradient flows."""

    places = ("before", "call", "share", "target", "stopped", "loss", "backward", "minimize", "clear", "end")
    kind = Logits

    def forward(self) -> None:
        self.label = (np.arange(len(self.data)).reshape(-1, 1) + self.step) % 2
        label = dg.to_variable(self.label)
        self.out = self.net(dg.to_variable(self.data))
        self.at("call")
        self.share = layers.accuracy(layers.softmax(self.out), label)
        self.at("share")
        target = layers.tanh(self.out) * 0.5
        self.at("target")
        target.stop_gradient = True
        self.at("stopped")
        self.loss = layers.mean(layers.square(self.out - target))
        self.cost = layers.mean(layers.softmax_with_cross_entropy(self.out, label))
        self.loss = self.loss + self.cost
        self.at("loss")


def look_at_share(t: Any) -> Any:
    return None if t.out is None else t.share.numpy()


def stop_share(t: Any) -> Any:
    if t.out is not None:
        t.share.stop_gradient = True


@pytest.mark.parametrize("does", [look_at_share, stop_share, *[each for each in DOES if each is not flags_off]])
def test_whatever_is_done_to_a_step_with_metrics_is_seen(does: Callable[[Any], Any], ran: list[str]) -> None:
    """At each place of a step; the same with each op run at once."""
    compare(*both(lambda: [*(t := Measured(does)).run(FROM + 3 * len(Measured.places)), t.share.numpy()]))
    assert ran.count("_run") >= 2


def test_metrics_and_stopped_variables_are_part_of_the_step(ran: list[str]) -> None:
    """A variable that is stopped before anything is computed from it changes nothing of what is known."""
    compare(*both(lambda: [*(t := Measured(nothing)).run(40), t.share.numpy(), t.out.gradient()]))
    assert ran.count("_run") >= 16 and "record" not in ran


def test_a_variable_that_is_stopped_in_some_steps(ran: list[str]) -> None:
    """Each way is promised in its turn, and no gradient flows where none should."""

    class Sometimes(Outside):
        def forward(self) -> None:
            self.out = self.net(dg.to_variable(self.data))
            double = self.out * 2
            if self.step // 10 % 2:
                double.stop_gradient = True
            self.loss = layers.mean(layers.square(self.out * double))

    compare(*both(lambda: [*(t := Sometimes(nothing)).run(60), t.out.gradient()]))
    assert ran.count("_run") >= 20


def test_a_variable_that_is_stopped_after_it_was_read(ran: list[str]) -> None:
    """What was computed from it before keeps its gradient; what is computed later has none."""

    class Late(Outside):
        def forward(self) -> None:
            self.out = self.net(dg.to_variable(self.data))
            double = self.out * 2
            first = double * 3
            double.stop_gradient = True
            self.loss = layers.mean(layers.square(first + double))

    compare(*both(lambda: Late(nothing).run(30)))


def test_a_label_below_zero_is_refused_by_a_metric_of_a_known_step(ran: list[str]) -> None:
    """The demand on the labels is checked before the step is promised."""
    with dg.guard():
        t = Measured(nothing)
        t.run(20)
        assert ran.count("_run") >= 4
        with pytest.raises(fluid.core.EnforceNotMet, match="accuracy"):
            layers.accuracy(layers.softmax(t.out), dg.to_variable(np.int64([[0], [1], [-1], [0]])))
