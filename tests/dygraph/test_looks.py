"""Training steps whose loss is read before ``backward``: whatever is done within them, and wherever, is seen."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.eager.whole.promised import Promise
from tests.dygraph.test_promised import (
    AFTER,
    DOES,
    MAKE,
    Outside,
    Training,
    both,
    compare,
    names,
    nothing,
    ran,
)
from tests.dygraph.test_promised_kinds import STATISTICS, Statistics, look_at_statistics

dg = fluid.dygraph
pytestmark = pytest.mark.usefixtures("compiled_quickly")
__all__ = ["ran"]
FROM = 24  # steps in which a step with a look is learned, and promised


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each step that ran had been run ahead."""
    found: list[bool] = []
    run = Promise._run

    def noted(promise: Any, *parts: Any) -> None:
        found.append(promise.ahead is not None)
        run(promise, *parts)

    monkeypatch.setattr(Promise, "_run", noted)
    return found


class Looked(Training):
    """The loss is read before the backward pass."""

    start = FROM

    def forward(self) -> None:
        super().forward()
        self.seen.append(self.loss.numpy())
        self.at("look")


class LookedOutside(Outside):
    """The same with a loss that is computed outside of the net."""

    start = FROM

    def forward(self) -> None:
        super().forward()
        share = layers.accuracy(self.shares, dg.to_variable(self.label))
        self.seen += [float(self.loss), share.numpy()]
        self.at("look")


class LookedStatistics(Looked, Statistics):
    """A net whose parameters and statistics are replaced in each step."""


class LookedLater(Training):
    """The loss is read after the backward pass."""

    start = FROM

    def at(self, place: str) -> None:
        if place == "backward":
            self.seen.append(self.loss.numpy())
        super().at(place)


for _kind in (Looked, LookedOutside, LookedStatistics):
    at = _kind.places.index("backward")
    _kind.places = (*_kind.places[:at], "look", *_kind.places[at:])


@pytest.mark.parametrize("does", DOES)
@pytest.mark.parametrize("kind", [Looked, LookedLater, LookedOutside, LookedStatistics])
def test_whatever_is_done_is_seen(kind: Any, does: Callable[[Any], Any], ahead: list[bool]) -> None:
    """At each place of a step; the same with each op run at once."""
    try:
        compare(*both(lambda: [*(t := kind(does)).run(FROM + 3 * len(kind.places)), *_statistics(t)]))
    finally:
        fluid.set_flags({"FLAGS_eager_layers": True})
    assert ahead.count(True) >= 4


def _statistics(t: Any) -> list[Any]:
    return look_at_statistics(t) if isinstance(t, Statistics) else []


@pytest.mark.parametrize("does", AFTER)
def test_whatever_is_done_to_what_is_computed_between_is_seen(does: Any, ahead: list[bool]) -> None:
    """Variables between the net and the loss."""
    compare(*both(lambda: LookedOutside(does).run(FROM + 3 * len(LookedOutside.places))))
    assert ahead.count(True) >= 4


@pytest.mark.parametrize("does", STATISTICS)
def test_whatever_is_done_to_statistics_is_seen(does: Any, ahead: list[bool]) -> None:
    compare(
        *both(
            lambda: [
                *(t := LookedStatistics(does)).run(FROM + 3 * len(LookedStatistics.places)),
                *look_at_statistics(t),
            ]
        )
    )
    assert ahead.count(True) >= 4


@pytest.mark.parametrize("make", [name for name in MAKE if name != "decay"])
@pytest.mark.parametrize("kind", [Looked, LookedLater, LookedOutside, LookedStatistics])
@pytest.mark.parametrize("clears", [True, False])
def test_each_step_runs_once_it_is_known(kind: Any, make: str, clears: bool, ran: list[str], ahead: Any) -> None:
    """The whole of it, at the look; nothing of it is recorded."""
    compare(*both(lambda: kind(nothing, MAKE[make], clears).run(60)))
    assert ahead.count(True) >= 30 and "record" not in ran


class LookedSometimes(Training):
    """The loss is read before the backward pass in every third step."""

    start = FROM

    def forward(self) -> None:
        super().forward()
        if self.step % 3 == 0:
            self.seen.append(self.loss.numpy())


