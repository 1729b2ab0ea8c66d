"""Batches that are alike but for their sizes: which came, the rooms compiled for them, and how long their runs take."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field, replace

from fluidjax.execution.rooms import buckets

Sizes = tuple[int, ...]

# The part of a run's time assumed to be proportional to the room, until two rooms have been measured.
_PART = 0.5
_REMEMBERED = 2048  # distinct sizes that are counted; then the rare ones are forgotten


@dataclass(eq=False)
class Room:
    """One executable, or what is to become one: how many of each it has room for.

    Attributes:
        seconds: its fastest run; 0 if none was timed.
        busy: how many processors that run kept busy.
    """

    sizes: Sizes
    ready: bool = True
    failed: bool = False
    seconds: float = 0.0
    busy: float = 1.0
    runs: int = 0

    def note(self, seconds: float, waited: float) -> None:
        """Note what a run took, and how long it was waited for."""
        if not self.seconds or seconds < self.seconds:
            self.seconds, self.busy = seconds, seconds / max(waited, 1e-9)

    @property
    def timed(self) -> bool:
        """Whether its next run is timed: runs 1, 2, 4, 8 ... are."""
        return self.runs & (self.runs - 1) == 0

    def holds(self, sizes: Sizes) -> bool:
        """Whether a batch of these sizes fits."""
        return all(a >= b for a, b in zip(self.sizes, sizes, strict=True))


@dataclass
class Visits:
    """The batches of one size: the room they run in, and how many came since one was last compiled for them."""

    room: Room
    count: int = 0
    spare: int = 0  # bytes of the room that these batches leave empty


@dataclass
class Family:
    """Batches that are alike but for their sizes.

    Attributes:
        units: the bytes that one of each size takes.
        floors: room that each size gets in any case.
        visits: the visits of the sizes that came lately.
        least, most: of each size that ever came; () before the first.
        paid: seconds that runs in larger rooms took longer, since a closer one was last looked for.
        grown: how often room was made for more than had come.
        runs: how many there were, and ``records`` how often one was larger than all before.
        lasted: seconds that all runs took since room was last compiled ahead of them.
        roomy: the ``most`` for which there is known to be room to spare; () if none is.
        lined: what ``line`` found, until a room is timed again.
    """

    units: tuple[int, ...]
    floors: Sizes
    least: Sizes = ()
    most: Sizes = ()
    rooms: list[Room] = field(default_factory=list)
    visits: dict[Sizes, Visits] = field(default_factory=dict)
    paid: float = 0.0
    grown: int = 0
    runs: int = 0
    records: int = 0
    lasted: float = 0.0
    roomy: Sizes = ()
    lined: tuple[float, float] | None = None

    @property
    def growing(self) -> bool:
        """Whether sizes grow more often than by chance, which is about ln(runs) times."""
        return self.records > 2 * math.log2(max(self.runs, 1)) + 1

    def weight(self, sizes: Sizes) -> int:
        """The bytes of a batch of these sizes."""
        return sum(n * unit for n, unit in zip(sizes, self.units, strict=True)) or 1

    def of(self, sizes: Sizes, room: Room, count: int = 0) -> Visits:
        """The visits of batches of these sizes from now on."""
        found = self.visits[sizes] = Visits(room, count, self.weight(room.sizes) - self.weight(sizes))
        return found

    def came(self, sizes: Sizes) -> None:
        """Note the sizes of a batch."""
        if not self.most or any(map(operator.gt, sizes, self.most)):
            self.records += 1
            self.most = tuple(map(max, sizes, self.most or sizes))
        if not self.least or any(map(operator.lt, sizes, self.least)):
            self.least, self.roomy = tuple(map(min, sizes, self.least or sizes)), ()
        if len(self.visits) >= _REMEMBERED:
            self.visits = {s: replace(v, count=v.count // 2) for s, v in self.visits.items() if v.count > 1}

    def line(self) -> tuple[float, float]:
        """(seconds, seconds for each byte) of a run, from the smallest and the largest room that were timed."""
        if self.lined is None:
            self.lined = self._line()
        return self.lined

    def _line(self) -> tuple[float, float]:
        timed = sorted((self.weight(r.sizes), r.seconds) for r in self.rooms if r.seconds)
        if not timed:
            return 0.0, 0.0
        (low, fast), (high, slow) = timed[0], timed[-1]
        rate = max(slow - fast, 0.0) / (high - low) if high > low else _PART * slow / high
        return max(slow - rate * high, 0.0), rate

    def close(self, sizes: Sizes) -> Sizes:
        """The usual room for a batch."""
        return tuple(max(buckets.bucket(n), floor) for n, floor in zip(sizes, self.floors, strict=True))
