"""Moments and the like enter and leave a batch together, and nobody sees it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.base.errors import EnforceNotMet
from fluidjax.eager.recorded.groups import Member
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.sequences import blocks

dg = fluid.dygraph
STEPS = 12


@pytest.fixture(autouse=True)
def guard() -> Iterator[None]:
    with dg.guard():
        yield


class Training:
    """A layer, Adam, and what is done in each step between the update and the look at the loss."""

    def __init__(self, between: Callable[[Training, int], Any] = lambda training, k: None) -> None:
        self.layer = dg.Linear(3, 2)
        for p in self.layer.parameters():
            p.set_value(np.linspace(-1, 1, int(np.prod(p.shape)), dtype="float32").reshape(p.shape))
        self.adam = fluid.optimizer.Adam(0.1, parameter_list=self.layer.parameters())
        self.between = between
        self.seen: list[Any] = []
        self.copies: list[Any] = []
        self.state: dict[str, Any] = {}

    def run(self, steps: int = STEPS, rows: tuple[int, ...] = (4,)) -> list[Any]:
        """The losses, what was seen between, and all that training left."""
        for k in range(steps):
            data = np.linspace(0, k + 1, 3 * rows[k % len(rows)], dtype="float32").reshape(-1, 3)
            loss = layers.reduce_mean(layers.square(self.layer(dg.to_variable(data))))
            loss.backward()
            self.adam.minimize(loss)
            self.layer.clear_gradients()
            self.seen.append(self.between(self, k))
            self.seen.append(loss.numpy())
            recorder.blocks.wait()
        return [*self.seen, *[v.numpy() for v in self.own()], *[p.numpy() for p in self.layer.parameters()]]

    def own(self) -> list[Any]:
        """Adam's variables."""
        return [var for each in self.adam._accumulators.values() for var in each.values()]

    def kept(self) -> bool:
        """Whether they are kept together now."""
        return all(var._held.__class__ is Member and var._held.group.intact for var in self.own())


def look(training: Training, k: int) -> Any:
    return training.own()[k % 4].numpy() if k % 3 == 0 else None


def assign(training: Training, k: int) -> Any:
    if k in (6, 9):
        training.own()[1].set_value(np.full([2], 0.25, "float32"))


def halve(training: Training, k: int) -> Any:
    if k in (6, 9):
        for var in training.own():
            layers.assign(var * 0.5, var)


def detach(training: Training, k: int) -> Any:
    if k % 4 == 3:
        training.copies.append(training.own()[0].detach())
    return [copy.numpy() for copy in training.copies]


def load(training: Training, k: int) -> Any:
    if k == 5:
        held: dict[str, Any] = training.adam.state_dict()
        training.state = {name: var.numpy() for name, var in held.items()}
    if k == 8:
        training.adam.set_dict(training.state)


@pytest.mark.parametrize("between", [look, assign, halve, detach, load])
@pytest.mark.parametrize("rows", [(4,), (4, 2)])
def test_whatever_is_done_to_them_is_seen(between: Callable[[Training, int], Any], rows: tuple[int, ...]) -> None:
    """Before the batch runs, and after it; the same with each op run at once."""
    found = Training(between).run(rows=rows)
    fluid.set_flags({"FLAGS_eager_blocks": False})
    try:
        expected = Training(between).run(rows=rows)
    finally:
        fluid.set_flags({"FLAGS_eager_blocks": True})
    for one, other in zip(found, expected, strict=True):
        if other is not None:
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


def test_they_stay_together_while_nobody_looks() -> None:
    """One group for all steps, of two batch sizes; after a look, the next update that is known forms another."""
    groups: list[Any] = []
    training = Training(lambda training, k: groups.append(getattr(training.own()[0]._held, "group", None)))
    training.run(16, (4, 2))
    assert groups[-1] is not None and groups[-4:] == [groups[-1]] * 4
    assert not training.kept()
    training.run(2, (4, 2))
    assert groups[-1] is not groups[-3] and groups[-1] is not None


def test_shapes_part_nothing() -> None:
    """What they are is known without their values."""
    training = Training(lambda training, k: ([v.shape for v in training.own()], training.kept()))
    training.run()
    shapes, together = training.seen[-2]
    assert together and shapes == [[3, 2], [2], [3, 2], [2], [1], [1], [1], [1]]


def test_a_batch_that_fails_leaves_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their old values are gone with it: each says so, and takes another."""
    training = Training()
    training.run()
    training.seen.clear()
    together: list[bool] = []

    def fail(training: Training, k: int) -> None:
        together.append(training.kept())
        if len(together) == 3:
            monkeypatch.setattr(blocks.Blocks, "run", lambda *args, **named: 1 / 0)

    training.between = fail
    with pytest.raises(ZeroDivisionError):
        training.run(3)
    monkeypatch.undo()
    assert together[-1]
    with pytest.raises(EnforceNotMet, match="has no value"):
        training.own()[0].numpy()
    for var in [*training.own(), *training.layer.parameters()]:
        var.set_value(np.full(var.shape, 0.5, "float32"))
    training.between = lambda training, k: None
    assert np.isfinite(np.concatenate([np.ravel(x) for x in training.run(3) if x is not None])).all()


def test_an_optimizer_that_is_gone_leaves_no_values() -> None:
    """Members do not refer to variables, so that these are released at once."""
    training = Training()
    training.run()
    gone = [weakref.ref(var) for var in training.own()]
    gc.collect()
    gc.disable()
    try:
        del training
        assert [ref() for ref in gone] == [None] * len(gone)
    finally:
        gc.enable()
