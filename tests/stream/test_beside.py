"""Rooms that are compiled beside the runs: the same numbers, and no run waits for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.execution.executables import background
from fluidjax.execution.feeding.ragged import Ragged
from fluidjax.execution.rooms.buckets import finer, sum_of_others
from fluidjax.execution.rooms.families import Room
from fluidjax.execution.rooms.tiers import Tiers, Visit
from fluidjax.execution.steps.compiled import CompiledOps

WORDS = 30


@pytest.fixture(autouse=True)
def beside() -> Iterator[None]:
    fluid.set_flags({"FLAGS_background_compilation": True})
    yield
    background.wait()
    fluid.set_flags({"FLAGS_background_compilation": False})


class Classifier:
    """A bag of words that trains, with checked ids and a state that its steps overwrite."""

    def __init__(self, seed: int = 0, wide: int = 8):
        self.main, startup, self.scope = fluid.Program(), fluid.Program(), fluid.Scope()
        self.main.random_seed, startup.random_seed = seed, 7
        with fluid.program_guard(self.main, startup), fluid.unique_name.guard():
            words = fluid.data("words", [None, 1], "int64", lod_level=1)
            rows = layers.embedding(words, [WORDS, wide])
            pooled = layers.sequence_pool(layers.fc(rows, 4, act="tanh"), "sum")
            self.loss = layers.mean(layers.square(layers.fc(pooled, 3)))
            fluid.optimizer.SGD(0.1).minimize(self.loss)
        self.executor = fluid.Executor(fluid.CPUPlace())
        self.executor.run(startup, scope=self.scope)

    def step(self, *lengths: int, first: int = 0) -> float:
        words = (np.arange(sum(lengths)).reshape(-1, 1) + first) % WORDS
        feed = {"words": fluid.create_lod_tensor(words, [list(lengths)], fluid.CPUPlace())}
        (loss,) = self.executor.run(self.main, feed=feed, fetch_list=[self.loss], scope=self.scope)
        return float(loss)

    @property
    def compilations(self) -> int:
        return sum(p.compilations for p in self.main.__dict__["_prepared_cache"].values())


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rooms, in rows, that become due at the next runs that fit."""
    rows: list[int] = []

    def due(self: Tiers, visit: Visit, price: float) -> Room | None:
        if not rows or not self._beside:
            return None
        room = Room((rows.pop(0), *visit.room[1:]), ready=False)
        visit.family.rooms.append(room)
        return room

    monkeypatch.setattr(Tiers, "due", due)
    return rows


@pytest.mark.parametrize("wide", [8, 20_000], ids=["checked by the step", "checked ahead of the step"])
def test_a_closer_room_changes_nothing(wanted: list[int], wide: int) -> None:
    one, other = Classifier(wide=wide), Classifier(wide=wide, seed=7)  # a seeded program compiles what it needs alone
    lengths = [(9, 5), (3, 4), (3, 4), (4, 4), (2, 3), (20, 1)]
    expected = [other.step(*of) for of in lengths]
    found = [one.step(*of) for of in lengths[:2]]
    assert one.compilations == 1
    wanted.append(8)
    found.append(one.step(*lengths[2]))
    background.wait()
    assert one.compilations == 2
    found += [one.step(*of) for of in lengths[3:]]
    assert one.compilations == 2, "the step that was compiled beside the runs was not used"
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    with pytest.raises(fluid.core.EnforceNotMet, match="30"):
        feed = fluid.create_lod_tensor(np.full((2, 1), WORDS), [[2]], fluid.CPUPlace())
        one.executor.run(one.main, feed={"words": feed}, fetch_list=[one.loss], scope=one.scope)
    assert np.isfinite(one.step(3, 4))


