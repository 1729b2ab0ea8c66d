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
        fresh: the specs of the leaves that it is the first to read; () for none.
        leaves: how many leaves there are up to here.
        special: whether more than recording has to be done for the last record.
        limits: where all that is done beside is to look whether inputs are in [0, high): (the input, high) of each.
        expected: the point that came after this one last time.
        numbers: of ops that came after it, the numbers that they had (see ``numbers``); None for none.
        flows, plan: which inputs of the last record gradients flowed to last time, and what these take (see ``follow``)
        passes: the backward passes that began here (see ``passes``); None before the first.
        updates: the updates that began here, of each replay (see ``replay``); None before the first.
    """

    __slots__ = (
        "_others", "before", "codes", "depth", "expected", "first", "flows", "fresh", "kernel", "leaves", "limits",
        "numbers", "outs", "passes", "plan", "record", "special", "tree", "updates",
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
        self.kernel, self.codes, self.record = kernel, codes, (kernel, *codes)
        self.fresh, self.outs = fresh, outs
        self.depth = self.first = self.leaves = 0
        if before is not None:
            self.depth, self.first = before.depth + 1, before.first + len(before.outs)
            self.leaves = before.leaves + len(fresh)
        self.limits: tuple[tuple[int, int], ...] | None = None
        self.expected: Point | None = None
        self.flows, self.plan = 0, None
        self.passes: list[Any] | None = None
        self.updates: WeakKeyDictionary[Any, list[Any]] | None = None
        self.numbers: dict[Any, set[Any]] | None = None
        self._others: dict[Any, Point] | None = None  # all that came after it, where several did

    def after(
        self, kernel: Any, codes: tuple[int, ...], fresh: tuple[Any, ...], outs: tuple[Any, ...], special: bool
    ) -> Point:
        """The point after this one, where these come next."""
        last = self.expected
        if last is not None and last._key() == (kernel, codes, fresh):
            return last
        if last is not None and self._others is None:
            self._others = {last._key(): last}
        found = None if self._others is None else self._others.get((kernel, codes, fresh))
        if found is None:
            found = Point(self, kernel, codes, fresh, outs, special, self.tree)
            self.tree.points += 1
            if self._others is not None:
                self._others[found._key()] = found
        self.expected = found
        return found

    def _key(self) -> Any:
        return self.kernel, self.codes, self.fresh

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
        self._root = Point(None, None, (), (), (), False, self)

    def root(self) -> Point:
        """Where a batch begins."""
        if self.points > _MOST:
            self._begin()
        return self._root
