"""Nets that return what they compute further with: a loss and the scores that it is of, and what is done to these."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.eager.recorded.pending import recorder
from tests.dygraph.test_known_calls import batch, linear, repeated
from tests.dygraph.test_promised import (
    AFTER,
    DOES,
    FROM,
    MAKE,
    Net,
    Training,
    another_backward,
    both,
    compare,
    nothing,
    ran,
)

dg = fluid.dygraph
__all__ = ["ran", "repeated"]


class Scored(dg.Layer):
    """Scores, which two more results are computed from, one of them without the other."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = linear(3, 4, "tanh"), linear(4, 6)

    def forward(self, x: Any) -> Any:
        out = self.b(self.a(x))
        return out, layers.mean(layers.square(out)), layers.softmax(out)


Use = Callable[[Any, list[Any]], list[Any]]
USES: list[Use] = []


def use(function: Use) -> Use:
    USES.append(function)
    return function


def taken(given: list[Any]) -> tuple[Any, ...]:
    """What the net gave, which nobody else holds from now on."""
    found = tuple(given)
    given.clear()
    return found


@use
def gradients_of_all(x: Any, given: list[Any]) -> list[Any]:
    out, loss, shares = taken(given)
    loss.backward()
    return [out.gradient(), loss.gradient(), shares.gradient(), x.gradient()]


@use
def scores_set(x: Any, given: list[Any]) -> list[Any]:
    out, loss, shares = taken(given)
    out.set_value(np.full(out.shape, 0.25, "float32"))
    loss.backward()
    return [out.gradient(), out.numpy(), x.gradient()]


@use
def scores_set_and_dropped(x: Any, given: list[Any]) -> list[Any]:
    out, loss, shares = taken(given)
    values = np.full(out.shape, 0.25, "float32")
    out.set_value(values)
    held = weakref.ref(out)
    del out
    loss.backward()
    return [x.gradient(), held() is None]


@use
def scores_assigned(x: Any, given: list[Any]) -> list[Any]:
    out, loss, shares = taken(given)
    layers.assign(layers.concat([x, x], 1), out)
    (loss + layers.mean(out)).backward()
    return [out.gradient(), x.gradient()]


@use
def scores_stopped(x: Any, given: list[Any]) -> list[Any]:
    out, loss, shares = taken(given)
    out.stop_gradient = True
    loss.backward()
    return [out.gradient(), x.gradient()]


@use
def scores_stopped_and_dropped(x: Any, given: list[Any]) -> list[Any]:
    out, loss, shares = taken(given)
    out.stop_gradient = True
    del out
    loss.backward()
    return [x.gradient()]


@use
def gradient_stopped_between_passes(x: Any, given: list[Any]) -> list[Any]:
    out, loss, shares = taken(given)
    loss.backward(retain_graph=True)
    out._grad_ivar().stop_gradient = True
    out.clear_gradient()
    loss.backward()
    return [out.gradient(), x.gradient()]


@use
def gradient_stopped_between_passes_and_dropped(x: Any, given: list[Any]) -> list[Any]:
    out, loss, shares = taken(given)
    loss.backward(retain_graph=True)
    out._grad_ivar().stop_gradient = True
    del out
    loss.backward()
    return [x.gradient()]


@use
def more_is_computed_from_the_scores(x: Any, given: list[Any]) -> list[Any]:
    out, loss, shares = taken(given)
    more = layers.reduce_sum(out * 0.5)
    (loss + more).backward()
    return [out.gradient(), more.gradient(), x.gradient()]


@use
def backward_from_the_scores(x: Any, given: list[Any]) -> list[Any]:
    out, loss, shares = taken(given)
    layers.mean(out).backward(retain_graph=True)
    first = x.gradient(), out.gradient()
    loss.backward()
    return [*first, x.gradient(), out.gradient()]


@use
def backward_of_the_scores_themselves(x: Any, given: list[Any]) -> list[Any]:
    out, loss, shares = taken(given)
    out.backward()
    return [x.gradient(), out.gradient(), _refused(loss.backward), x.gradient()]


@use
def the_other_result_after_a_pass(x: Any, given: list[Any]) -> list[Any]:
    out, loss, shares = taken(given)
    loss.backward()
    return [x.gradient(), _refused(shares.backward), x.gradient(), out.gradient()]


@use
def the_other_result_after_a_retained_pass(x: Any, given: list[Any]) -> list[Any]:
    out, loss, shares = taken(given)
    loss.backward(retain_graph=True)
    shares.backward()
    return [x.gradient(), out.gradient()]


