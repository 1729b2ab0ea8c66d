"""Blocks that are compiled quickly at first, and well once their runs have taken as long as that takes."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.sequences import blocks, tiers
from fluidjax.eager.sequences.whole import Whole
from fluidjax.execution.executables import kept
from fluidjax.execution.executables.executable import Executable
from fluidjax.execution.executables.store import Store
from tests.dygraph import afresh

dg, layers = fluid.dygraph, fluid.layers


class Training:
    """Steps of a small net, promised where nobody looks in between."""

    def __init__(self, rows: int = 4, *, convolves: bool = False) -> None:
        self.net = dg.Conv2D(1, 4, 3) if convolves else dg.Linear(9, 4, act="tanh")
        for p in self.net.parameters():
            p.set_value(np.random.RandomState(len(p.shape)).uniform(-0.3, 0.3, p.shape).astype("float32"))
        self.opt = fluid.optimizer.AdamOptimizer(0.01, parameter_list=self.net.parameters())
        shape = [rows, 1, 9, 9] if convolves else [rows, 9]
        self.x = dg.to_variable(np.random.RandomState(7).uniform(-1, 1, shape).astype("float32"))

    def step(self) -> float:
        loss = layers.reduce_mean(layers.square(self.net(self.x)))
        loss.backward()
        self.opt.minimize(loss)
        self.net.clear_gradients()
        return float(loss.numpy()[0])

    def run(self, steps: int) -> list[float]:
        losses = []
        for _ in range(steps):
            losses.append(self.step())
            recorder.blocks.wait()
        return losses


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What executables were asked for, in order: None for the usual options."""
    asked: list[Any] = []
    of = Executable.of

    def watched(traced: Any, **given: Any) -> Executable:
        asked.append(given.get("options"))
        return of(traced, **given)

    monkeypatch.setattr(Executable, "of", staticmethod(watched))
    return asked


def held() -> list[Whole]:
    return [b for e in recorder.blocks._entries.values() for b in e.blocks if isinstance(b, Whole)]


def by_op(steps: int) -> list[float]:
    fluid.set_flags({"FLAGS_eager_blocks": 0})
    try:
        return Training().run(steps)
    finally:
        fluid.set_flags({"FLAGS_eager_blocks": 1})


def test_a_block_is_compiled_well_when_its_runs_have_taken_that_long(options: list[Any]) -> None:
    with dg.guard():
        expected = by_op(30)
        training = Training()
        losses = training.run(12)
        assert options == [tiers._QUICK]
        (block,) = held()
        assert block._left > 0
        block._left = 0.0
        losses += training.run(18)
        assert options == [tiers._QUICK, None]
        assert recorder.blocks.compilations == 2
        np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_the_better_one_takes_the_place_of_the_first_in_promised_steps(options: list[Any]) -> None:
    """It runs once by way of jax; from then on as the first one did."""
    with dg.guard():
        training = Training()
        training.run(10)
        (block,) = held()
        first = block.direct
        assert block.ready
        block.improve()
        assert not block.ready
        assert block.direct is None
        training.step()
        assert block.ready
        assert block.direct != first
        before = block._runs
        training.run(3)
        assert block._runs == before + 3


def test_what_an_earlier_process_compiled_well_is_not_compiled_quickly(
    options: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(kept, "_store", Store(tmp_path / "notes"))
    with dg.guard():
        Training().run(8)
        assert options == [tiers._QUICK]
    for expected in ([tiers._QUICK], [None], [None]):  # the first one ended before its block was compiled well
        with afresh.nothing_remembered(), dg.guard():
            options.clear()
            Training().run(8)
            assert options == expected
            recorder.blocks.wait(well=True)
            Training(rows=8).run(8)
            assert options[-1] == tiers._QUICK  # another one


def test_each_run_counts_with_what_the_first_ones_took() -> None:
    begun: list[int] = []
    with dg.guard():
        training = Training()
        training.run(10)
        (block,) = held()
        block._seconds, block._left = 1.0, 3.5
        block.better = lambda: begun.append(block._runs)
        begin = block._runs
        training.run(6)
        assert begun == [begin + 4]


def test_convolutions_are_compiled_well_at_once(options: list[Any]) -> None:
    with dg.guard():
        Training(convolves=True).run(8)
    assert options == [None]
    (block,) = held()
    assert block.improve() == 0


def test_so_are_ops_over_many_numbers(options: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_MANY", 40)
    with dg.guard():
        Training(rows=2).run(8)
        Training(rows=400).run(8)
    assert options == [tiers._QUICK, None]


def test_where_xla_compiles_quickly_more_ops_make_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_SMALL", 8)
    with dg.guard():
        training = Training()
        training.run(8)
        ops = max(point.depth for point in recorder.blocks._entries)
        assert blocks._SMALL < ops <= blocks._SMALL * blocks._QUICK
        assert held()


def asked() -> bool:
    return any(entry.asked for entry in recorder.blocks._entries.values())


def test_on_one_processor_the_block_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ops one by one would take turns with the thread that compiles."""
    monkeypatch.setattr(blocks, "one_processor", lambda: True)
    with dg.guard():
        training = Training()
        while not asked():
            assert not held()
            training.step()
        assert held()


def test_on_several_ops_run_on_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    compile_first = tiers.Tiered._compile_first

    def late(self: Whole, *args: Any, **kwargs: Any) -> None:
        go.wait()
        compile_first(self, *args, **kwargs)

    monkeypatch.setattr(tiers.Tiered, "_compile_first", late)
    with dg.guard():
        training = Training()
        while not asked():
            training.step()
        training.step()
        assert not held()
        go.set()
        recorder.blocks.wait()
        assert held()


def test_waiting_for_what_a_long_training_comes_to_compiles_each_block_well(options: list[Any]) -> None:
    with dg.guard():
        training = Training()
        training.run(8)
        recorder.blocks.wait(well=True)
        recorder.blocks.wait(well=True)
        assert options == [tiers._QUICK, None]
        training.run(2)
