"""Recorded sequences as a tree: what is known of an op recorded after the same ops as before.

Programs repeat themselves. So each sequence of records is one object, a point, which knows the points that have
followed it, first the most recent one. If an op is the expected one, everything about it is known without asking
its kernel, and a whole sequence is identified by its last point.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

_MOST = 100_000  # points; beyond this the tree is rebuilt
CLOSED = 2  # different numbers at a place that stay attributes (see ``moving``)


def bits(flags: Iterable[bool]) -> int:
    """A bit for each, that of the last one the lowest."""
    found = 0
    for flag in flags:
        found += found + flag
    return found


class Point:
    """The records of a batch up to one of them.

    Attributes:
        before: the previous point; None at the start of a batch.
        kernel, codes: the last record.
        depth: the number of records up to here.
        first, end: the numbers of the first output of the last one, and of the first of the next one.
        outs: the specs of its outputs, None for unused ones.
        fresh: the specs of the leaves that it reads first; () for none.
        leaves: the number of leaves up to here.
        special: whether the last record needs more than recording.
        limits: if the only other work is to check that inputs are in [0, high): the (input, high) of each.
        expected: the point that followed this one last time.
        place: the same for sequences that differ only in numbers, whether these are attributes or operands.
        constants: the number of records without inputs whose numbers may become operands (see ``numbers``).
        flows, plan: which inputs of the last record gradients flowed to last time: a bit for each, the last input the
            lowest; and what these take (see ``follow``).
        sizes: its outputs' numbers, if shapes alone decide them (see ``sizes``); () if not, None before it was asked.
        passes: the backward passes that started here (see ``passes``); None before the first.
        updates: the updates that started here, for each replay (see ``replay``); None before the first.
    """

    __slots__ = (
        "_others", "before", "codes", "constants", "depth", "end", "expected", "first", "flows", "fresh", "kernel",
        "leaves", "limits", "outs", "passes", "place", "plan", "sizes", "special", "tree", "updates",
    )  # fmt: skip

    def __init__(
        self,
        before: Point | None,
        kernel: Any,
        codes: tuple[int, ...],
        fresh: tuple[Any, ...],
        outs: tuple[Any, ...],
        special: bool,
        tree: Tree,
    ) -> None:
        self.tree, self.before, self.special = tree, before, special
        self.kernel, self.codes = kernel, codes
        self.fresh, self.outs = fresh, outs
        self.depth: int = 0 if before is None else before.depth + 1
        self.leaves: int = 0 if before is None else before.leaves + len(fresh)
        self.first: int = 0 if before is None else before.end
        self.end: int = self.first + len(outs)
        self.limits: tuple[tuple[int, int], ...] | None = None
        self.expected: Point | None = None
        self.flows, self.plan = 0, None
        self.sizes: tuple[Any, ...] | None = None
        self.passes: Any = None
        self.updates: WeakKeyDictionary[Any, list[Any]] | None = None
        self.place, self.constants = (0, 0) if before is None else self._place(before)
        if kernel is not None:
            kernel.recorded = True
        self._others: dict[Any, Point] | None = None  # everything that has followed it, if there are several

    def after(
        self, kernel: Any, codes: tuple[int, ...], fresh: tuple[Any, ...], outs: tuple[Any, ...], special: bool
    ) -> Point:
        """The point after this one, given what comes next."""
        last = self.expected
        if last is not None and last.key() == (kernel, codes, fresh):
            return last
        if last is not None and self._others is None:
            self._others = {last.key(): last}
        found = None if self._others is None else self._others.get((kernel, codes, fresh))
        if found is None:
            found = Point(self, kernel, codes, fresh, outs, special, self.tree)
            self.tree.points += 1
            if self._others is not None:
                self._others[found.key()] = found
        self.expected = found
        return found

    def _place(self, before: Point) -> tuple[int, int]:
        if self.kernel.sources and self.kernel.movable:  # it is absent where its numbers are operands
            return before.place, before.constants + 1
        return hash((before.place, self.kernel.type, self.outs)), before.constants

    @property
    def record(self) -> tuple[Any, ...]:
        """The last record as one tuple (see ``pending``); there are too many points to keep it for each."""
        return (self.kernel, *self.codes)

    def key(self) -> Any:
        """What it adds to the previous point."""
        return self.kernel, self.codes, self.fresh

    def way(self, since: int = 0) -> list[Point]:
        """The points up to here, this one last; without the first ``since`` of them."""
        found, point = [], self
        while point.before is not None and point.depth > since:
            found.append(point)
            point = point.before
        found.reverse()
        return found


class Tree:
    """All points.

    A tree that is rebuilt forgets sequences. Their blocks, which are known by content, and the numbers that were seen
    to move stay known.

    Attributes:
        points: their number.
        numbers: those seen at each place (see ``moving``).
    """

    def __init__(self) -> None:
        self.numbers: dict[Any, set[Any]] = {}
        self._begin()

    def _begin(self) -> None:
        self.points = 0
        self.numbers = {place: seen for place, seen in self.numbers.items() if len(seen) > CLOSED}
        self._root = Point(None, None, (), (), (), False, self)

    def root(self) -> Point:
        """The start of a batch."""
        if self.points > _MOST:
            self._begin()
        return self._root