@use
def passes_in_a_row(x: Any, given: list[Any]) -> list[Any]:
    out, loss, _ = taken(given)
    loss.backward(retain_graph=True)
    loss.backward()
    return [x.gradient(), out.gradient()]


@use
def what_a_pass_has_not_visited(x: Any, given: list[Any]) -> list[Any]:
    out, loss, shares = taken(given)
    loss.backward()
    return [dg.grad(shares, [out], grad_outputs=out.detach())[0].numpy(), x.gradient()]


@use
def gradients_between_results(x: Any, given: list[Any]) -> list[Any]:
    out, loss, shares = taken(given)
    return [g.numpy() for g in dg.grad([loss, shares], [out], grad_outputs=[None, out.detach()])]


@use
def second_derivatives(x: Any, given: list[Any]) -> list[Any]:
    out, loss, shares = taken(given)
    (first,) = dg.grad(loss, [out], create_graph=True)
    layers.reduce_sum(first * first).backward()
    return [first.numpy(), x.gradient()]


def _refused(backward: Callable[[], None]) -> np.ndarray:
    try:
        backward()
    except fluid.core.EnforceNotMet as error:
        return np.array("freed" in str(error))
    return np.array("no error")


@pytest.fixture
def in_order() -> Iterator[None]:
    """Blocks compiled in between would change how numbers are rounded."""
    fluid.set_flags({"FLAGS_cpu_deterministic": True})
    yield
    fluid.set_flags({"FLAGS_cpu_deterministic": False})


def steps(does: Use, count: int = 14) -> list[Any]:
    net, found = Scored(), []
    for k in range(count):
        x = batch(k)
        x.stop_gradient = False
        found += [None if each is None else np.asarray(each).tolist() for each in does(x, list(net(x)))]
        found += [p.gradient() for p in net.parameters()]
        for p in net.parameters():
            p._grad = None
    return found


def each_way(make: Callable[[], list[Any]]) -> None:
    """Repeated calls give what calls give that run, and what ops give that run at once."""
    with dg.guard():
        found = make()
    for flag in ("FLAGS_eager_layers", "FLAGS_eager_blocks"):
        fluid.set_flags({flag: False})
        try:
            with dg.guard():
                expected = make()
        finally:
            fluid.set_flags({flag: True})
        assert [str(each) for each in found] == [str(each) for each in expected]


@pytest.mark.usefixtures("in_order")
@pytest.mark.parametrize("does", USES)
def test_results_are_used_as_ever(does: Use, repeated: list[int]) -> None:
    each_way(lambda: steps(does))
    assert len(repeated) >= 4


@pytest.mark.usefixtures("in_order")
def test_uses_alternate(repeated: list[int]) -> None:
    """A pass that is known after a call is not taken for another."""

    def make() -> list[Any]:
        net, found = Scored(), []
        for k in range(5 * len(USES)):
            x = batch(k % 3)
            x.stop_gradient = False
            found += [
                None if each is None else np.asarray(each).tolist() for each in USES[k % len(USES)](x, list(net(x)))
            ]
            for p in net.parameters():
                p._grad = None
        return found

    each_way(make)
    assert len(repeated) >= 40


