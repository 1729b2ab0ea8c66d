"""Training steps that are known as a whole, of other kinds: running statistics, metrics, variables that are stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.eager.recorded.pending import recorder
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
pytestmark = pytest.mark.usefixtures("compiled_quickly")
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

    def labels(self) -> np.ndarray:
        return (np.arange(len(self.data)).reshape(-1, 1) + self.step) % 2

    def forward(self) -> None:
        self.label = self.labels()
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


class Below(Measured):
    """Some labels are no labels; the next step comes all the same."""

    def labels(self) -> np.ndarray:
        found = super().labels()
        if self.step in (15, 24, 25):
            found[1] = -1
        return found

    def advance(self, rows: tuple[int, ...] = (4,)) -> None:
        try:
            super().advance(rows)
        except fluid.core.EnforceNotMet as error:
            self.seen.append(f"{self.step} {'accuracy' in str(error)} {'-1' in str(error)}")
            self.step += 1


def test_a_label_below_zero_is_refused_within_a_known_step(ran: list[str]) -> None:
    """By the metric that reads it, in the middle of what is promised."""
    found, expected = both(lambda: Below(nothing).run(40))
    compare(found, expected)
    assert [each for each in found if isinstance(each, str)] == [f"{step} True True" for step in (15, 24, 25)]
    assert ran.count("_run") >= 16 and ran.count("record") == 2  # the third comes after one that was recorded


def stop_for_good(t: Training) -> None:
    if t.step == FROM:
        t.trained[1].stop_gradient = True


@pytest.mark.parametrize("make", MAKE)
@pytest.mark.parametrize("kind", [Training, Outside, Statistics])
def test_a_parameter_that_is_stopped_for_good(kind: type[Training], make: str, ran: list[str]) -> None:
    """What was known before is not taken for what is known since: no gradient flows to it, and weight decay goes on."""

    class Once(kind):  # type: ignore[misc, valid-type]
        places = ("call",)

    compare(*both(lambda: Once(stop_for_good, MAKE[make]).run(40)))
    assert "_run" in ran


class Table(Net):
    """A table whose gradient is sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.a = dg.Embedding([8, 4], is_sparse=True)
        self.a.weight.set_value(np.linspace(-1, 1, 32, dtype="float32").reshape(8, 4))

    def forward(self, ids: Any) -> Any:
        return layers.reduce_mean(layers.square(self.b(layers.tanh(self.a(ids)))))


class Sparse(Training):
    """A net whose first parameter has a sparse gradient, which clearing removes."""

    kind = Table

    def forward(self) -> None:
        self.loss = self.net(dg.to_variable((np.arange(6) * (self.step + 1) + self.step // 3) % 8))
        self.at("call")


DENSE = """
set_parameter set_the_fixed_one write_into_the_batch leave_out_a_parameter rate_of_a_parameter evaluate gradients_of
"""  # what is done to other parameters and batches
SPARSE = [each for each in DOES if each.__name__ not in DENSE.split()]


@pytest.mark.parametrize("does", SPARSE)
def test_whatever_is_done_to_a_net_with_a_sparse_gradient_is_seen(does: Any, ran: list[str]) -> None:
    """At each place of a step; the same with each op run at once."""
    try:
        compare(*both(lambda: Sparse(does, MAKE["sgd"]).run()))
    finally:
        fluid.set_flags({"FLAGS_eager_layers": True})
    assert ran.count("_run") >= 2


@pytest.mark.parametrize("make", ["sgd", "adam"])
@pytest.mark.parametrize("clears", [True, False])
def test_sparse_gradients_are_part_of_the_step(make: str, clears: bool, ran: list[str]) -> None:
    """Whether they are removed or stay from step to step."""
    compare(*both(lambda: Sparse(nothing, MAKE[make], clears).run()))
    assert ran.count("_run") >= 8 and "record" not in ran


class Dropped(Outside):
    """Dropout between the net and the loss, which draws anew each time."""

    places = ("before", "call", "drop", "loss", "backward", "minimize", "clear", "end")

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        recorder._draws = 0

    def forward(self) -> None:
        self.label = (np.arange(len(self.data)).reshape(-1, 1) + self.step) % 2
        self.out = self.net(dg.to_variable(self.data))
        self.at("call")
        out = layers.dropout(self.out, 0.4)
        self.at("drop")
        self.cost = layers.softmax_with_cross_entropy(out, dg.to_variable(self.label))
        self.loss = layers.mean(layers.dropout(self.cost, 0.2, dropout_implementation="upscale_in_train"))
        self.at("loss")


@pytest.mark.parametrize("does", [nothing, *DOES])
def test_what_is_drawn_after_the_call_is_part_of_the_step(does: Any, ran: list[str]) -> None:
    """And drawn once: what is recorded because somebody looks has the numbers that were promised."""
    try:
        compare(*both(lambda: Dropped(does).run(FROM + 3 * len(Dropped.places))))
    finally:
        fluid.set_flags({"FLAGS_eager_layers": True})
    assert ran.count("_run") >= 2 and (does is not nothing or "record" not in ran)
