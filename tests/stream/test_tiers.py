"""Which room batches of changing sizes get: told by runs that take as long as a model says."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluidjax.execution.rooms.buckets import bucket, finer
from fluidjax.execution.rooms.families import Family, Room
from fluidjax.execution.rooms.tiers import _LEAST_SHARE, Tiers, Took


class Costs(NamedTuple):
    """Seconds of processors: a compilation, a run of nothing, each row of a batch, each row that there is room for; and
    how many processors a run keeps busy."""

    compiling: float = 0.5
    fixed: float = 1e-3
    own: float = 0.0
    each: float = 1e-5
    busy: float = 1.0

    def run(self, rows: int, room: int) -> float:
        return self.fixed + self.own * rows + self.each * room


USUAL = Costs()
COMPILING, FIXED, _, EACH, _ = USUAL


class Stream:
    """Runs batches in the rooms that are chosen; what is due is compiled until a few runs later."""

    def __init__(self, *, beside: bool = True, floor: int = 64, delay: int = 3, costs: Costs = USUAL):
        self.tiers = Tiers(beside=beside)
        self.floor, self.delay, self.costs = floor, delay, costs
        self.compiled: list[tuple[int, ...]] = []
        self.waited = 0
        self.rows = 0
        self.seconds = 0.0
        self._pending: list[tuple[int, object, Room]] = []
        self._runs = 0

    def run(self, *sizes: int) -> tuple[int, ...]:
        self._runs += 1
        self._open()
        visit = self.tiers.visit("key", sizes, [1] * len(sizes), lambda: (self.floor,) * len(sizes))
        assert all(room >= n for room, n in zip(visit.room, sizes, strict=True))
        fresh = visit.room not in self.compiled
        if fresh:
            self.compiled.append(visit.room)
            self.waited += 1
        took = self.costs.run(sum(sizes), sum(visit.room))
        self.rows, self.seconds = self.rows + sum(visit.room), self.seconds + took
        visit.done(None if fresh else Took(took, took / self.costs.busy))
        room = self.tiers.due(visit, self.costs.compiling)
        if room is not None:
            assert room.holds(sizes)
            self._pending.append((self._runs + self.delay, visit, room))
        return visit.room

    def count(self, *sizes: int) -> bool:
        """Run a batch as one that has only to be counted; returns whether it is one, and runs nothing else."""
        self._open()
        visit = self.tiers.again(self.family, sizes, self.costs.compiling)
        if visit is None or visit.room not in self.compiled:
            return False
        self._runs += 1
        self.rows, self.seconds = (
            self.rows + sum(visit.room),
            self.seconds + self.costs.run(sum(sizes), sum(visit.room)),
        )
        visit.done(None)
        return True

    def _open(self) -> None:
        for due, visit, room in list(self._pending):
            if due <= self._runs:
                self._pending.remove((due, visit, room))
                self.compiled.append(room.sizes)
                self.tiers.opened(visit, room)

    @property
    def family(self) -> Family:
        (family,) = self.tiers._families.values()
        return family


def sentences(rng: np.random.Generator, count: int) -> list[int]:
    """Lengths as in text: many short ones, some of up to 60 words."""
    return np.clip(rng.gamma(2.5, 8, count), 1, 60).astype(int).tolist()


# What a lexical analysis (benchmarks: stream_lac_tagger) costs of one processor: most of a run goes by its own words.
TAGGER = Costs(compiling=1.0, fixed=4e-4, own=5.5e-5, each=2e-5)


@pytest.mark.parametrize("costs", [USUAL, TAGGER], ids=["short runs", "tagger"])
def test_a_stream_waits_once_and_works_little_more(costs: Costs, rng: np.random.Generator) -> None:
    """200 sentences wait for the first compilation alone; 20,000 take at most 12 % longer than in rooms of their size.

    Compilations beside the runs are many enough to be close, and few enough to pay: half as many rows again as there
    are words, where closer rooms would cost more than these rows do.
    """
    stream, lengths = Stream(costs=costs), sentences(rng, 20_000)
    for n in lengths[:200]:
        stream.run(n)
    assert stream.waited == 1
    for n in lengths[200:]:
        stream.run(n)
    exact = sum(costs.run(n, n) for n in lengths)
    assert stream.seconds <= 1.12 * exact
    assert stream.waited == 1
    assert stream.rows <= 1.5 * sum(lengths)
    assert len(stream.compiled) * costs.compiling <= 0.2 * exact


def test_runs_that_are_only_counted_get_the_same_rooms(rng: np.random.Generator) -> None:
    """What is due is found by the next run that is not."""
    usual, quick, lengths, counted = Stream(), Stream(), sentences(rng, 5000), 0
    for i, n in enumerate(lengths):
        usual.run(n)
        only = i > 0 and quick.count(n)
        counted += only
        if not only:
            quick.run(n)
    assert counted > 0.95 * len(lengths)
    assert len(quick.compiled) > 2
    assert quick.compiled == usual.compiled
    assert quick.rows <= 1.01 * usual.rows
    assert quick.family.visits.keys() == usual.family.visits.keys()
    assert quick.family.runs == usual.family.runs == len(lengths)


def test_sizes_that_never_change_are_compiled_for_once() -> None:
    stream = Stream(floor=8)
    for _ in range(2000):
        stream.run(24)
    assert stream.compiled == [(24,)]


def test_a_size_that_comes_often_gets_a_room_of_its_own() -> None:
    stream = Stream()
    for n in (60, *[10] * 2000):
        room = stream.run(n)
    assert room == (finer(10),)


def test_a_rare_size_does_not() -> None:
    stream = Stream()
    for n in (60, *[10] * 20):
        assert stream.run(n) == (64,)


def test_growing_sizes_find_room_before_they_need_it() -> None:
    stream = Stream()
    for n in range(10, 500):
        stream.run(n)
    assert stream.waited == 1
    assert len(stream.compiled) <= 3 + math.log2(500 / 64)


def test_room_ahead_is_compiled_once_the_runs_have_lasted_as_long() -> None:
    """A stream that ends before that pays for its first room alone."""
    stream = Stream(delay=0)
    while stream.seconds < COMPILING:
        stream.run(60)
        stream.run(62)
    assert stream.compiled == [(64,)]
    for n in [60, 62] * 200:
        stream.run(n)
    assert stream.compiled == [(64,), (80,)]
    stream.run(70)
    assert stream.waited == 1


def test_sizes_about_as_large_as_the_first_get_no_far_larger_room(rng: np.random.Generator) -> None:
    """32 sentences of 5 to 100 words: every room is at most 3/2 of the batches that made it."""
    stream = Stream()
    for n in rng.integers(5, 101, (60, 32)).sum(axis=1).tolist():
        assert stream.run(n)[0] <= 1.5 * 2100
    assert stream.waited <= 2


def test_without_a_second_thread_the_rooms_follow_from_the_sizes(rng: np.random.Generator) -> None:
    lengths = rng.integers(1, 101, 300).tolist()
    first, second = (Stream(beside=False) for _ in range(2))
    assert [first.run(n) for n in lengths] == [second.run(n) for n in lengths]
    assert first.waited == len(first.compiled) <= 3


def test_two_sizes_grow_together(rng: np.random.Generator) -> None:
    """A room for each pair of buckets would be 25."""
    stream = Stream(beside=False, floor=8)
    for a, b in rng.integers(8, 40, (300, 2)).tolist():
        stream.run(a, b)
    assert len(stream.compiled) <= 6


def test_without_a_second_thread_no_room_is_far_too_large() -> None:
    stream = Stream(beside=False, floor=8)
    stream.run(4096)
    assert stream.run(16) == (16,)
    assert stream.run(1024) == (4096,)


def test_what_was_compiled_may_be_gone() -> None:
    """A loop's buffer grew, say: rooms are compiled again as they are met, as large as they were needed."""
    stream = Stream()
    for n in (10, 20, 200, 10):
        stream.run(n)
    visit = stream.tiers.visit("key", (10,), [1], lambda: (64,))
    stream.tiers.clear()
    stream.tiers.opened(visit, Room((16,), ready=False))
    assert stream.family.rooms == []
    assert stream.run(10) == (bucket(200),)


