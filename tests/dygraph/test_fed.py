"""What a promised step is fed lies in memory that stays: nothing that came before changes with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.whole import fed as module
from fluidjax.eager.whole.fed import Fed
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