@pytest.mark.parametrize("make", ["sgd", "adam"])
def test_a_look_now_and_then(make: str, ran: list[str], ahead: list[bool]) -> None:
    """Steps with and without one, on the same variables: in the end none is recorded."""
    compare(*both(lambda: LookedSometimes(nothing, MAKE[make]).run(80)))
    assert ahead.count(True) >= 10 and ahead.count(False) >= 25 and "record" not in ran[-30:]


RATES: dict[str, Any] = {
    "noam": lambda: dg.NoamDecay(16, 10),
    "polynomial": lambda: dg.PolynomialDecay(0.1, 40, 0.001),
    "warm-up": lambda: dg.LinearLrWarmup(dg.PiecewiseDecay([30, 36], [0.05, 0.1, 0.01], 0), 32, 0.0, 0.05),
    "epochs": lambda: dg.StepDecay(0.1, 2, 0.5),
}


def rate_of(t: Training) -> Any:
    return t.optimizer._learning_rate


@pytest.mark.parametrize("rate", RATES)
def test_a_rate_that_changes_is_foreseen(rate: str, ahead: list[bool]) -> None:
    def make(trained: Any) -> Any:
        return fluid.optimizer.Momentum(RATES[rate](), 0.9, parameter_list=trained)

    def train() -> list[Any]:
        t = Looked(names, make)
        return [
            *t.run(FROM + 3 * len(Looked.places)),
            *t.run(10),
            t.optimizer._learning_rate.state_dict().get("step_num"),
        ]

    compare(*both(train))
    assert ahead.count(True) >= 15 and ahead.count(False) <= 1


def test_a_schedule_that_fails_does_so_when_its_turn_comes(ahead: list[bool]) -> None:
    """Noam's at step 0: no look raises that."""

    def train() -> list[Any]:
        t = Looked(nothing, lambda p: fluid.optimizer.SGD(dg.NoamDecay(16, 10), parameter_list=p))
        found = t.run(30)
        rate_of(t).step_num = 0
        t.data = np.ones([4, 3], "float32")
        t.forward()
        t.loss.backward()
        with pytest.raises(ZeroDivisionError):
            t.optimizer.minimize(t.loss)
        return [*found, t.loss.numpy(), *[p.numpy() for p in t.trained], *[p.gradient() for p in t.trained]]

    compare(*both(train))
    assert ahead.count(True) >= 5


def test_what_was_computed_ahead_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds all parameters; a variable between the net and the loss that is held shall not."""
    given: list[Any] = []
    run = Promise._run

    def noted(promise: Any, *parts: Any) -> None:
        given.append(weakref.ref(promise.ahead))
        run(promise, *parts)

    monkeypatch.setattr(Promise, "_run", noted)
    with dg.guard():
        t = LookedOutside(nothing)
        held = []
        for _ in range(40):
            t.advance()
            held.append(t.out)
        assert len(given) >= 5 and [each() for each in given] == [None] * len(given)


class Halving(dg.learning_rate_scheduler.LearningRateDecay):
    """A schedule of the user's own, which is asked once for each step."""

    def step(self) -> float:
        return float(0.1 * 0.5 ** (self.step_num // 6))


def test_a_rate_of_the_users_own_is_not_asked_for_ahead(ahead: list[bool]) -> None:
    """If it is another one than in the step before, what was computed with that is dropped."""
    asked: list[int] = []
    step = Halving.step

    def noted(schedule: Any) -> float:
        asked.append(schedule.step_num)
        return step(schedule)

    Halving.step = noted  # type: ignore[method-assign]
    try:
        compare(*both(lambda: Looked(nothing, lambda p: fluid.optimizer.SGD(Halving(), parameter_list=p)).run(60)))
    finally:
        Halving.step = step  # type: ignore[method-assign]
    assert asked == [*range(60), *range(60)]
    assert ahead.count(True) >= 25 and 3 <= ahead.count(False) <= 8


def test_a_rate_that_is_never_foreseen_ends_it(ahead: list[bool]) -> None:
    """The step is recorded again then, in two batches."""

    class Falling(dg.learning_rate_scheduler.LearningRateDecay):
        def step(self) -> float:
            return 0.1 / (1 + self.step_num)

    compare(*both(lambda: Looked(nothing, lambda p: fluid.optimizer.SGD(Falling(), parameter_list=p)).run(60)))
    assert ahead == [False] * 8