def test_a_room_that_failed_is_not_tried_again() -> None:
    stream = Stream(delay=10**9)
    for n in (60, *[10] * 2000):
        stream.run(n)
        for _, _, room in stream._pending:
            room.failed = True
    assert len(stream._pending) == len({room.sizes for _, _, room in stream._pending})
    assert stream.compiled == [(64,)]


def test_runs_that_keep_all_processors_busy_pay_the_whole_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling beside runs on one of two processors costs them a quarter of its time; beside runs on both, all."""
    monkeypatch.setattr("fluidjax.execution.rooms.tiers.processors", lambda: 2)
    # A compilation; what each run of 8 rows loses in room for 64 if half of its time is proportional to the room.
    price, lost = 0.5, 1e-5 * (64 - 8) / 2
    for busy, share in ((1.0, 0.25), (1.5, 0.625), (2.0, 1.0)):
        stream = Stream(costs=Costs(compiling=price, fixed=0.0, busy=busy))
        runs = 0
        while len(stream.compiled) < 2:
            stream.run(8)
            runs += 1
        assert share * price <= runs * lost < 1.3 * share * price + 10 * lost, busy


SIZES = st.lists(st.integers(1, 300), min_size=1, max_size=400)


@settings(deadline=None)
@given(SIZES, st.booleans())
def test_compiling_beside_costs_no_more_than_was_paid(sizes: list[int], repeat: bool) -> None:
    """The bound: closer rooms are compiled for only after runs have lost their price."""
    stream = Stream(delay=1)
    for n in sizes * (20 if repeat else 1):
        stream.run(n)
    exact = sum(FIXED + EACH * n for n in sizes) * (20 if repeat else 1)
    largest = max(max(sizes), 64)
    growing = 2 + 2 * math.log2(largest / 8)
    closer = len(stream.compiled) - growing
    assert closer * _LEAST_SHARE * COMPILING <= 2 * (stream.seconds - exact) + COMPILING


@pytest.mark.parametrize("n", [1, 7, 8, 9, 15, 16, 17, 31, 33, 47, 63, 65, 1000, 1025])
def test_finer_rooms_are_an_eighth_too_large_at_most(n: int) -> None:
    assert n <= finer(n) < n + max(n / 8, 1)
    assert finer(finer(n)) == finer(n)