class Heads(dg.Layer):
    """Two losses that have nothing in common."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = linear(3, 4, "tanh"), linear(3, 2)

    def forward(self, x: Any) -> Any:
        return layers.mean(self.a(x)), layers.mean(layers.square(self.b(x)))


@pytest.mark.usefixtures("compiled_well")  # what it trains doubles a difference every other step
@pytest.mark.parametrize("later", [False, True])
def test_losses_of_one_call_have_passes_of_their_own(later: bool, repeated: list[int]) -> None:
    """The second is not freed by the first, not even if that one is updated with in between."""

    def make() -> list[Any]:
        net, found = Heads(), []
        optimizer = fluid.optimizer.SGD(0.1, parameter_list=net.parameters())
        for k in range(16):
            one, other = net(batch(k))
            one.backward()
            if later:
                optimizer.minimize(one)
            other.backward()
            optimizer.minimize(other)
            found += [one.numpy(), other.numpy(), *[p.gradient() for p in net.parameters()]]
            net.clear_gradients()
            recorder.blocks.wait()
        return [*found, *[p.numpy() for p in net.parameters()]]

    compare(*both(make))
    assert len(repeated) >= 8


def test_a_call_that_nothing_follows_leaves_nothing() -> None:
    """Its results do not refer to each other in a circle."""
    with dg.guard():
        net = Scored()
        for k in range(8):
            net(batch(k))[1].numpy()
        gc.collect()
        gc.disable()
        try:
            results = net(batch(0))
            held = [weakref.ref(each) for each in results]
            del results
            assert all(each() is None for each in held)
        finally:
            gc.enable()


class Given(Net):
    """Scores and the loss of them."""

    def forward(self, x: Any, label: Any) -> Any:
        out = self.b(self.a(x))
        return out, layers.mean(layers.softmax_with_cross_entropy(out, label))


class Classifying(Given):
    """Loss, accuracy and shares, as classifiers of the model zoo return them."""

    def forward(self, x: Any, label: Any) -> Any:
        shares = layers.softmax(self.b(self.a(x)))
        return layers.mean(layers.cross_entropy(shares, label)), layers.accuracy(shares, label), shares


class Within(Training):
    """A net that gives its scores with the loss."""

    kind: Any = Given

    def labels(self) -> np.ndarray:
        return (np.arange(len(self.data)).reshape(-1, 1) + self.step) % 2

    def forward(self) -> None:
        self.label = self.labels()
        self.out, self.loss = self.net(dg.to_variable(self.data), dg.to_variable(self.label))
        self.cost = self.out
        self.at("call")


class Classified(Within):
    """The loss is computed from shares that are returned."""

    kind = Classifying

    def forward(self) -> None:
        self.label = self.labels()
        self.loss, self.share, self.out = self.net(dg.to_variable(self.data), dg.to_variable(self.label))
        self.cost = self.share
        self.at("call")


class Twice(Within):
    """More of the loss is computed outside, from the scores."""

    places = ("before", "call", "loss", "backward", "minimize", "clear", "end")

    def forward(self) -> None:
        super().forward()
        self.loss = self.loss + layers.mean(layers.square(self.out)) * 0.1
        self.at("loss")


KINDS = [Within, Classified, Twice]
_ELSEWHERE = {"evaluate", "without_gradients"}  # their net has one argument
CASES = [(kind, does) for kind in KINDS for does in [*DOES, *AFTER] if does.__name__ not in _ELSEWHERE]
CASES.remove((Twice, another_backward))  # it frees what the rest of the loss is computed from


@pytest.mark.parametrize(("kind", "does"), CASES)
def test_whatever_is_done_is_seen(kind: Any, does: Callable[[Any], Any], ran: list[str]) -> None:
    """At each place of a step; the same with each op run at once."""
    try:
        compare(*both(lambda: kind(does).run(FROM + 3 * len(kind.places))))
    finally:
        fluid.set_flags({"FLAGS_eager_layers": True})
    assert ran.count("_run") >= 2


@pytest.mark.parametrize("make", MAKE)
@pytest.mark.parametrize("kind", KINDS)
def test_such_a_step_runs_as_one(kind: Any, make: str, ran: list[str]) -> None:
    """Once what is held at its end is known, nothing of it is recorded."""
    compare(*both(lambda: [*(t := kind(nothing, MAKE[make])).run(30), t.out.numpy(), t.out.gradient()]))
    assert ran.count("_run") >= 16 and "record" not in ran[2:]


def test_what_is_held_only_sometimes_is_given_then(ran: list[str]) -> None:
    """Scores that the script drops in most steps: the step is known, and they are not missing in the others."""

    class Sometimes(Within):
        def forward(self) -> None:
            super().forward()
            if self.step % 4:
                self.out = self.cost = None

    compare(*both(lambda: [*(t := Sometimes(nothing)).run(41), t.out.numpy(), t.out.gradient()]))
    assert ran.count("_run") >= 20


def test_a_branch_that_ends_at_a_result_is_not_left_behind(ran: list[str]) -> None:
    """Shares of the scores, and the scores: the gradient of one by the other can be asked for after the update."""

    class Branch(Given):
        def forward(self, x: Any, label: Any) -> Any:
            out, loss = super().forward(x, label)
            return out, loss, layers.softmax(out)

    class Asking(Within):
        kind = Branch

        def forward(self) -> None:
            self.label = self.labels()
            self.out, self.loss, self.shares = self.net(dg.to_variable(self.data), dg.to_variable(self.label))

        def advance(self, rows: tuple[int, ...] = (4,)) -> None:
            super().advance(rows)
            weights = dg.to_variable(np.linspace(0, 1, 8, dtype="float32").reshape(4, 2))
            self.seen.append(dg.grad(self.shares, [self.out], grad_outputs=weights)[0].numpy())

    compare(*both(lambda: Asking(nothing).run(20)))
