"""How much room batches of changing sizes get: few executables serve many sizes, and common sizes closely.

A batch has one size for each thing that is padded (rows of a feed, inner sequences, the longest one ...), and an
executable has room for so many of each: it serves every batch that fits. Rooms are decided on as batches come:

- *Wide at first.* A batch that fits nowhere is compiled for at once, with some room to spare: a few more rows cost
  microseconds, another compilation a large part of a second.
- *Room ahead.* A room larger than the largest batch is compiled once the runs have lasted as long as that takes, so
  that a short stream never pays for what it will not need; and early where sizes keep growing.
- *Closer where it pays.* Each run in a room that is larger than its batch pays for that: the time that the run took
  less the time that it would take in a room of its size. As soon as there is a room in which the runs so far would
  together have saved what compiling it costs, it is compiled, and these runs' accounts are closed.
- *Nobody waits.* Closer and larger rooms are compiled beside the runs, which go on with what there is.

The bound (ski rental): the runs paid less for the lack of any one room than its price, and compiled rooms have cost no
more than 1 / ``_LEAST_SHARE`` times what was paid before. So against the best k rooms in hindsight the
runs lose at most k prices between two compilations, and compiling is never more than a constant times what it saves
on a stream that goes on as it began.
"""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fluidjax.execution.rooms import buckets
from fluidjax.execution.rooms.families import Family, Room, Sizes, Visits
from lowering.machine import processors

# What a second of compiling beside the runs costs them where a processor is idle: the time spent waiting for Python's
# lock. Where the runs keep all processors busy, it is the whole second.
_LEAST_SHARE = 0.25
# Where nothing compiles beside the runs, a room larger than needed by more than this factor is worth compiling at once.
_WIDEST = 8
_STEADY = 1  # how often room is made for a little more before sizes are assumed to keep growing
_KINDS = 256  # distinct sizes that are considered for rooms of their own


def clock(platform: str) -> Callable[[], float]:
    """The clock for runs and compilations: on a CPU the processor time, which ignores what else runs on the machine."""
    return time.process_time if platform == "cpu" else time.perf_counter


class Took(NamedTuple):
    """What a run took.

    Attributes:
        seconds: by the clock that rooms are weighed by.
        waited: seconds that passed.
    """

    seconds: float
    waited: float


class Tiers:
    """Chooses rooms, records runs and compilations, and decides what is worth compiling.

    Args:
        clock: tells seconds.
        beside: whether rooms can be compiled beside the runs. If not, rooms follow from the sizes alone, not from
            times: the same batches get the same rooms again.
    """

    def __init__(self, *, beside: bool, clock: Callable[[], float] = time.process_time):
        self.clock = clock
        self._beside = beside
        self._families: dict[Hashable, Family] = {}
        self.lock = threading.Lock()
        self.edition = 0  # counts how often everything was forgotten

    def clear(self) -> None:
        """Forget the compiled rooms, but not which sizes came."""
        self.edition += 1
        for family in self._families.values():
            family.rooms, family.paid, family.roomy, family.lined = [], 0.0, (), None

    def visit(self, key: Hashable, sizes: Sizes, units: Sequence[int], floors: Callable[[], Sizes]) -> Visit:
        """A run of a batch of these sizes, in the best room for it; in a new one where it fits nowhere.

        Args:
            key: what else an executable depends on.
            units: the bytes that one of each size takes.
            floors: tells the room that each size gets in any case; asked for the first of all such batches.
        """
        with self.lock:
            family = self._families.get(key)
            if family is None:
                family = self._families[key] = Family(tuple(units), floors())
            visits = self._visits(family, sizes)
            started = self._now() if visits.room.timed else _UNTIMED
            return Visit(family, sizes, visits, self.edition, started)

    def took(self, visit: Visit) -> Took:
        """What a timed run has taken by now."""
        now = self._now()
        return Took(now.seconds - visit.started.seconds, now.waited - visit.started.waited)

    def _now(self) -> Took:
        return Took(self.clock(), time.perf_counter())

    def again(self, family: Family, sizes: Sizes, price: float) -> Visit | None:
        """A run like ``visit``'s where nothing but to count it is left to do: it is not timed, and no room is worth
        ``price`` seconds. None otherwise; ``visit`` then finds the same.
        """
        with self.lock:
            visits = self._visits(family, sizes)
            if visits.room.timed:
                return None
            visit = Visit(family, sizes, visits, self.edition, _UNTIMED)
            pays = family.paid >= _share(visits.room) * price or _may_spare(visit, price)
            return None if self._beside and price and pays else visit

    def _visits(self, family: Family, sizes: Sizes) -> Visits:
        visits = family.visits.get(sizes)
        if visits is None or visits.room not in family.rooms:
            room = self._room(family, sizes)
            family.came(sizes)
            visits = family.of(sizes, room, visits.count if visits else 0)
        return visits

    def _room(self, family: Family, sizes: Sizes) -> Room:
        found = self._fitting(family, sizes) or _coming(family, sizes)
        if found is None:
            found = Room(_with_room_to_grow(family, sizes))
            family.rooms.append(found)
        return found

    def _fitting(self, family: Family, sizes: Sizes) -> Room | None:
        fitting = [r for r in family.rooms if r.ready and r.holds(sizes)]
        best = min(fitting, key=lambda r: family.weight(r.sizes), default=None)
        if best is None or self._beside:
            return best
        return best if family.weight(best.sizes) <= _WIDEST * family.weight(family.close(sizes)) else None

    def due(self, visit: Visit, price: float) -> Room | None:
        """A room for this batch that is worth ``price`` seconds of compiling; it is not suggested again."""
        if not self._beside or visit.edition != self.edition or not price:
            return None
        with self.lock:
            room = _spare(visit, price) or _closer(visit, _share(visit.visits.room) * price)
            if room is not None:
                visit.family.rooms.append(room)
            return room

    def opened(self, visit: Visit, room: Room) -> None:
        """``room`` was compiled; later batches that fit may run in it."""
        family = visit.family
        with self.lock:
            if visit.edition != self.edition:
                return
            room.ready = True
            for sizes, visits in list(family.visits.items()):
                if room.holds(sizes) and family.weight(room.sizes) < family.weight(visits.room.sizes):
                    family.of(sizes, room)


