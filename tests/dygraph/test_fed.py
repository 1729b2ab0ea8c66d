"""What a promised step is fed lies in memory that stays: nothing that came before changes with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.values import Value
from fluidjax.eager.whole import fed as module
from fluidjax.eager.whole.fed import Fed, Last
from fluidjax.eager.whole.promised import Promise
from fluidjax.execution.steps.in_place import MOST

dg = fluid.dygraph
STEPS = 14


class Net(dg.Layer):
    """A loss, and what it was fed, doubled and summed."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.a = dg.Linear(width, 2)

    def forward(self, x: Any, by: Any) -> Any:
        loss = layers.mean(layers.square(self.a(x)))
        return loss, layers.scale(x, 2.0), layers.elementwise_mul(layers.cast(by, "float32"), layers.reduce_sum(x))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps that ran as promised, by the number of arguments that lie in memory that stays."""
    found: list[int] = []
    run = Promise._run

    def noted(promise: Any, *given: Any) -> None:
        fed = promise.step.frame.fed
        found.append(-1 if fed is None else len(fed._stands))
        run(promise, *given)

    monkeypatch.setattr(Promise, "_run", noted)
    return found


def trained(width: int, rows: int, kept: list[Any]) -> None:
    """Steps on feeds that are written to before anything runs, and for each step."""
    with fluid.dygraph.guard():
        net = Net(width)
        optimizer = fluid.optimizer.SGD(0.01, parameter_list=net.parameters())
        x, by = np.zeros([rows, width], "float32"), np.zeros([1], "int64")
        for n in range(STEPS):
            x[...], by[...] = n, 1 << n
            given = dg.to_variable(x), dg.to_variable(by)
            loss, same, total = net(*given)
            loss.backward()
            x[...] = by[...] = -1
            optimizer.minimize(loss)
            net.clear_gradients()
            kept.append((same, total, given, loss.numpy()))
            recorder.blocks.wait()


@pytest.mark.parametrize("rows", [4, 10_000])
def test_what_was_computed_does_not_change_with_later_feeds(rows: int, runs: list[int]) -> None:
    kept: list[Any] = []
    trained(3, rows, kept)
    assert runs[-3:] == [2] * 3
    for n, (same, total, given, _) in enumerate(kept):
        np.testing.assert_array_equal(same.numpy(), np.full([rows, 3], 2 * n, "float32"))
        np.testing.assert_array_equal(total.numpy(), np.float32([3 * rows * n * (1 << n)]))
        assert [var.numpy().max() for var in given] == [-1, -1]


def test_large_feeds_are_left_to_xla(runs: list[int]) -> None:
    kept: list[Any] = []
    trained(MOST // 12 // 4 + 1, 12, kept)
    assert runs[-3:] == [0] * 3
    assert [same.numpy().max() for same, *_ in kept] == [*range(0, 2 * STEPS, 2)]


def test_memory_stays_only_where_a_run_is_done_when_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.ones([2], "float32")
    for done in (True, False):
        monkeypatch.setattr(module, "returns_when_done", lambda done=done: done)
        arguments = [array]
        Fed(arguments).put(arguments)
        assert (arguments[0] is not array) is done


def test_a_run_that_is_not_done_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Result:
        """Not there yet."""

        @staticmethod
        def is_ready() -> bool:
            return False

    waited: list[Any] = []
    monkeypatch.setattr(module.jax, "block_until_ready", waited.append)
    results = [Result()]
    Fed([]).wait(results)
    assert waited == [results]


class Learner(dg.Layer):
    """A net that is trained towards one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.target = dg.Linear(3, 2), dg.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        wanted = layers.tanh(self.target(x))
        wanted.stop_gradient = True
        return layers.mean(layers.square(layers.tanh(self.net(x)) - wanted))


def learnt(rng: np.random.RandomState, every: int, decays: bool) -> tuple[list[Any], Fed | None]:
    """Losses on two feeds that come in turn, and memory; the target becomes the net after so many steps."""
    with fluid.dygraph.guard():
        learner = Learner()
        for p in learner.parameters():
            p.set_value(rng.uniform(-1, 1, p.shape).astype("float32"))
        rate = dg.ExponentialDecay(0.3, 4, 0.5) if decays else 0.3
        optimizer = fluid.optimizer.Momentum(rate, 0.5, parameter_list=learner.net.parameters())
        feeds = [dg.to_variable(rng.uniform(-1, 1, [4, 3]).astype("float32")) for _ in range(2)]
        losses, fed = [], None
        for n in range(40):
            loss = learner(feeds[n // 3 % 2])
            loss.backward()
            optimizer.minimize(loss)
            learner.clear_gradients()
            fed = None if recorder.promised is None else recorder.promised.step.frame.fed
            losses.append(loss.numpy())
            recorder.blocks.wait()
            if n % every == every - 1:
                learner.target.set_dict(learner.net.state_dict())
    return losses, fed


@pytest.mark.usefixtures("compiled_well")
@pytest.mark.parametrize("every", [100, 5])
@pytest.mark.parametrize("decays", [False, True])
def test_what_stays_is_not_copied_again(every: int, decays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of feeds in turn, a rate that decays or not, and parameters that are replaced at times."""
    found: list[bool] = []
    filled = Last.filled

    def noted(last: Last, leaves: Any) -> Any:
        arguments = filled(last, leaves)
        found.append(arguments is not None)
        return arguments

    monkeypatch.setattr(Last, "filled", noted)
    losses, fed = learnt(np.random.RandomState(3), every, decays)
    assert fed is not None
    assert found.count(True) > 10
    assert fed.last is not None
    assert len(fed.last.moving) == 1 + 2 * (every < 100)
    assert len(fed.last.written) == decays
    fluid.set_flags({"FLAGS_eager_blocks": False})
    try:
        expected, _ = learnt(np.random.RandomState(3), every, decays)
    finally:
        fluid.set_flags({"FLAGS_eager_blocks": True})
    np.testing.assert_allclose(np.ravel(losses), np.ravel(expected), rtol=2e-5, atol=1e-7)


def test_memory_that_was_written_to_in_vain_is_written_to_again() -> None:
    """A step may be given up between ``put`` and its run: what its memory held before is not there any more."""
    first, second = Value(np.float32([1, 2])), Value(np.float32([3, 4]))
    fed = Fed([first.array])
    for _ in range(2):
        arguments = [first.array]
        fed.put(arguments)
        fed.last = fed.noted([0], [first], arguments)
    given = fed.last.filled([first])
    assert given is not None
    assert np.asarray(given[0]).tolist() == [1, 2]
    assert fed.last.filled([second]) is None
    fed.put([second.array])
    assert fed.last is None
