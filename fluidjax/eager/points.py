"""Recorded sequences as a tree: what is known of an op that was recorded after the same ops before.

Programs repeat themselves. So each sequence of records is one object, a point, which knows the points that came after
it, and first the one that came last time. Where an op is the expected one, everything about it is known without asking
its kernel, and a whole sequence is known by its last point.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

_MOST = 100_000  # points; then the tree is begun afresh


class Point:
    """The records of a batch up to one of them.

    Attributes:
        before: the point before it; None where a batch begins.
        kernel, codes: the last record.
        record: the same as one tuple (see ``pending``).
        depth, first: how many records lead here, and the number of the first output of the last one.
        outs: the specs of its outputs, None for those nobody takes.
        fresh: the specs of the leaves that it is the first to read.
        leaves: how many leaves there are up to here.
        special: whether more than recording has to be done for the last record.
        limits: where all that is done beside is to look whether inputs are in [0, high): (the input, high) of each.
        expected: the point that came after this one last time.
        numbers: of ops that came after it, the numbers that they had (see ``numbers``).
        plans: of the last record, what the gradient takes, by the inputs that gradients flow to (see ``follow``).
        passes: the backward passes that began here (see ``passes``); None before the first.
        updates: the updates that began here, of each replay (see ``replay``); None before the first.
    """

    __slots__ = (
        "_after", "before", "codes", "depth", "expected", "first", "fresh", "kernel", "leaves", "limits", "numbers",
        "outs", "passes", "plans", "record", "special", "tree", "updates",
    )  # fmt: skip

    def __init__(
        self,
        before: Point | None,
        kernel: Any,
        codes: list[int],
        fresh: list[Any],
        outs: tuple[Any, ...],
        special: bool,
        tree: Tree,
    ) -> None:
        self.tree, self.before, self.special = tree, before, special
        self.kernel, self.codes, self.record = kernel, codes, (kernel, *codes)
        self.fresh, self.outs = fresh, outs
        self.depth = self.first = self.leaves = 0
        if before is not None:
            self.depth, self.first = before.depth + 1, before.first + len(before.outs)
            self.leaves = before.leaves + len(fresh)
        self.limits: tuple[tuple[int, int], ...] | None = None
        self.expected: Point | None = None
        self.plans: dict[int, Any] = {}
        self.passes: list[Any] | None = None
        self.updates: WeakKeyDictionary[Any, list[Any]] | None = None
        self.numbers: dict[Any, set[Any]] = {}
        self._after: dict[Any, Point] = {}

    def after(self, kernel: Any, codes: list[int], fresh: list[Any], outs: tuple[Any, ...], special: bool) -> Point:
        """The point after this one, where these come next."""
        key = kernel, tuple(codes), tuple(fresh)
        found = self._after.get(key)
        if found is None:
            found = self._after[key] = Point(self, kernel, codes, fresh, outs, special, self.tree)
            self.tree.points += 1
        self.expected = found
        return found

    def way(self, since: int = 0) -> list[Point]:
        """The points that lead here, this one the last; without the first ``since`` of them."""
        found, point = [], self
        while point.before is not None and point.depth > since:
            found.append(point)
            point = point.before
        found.reverse()
        return found


class Tree:
    """All points.

    Attributes:
        points: how many there are.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.points = 0
        self._root = Point(None, None, [], [], (), False, self)

    def root(self) -> Point:
        """Where a batch begins."""
        if self.points > _MOST:
            self._begin()
        return self._root