class Visit(NamedTuple):
    """One run."""

    family: Family
    sizes: Sizes
    visits: Visits
    edition: int
    started: Took

    @property
    def room(self) -> Sizes:
        """The room that the batch gets."""
        return self.visits.room.sizes

    @property
    def timed(self) -> bool:
        """Whether it is useful to know how long this run takes."""
        return self.visits.room.timed

    def done(self, took: Took | None) -> None:
        """A run has ended, and took this if known."""
        family, room = self.family, self.visits.room
        room.runs += 1
        family.runs += 1
        self.visits.count += 1
        if took is not None:
            room.note(*took)
            family.lined = None
        family.lasted += room.seconds
        if self.visits.spare:
            family.paid += family.line()[1] * self.visits.spare


_UNTIMED = Took(0.0, 0.0)


def _share(room: Room) -> float:
    """What a second of compiling costs runs in this room, by how many processors they leave idle."""
    idle = processors() - room.busy
    return 1 - (1 - _LEAST_SHARE) * min(max(idle, 0.0), 1.0)


def _coming(family: Family, sizes: Sizes) -> Room | None:
    """A room for this batch that is being compiled: waiting for it takes no longer than compiling another."""
    coming = [r for r in family.rooms if not r.ready and not r.failed and r.holds(sizes)]
    return min(coming, key=lambda r: family.weight(r.sizes), default=None)


def _with_room_to_grow(family: Family, sizes: Sizes) -> Sizes:
    """Room for a batch that fits nowhere: at least as much as any batch had, and more where sizes are growing."""
    close = family.close(sizes)
    if not family.most:
        return close
    have = [max((r.sizes[i] for r in family.rooms), default=0) for i in range(len(sizes))]
    family.grown += any(map(operator.gt, sizes, family.most))
    return tuple(_grown(family, *of_one) for of_one in zip(sizes, close, family.most, have, family.floors, strict=True))


def _grown(family: Family, size: int, close: int, largest: int, have: int, floor: int) -> int:
    if size > largest:
        return max(_beyond(family, size, have), have, floor)
    wide = max(have, buckets.bucket(largest), floor)
    return wide if wide <= _WIDEST * close else close


def _beyond(family: Family, size: int, have: int) -> int:
    """Room for somewhat more than ``size``, at least twice what there is once sizes have outgrown such room."""
    close = max(buckets.finer(size + size // 4), buckets.SMALLEST)
    return max(close, buckets.finer(2 * have)) if family.grown > _STEADY else close


def _spare(visit: Visit, price: float) -> Room | None:
    """Room for batches an eighth larger than the largest, where sizes change, runs are cheap, and there were enough."""
    if not _may_spare(visit, price):
        return None
    family = visit.family
    bounds = list(zip(family.least, family.most, strict=True))
    wanted = tuple(most + most // 8 if least < most else most for least, most in bounds)
    if any(r.holds(wanted) for r in family.rooms):
        family.roomy = family.most
        return None
    family.grown += 1
    family.lasted = 0.0
    have = [max(r.sizes[i] for r in family.rooms) for i in range(len(wanted))]
    grown = (_beyond(family, most, n) if least < most else 0 for (least, most), n in zip(bounds, have, strict=True))
    return Room(tuple(map(max, grown, have)), ready=False)


def _may_spare(visit: Visit, price: float) -> bool:
    """Whether room to spare may be lacking, and may pay."""
    family = visit.family
    if family.roomy is family.most or family.least == family.most or 50 * visit.visits.room.seconds > price:
        return False
    return family.lasted >= price or family.growing


def _closer(visit: Visit, price: float) -> Room | None:
    """The room in which the runs would have saved most, if they would have saved the cost of compiling it."""
    family = visit.family
    if family.paid < price or not all(r.ready or r.failed for r in family.rooms):
        return None
    family.paid -= price / 4  # this much more has to be paid before the next look
    _, rate = family.line()
    best = max(_savings(visit), key=lambda found: found[0], default=(0.0, ()))
    if rate * best[0] < price:
        return None
    family.paid = 0.0
    return Room(best[1], ready=False)


def _savings(visit: Visit) -> Iterator[tuple[float, Sizes]]:
    """(bytes that would have been saved, room) for rooms about as large as batches that came."""
    family = visit.family
    often = sorted(family.visits.items(), key=lambda item: -item[1].count)[:_KINDS]
    came = np.array([sizes for sizes, _ in often])
    counts = np.array([visits.count for _, visits in often])
    paid_for = np.array([family.weight(visits.room.sizes) for _, visits in often])
    taken = {r.sizes for r in family.rooms}
    for candidate in {tuple(map(buckets.finer, sizes)) for sizes, _ in often}:
        if candidate in taken or any(a < b for a, b in zip(candidate, visit.sizes, strict=True)):
            continue
        saved = (paid_for - family.weight(candidate)) * (came <= np.array(candidate)).all(axis=1)
        yield float((counts * np.maximum(saved, 0)).sum()), candidate