def test_runs_go_on_meanwhile(wanted: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    classifier, go = Classifier(), threading.Event()
    ahead = CompiledOps.ahead

    def held(self: CompiledOps, *arguments: Any) -> Any:
        task = ahead(self, *arguments)
        return lambda: go.wait(240) and task()

    monkeypatch.setattr(CompiledOps, "ahead", held)
    classifier.step(9, 5)
    classifier.step(3, 4)
    wanted.append(8)
    losses = [classifier.step(3, 4) for _ in range(5)]
    assert classifier.compilations == 1
    assert np.isfinite(losses).all()
    go.set()
    background.wait()
    assert np.isfinite(classifier.step(3, 4))
    assert classifier.compilations == 2


def test_a_run_waits_for_the_room_that_is_being_compiled(wanted: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a second compilation of the same room nor one of another takes place."""
    classifier, begun, go = Classifier(), threading.Event(), threading.Event()
    compiled = CompiledOps._compiled

    def slow(self: CompiledOps, *arguments: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            go.wait(240)
        return compiled(self, *arguments)

    monkeypatch.setattr(CompiledOps, "_compiled", slow)
    for _ in range(2):
        classifier.step(3, 4)
    wanted.append(128)
    classifier.step(3, 4)
    assert begun.wait(240)
    threading.Timer(0.05, go.set).start()
    assert np.isfinite(classifier.step(70, 30))
    background.wait()
    assert np.isfinite(classifier.step(80, 30))
    assert classifier.compilations == 2


def test_sequences_of_one_row_get_no_room_beyond_their_number() -> None:
    """A batch of start words for a decoder, say: its size is the batch's."""
    assert Ragged(np.zeros((3, 1)), [[0, 1, 2, 3]], ranked=False).floors(64) == (0,)
    assert Ragged(np.zeros((4, 1)), [[0, 1, 2, 4]], ranked=False).floors(64) == (64,)


@pytest.mark.usefixtures("wanted")
def test_the_first_of_alike_batches_makes_room_for_all(rng: np.random.Generator) -> None:
    """How much its sequences differ tells how much batches will: none waits for a second compilation."""
    classifier = Classifier()
    for lengths in sorted(rng.integers(5, 101, (20, 32)).tolist(), key=sum):
        classifier.step(*lengths)
    assert classifier.compilations == 1


def test_room_for_others_follows_from_how_lengths_differ() -> None:
    assert sum_of_others(np.array([], int)) == 0
    assert sum_of_others(np.full(32, 40)) == 32 * 40
    assert sum_of_others(np.array([3, 90])) == finer(2 * 90)  # as if both were as long as the longer one
    assert 32 * 52 < sum_of_others(np.resize([5, 100], 32)) < 2 * 32 * 52


def test_inner_sequences_have_room_too() -> None:
    lod = [[0, 2, 8], [0, 3, 4, 5, 6, 7, 8, 9, 20]]
    rows, inner = Ragged(np.zeros((20, 1)), lod, ranked=False).floors(8, ahead=True)
    assert (rows, inner) == (sum_of_others(np.diff(lod[1])), sum_of_others(np.diff(lod[0])))
    assert rows > 20 and inner > 8


def test_what_fails_beside_is_met_by_the_run_that_needs_it(wanted: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = Classifier()
    classifier.step(9, 5)
    classifier.step(3, 4)

    def failing(self: CompiledOps, *arguments: Any) -> Any:
        def compile() -> None:
            raise MemoryError

        return compile

    monkeypatch.setattr(CompiledOps, "ahead", failing)
    wanted.append(128)
    classifier.step(3, 4)
    background.wait()
    assert classifier.compilations == 1
    assert np.isfinite(classifier.step(70, 30))
    assert classifier.compilations == 2


def test_seeded_programs_repeat_bit_for_bit() -> None:
    lengths = [(9, 5), (3, 4), (60, 30), (2, 2)] * 3
    runs = []
    for _ in range(2):
        classifier = Classifier(seed=3)
        runs.append([classifier.step(*of) for of in lengths])
    assert runs[0] == runs[1]


def test_cpu_deterministic_compiles_only_what_runs_need(wanted: list[int]) -> None:
    fluid.set_flags({"FLAGS_cpu_deterministic": True})
    try:
        classifier = Classifier()
        wanted.append(8)
        for _ in range(3):
            classifier.step(3, 4)
        background.wait()
    finally:
        fluid.set_flags({"FLAGS_cpu_deterministic": False})
    assert classifier.compilations == 1
