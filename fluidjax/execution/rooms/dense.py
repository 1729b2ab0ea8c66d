"""Dims of dense feeds that change from batch to batch: declared so or found by watching, and given room for more.

The first dim is the batch, and compiled for exactly. Another dim that was seen to change gets a label; dims that have
been equally large in every batch share one, and a program may pair them (see ``lowering.wide``).

Where feeds have first dims of several sizes, which change, there is no batch: they are rows, as of the nodes and the
edges of a graph, and get room as the rows of sequences do. So does a fed number that says how many rows there are.
Beside feeds of which later dims change, first dims that change while the batch does not are dims like these, as of the
words of all sentences in one column.

A dim that is declared to be of any size is taken to change before it is seen to, so that the first executable already
serves what comes after the first batch. That is a guess: if the program needs one such dim exactly, none has room
for more until it is seen to change. A single place is no guess, as it may be there to be paired with any number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from fluidjax.execution.rooms.buckets import bucket, finer, first_places, pad_rows
from lowering.values import Axis, Counted, LoDArray, RowCounts, Wide

NUMBER = -1  # in place of a dim: the one number of a feed, which counts rows
Place = tuple[str, int]  # the name of a feed, and a dim


class Dense(NamedTuple):
    """A fed array, and the labels of its dims that change.

    Attributes:
        rows: whether a first dim that changes is one of rows, as of sequences, and not a dim like others.
    """

    data: np.ndarray
    labels: Mapping[int, int]
    rows: bool

    @property
    def alike(self) -> Any:
        """What an executable depends on, whatever room it has."""
        dims = enumerate(self.data.shape)
        return tuple((i, self.labels[i]) if i in self.labels else n for i, n in dims), self.data.dtype

    def size(self, dim: int) -> int:
        """The size of a dim, or the number that the feed is."""
        return self.data.item() if dim == NUMBER else self.data.shape[dim]

    def unit(self, dim: int) -> int:
        """The bytes that each place of a dim takes."""
        return 0 if dim == NUMBER else self.data.nbytes // self.data.shape[dim]

    def positions(self, label: int) -> int:
        """How many rows a place of the dims with this label has: the batch's, times the other dims that change."""
        own = {dim for dim, other in self.labels.items() if other == label}
        return prod(self.size(dim) for dim in {0, *self.labels} - own - {NUMBER})

    def value(self, room: Mapping[int, int]) -> Wide | LoDArray | RowCounts:
        """The value with copies of the first place of each dim in the room for more."""
        if self.rows and self.labels.keys() <= {0, NUMBER}:
            return self._rows(room)
        shape = tuple(room[self.labels[i]] if i in self.labels else n for i, n in enumerate(self.data.shape))
        return Wide(
            grown(self.data, shape),
            tuple(np.asarray(self.data.shape[dim], np.int32) for dim in self.labels),
            tuple(Axis(dim, shape[dim], label) for dim, label in self.labels.items()),
        )

    def _rows(self, room: Mapping[int, int]) -> LoDArray | RowCounts:
        """The value as rows, or as a count of them."""
        ((dim, label),) = self.labels.items()
        count = np.asarray(self.size(dim), np.int32)
        if dim == NUMBER:
            return RowCounts((count,), (Counted(room[label]),), ((1,),), (0,), self.data.shape, self.data.dtype)
        return LoDArray(pad_rows(self.data, room[label]), (), count)


def grown(data: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """``data`` in an array of this shape, with copies of the first place of each dim in the room for more."""
    if data.shape == shape:
        return data
    found = np.empty(shape, data.dtype)
    found[tuple(map(slice, data.shape))] = data
    for dim, n in enumerate(data.shape):
        if n < shape[dim]:
            at = (slice(None),) * dim
            found[(*at, slice(n, None))] = found[(*at, slice(1))]
    return found


class ChangingDims:
    """Which dims of which feeds change from batch to batch.

    Args:
        ahead: whether dims declared to be of any size count as changing before they are seen to.
    """

    def __init__(self, *, ahead: bool = False) -> None:
        self._ahead = ahead
        self._guessed: set[int] = set()  # labels of dims that have not changed yet
        self._labels: dict[Place, int] = {}
        self._refused: set[Place] = set()
        self._rows = True  # whether first dims may be rows
        self._most: dict[int, int] = {}  # the largest size since the dim was seen to change
        self._count = 0
        self._alike: dict[tuple[int, ...], int] = {}  # labels of dims that are new, or changed first, in this batch

    def begin(self) -> None:
        """Begin a batch."""
        self._alike.clear()

    def expect(self, name: str, declared: Sequence[int], first: Sequence[int]) -> None:
        """Note what is declared of a feed, and its first shape."""
        if not self._ahead or len(declared) != len(first):
            return
        for dim in range(1, len(first)):
            if declared[dim] < 0 and first[dim] > 1 and (name, dim) not in self._labels:
                self._labels[name, dim] = label = self._alike.setdefault((first[dim],), self._new())
                self._guessed.add(label)

    def see(self, name: str, before: Sequence[int], now: Sequence[int]) -> None:
        """Note the shape of a feed, and the one it had ``before``."""
        if len(before) != len(now):
            return
        for dim in range(1, len(now)):
            if before[dim] != now[dim] and (name, dim) not in self._refused:
                self.refuse_rows()
                self._note((name, dim), before[dim], now[dim])

    def _note(self, place: Place, before: int, now: int) -> None:
        """Note that a size was seen to change."""
        if place not in self._labels:
            self._labels[place] = self._alike.setdefault((before, now), self._new())
        label = self._labels[place]
        self._most[label] = max(before, now, self._most.get(label, 0))
        self._guessed.discard(label)

    def see_rows(self, before: Mapping[str, int], now: Mapping[str, int]) -> None:
        """Note how many rows feeds have whose first dim is declared to be of any size, and what these were before.

        Those that change are of one batch where they are equally many, and rows of their own where not.
        """
        changed = {name: rows for name, rows in now.items() if before.get(name, rows) != rows}
        several = len(set(changed.values())) > 1 and self._may_have_rows()
        apart = several or self._beside_a_batch(changed, now)
        for name, rows in changed.items():
            if (apart and (name, 0) not in self._refused) or (name, 0) in self._labels:
                self._note((name, 0), before[name], rows)

    def _beside_a_batch(self, changed: Collection[str], now: Collection[str]) -> bool:
        """Whether feeds of which later dims change have as many first places as before."""
        batches = {name for name, dim in self._labels if dim > 0 and name in now}
        return bool(batches) and batches.isdisjoint(changed)

    def count(self, numbers: Mapping[str, int], rows: Mapping[str, int]) -> bool:
        """Take fed numbers, which say sizes, for counts of rows, and first dims for these; returns whether they may be.

        That is a guess, as it is not known yet which of them change.
        """
        fresh = {(name, NUMBER): n for name, n in numbers.items() if n > 0 and (name, NUMBER) not in self._labels}
        if not fresh or not self._may_have_rows():
            return False
        for place, n in {**fresh, **{(name, 0): n for name, n in rows.items()}}.items():
            known = self._labels.get(place)
            label = self._alike.setdefault((n,), self._new() if known is None else known)
            if known is None:
                self._labels[place] = label
                self._guessed |= set() if label in self._most else {label}
        return True

    def _may_have_rows(self) -> bool:
        """Whether rows were not refused, and no other dim has room."""
        return self._rows and all(dim <= 0 for _, dim in self._labels)

    def refuse_rows(self) -> bool:
        """Give all rows their true number for good; returns whether any had room."""
        if not self._rows:
            return False
        found = {place for place in self._labels if place[1] <= 0}
        self._labels = {place: label for place, label in self._labels.items() if place not in found}
        self._rows = False
        return bool(found)

    @property
    def have_rows(self) -> bool:
        """Whether first dims, or fed numbers, have room."""
        return any(dim <= 0 for _, dim in self._labels)

    def refuse_all(self) -> bool:
        """Give all dims their true size for good; returns whether any had room."""
        found = bool(self._labels)
        self._refused |= self._labels.keys()
        self._labels = {}
        return found

    def of(self, name: str, rank: int) -> dict[int, int]:
        """The labels of a feed's dims."""
        return {dim: self._labels[name, dim] for dim in range(NUMBER, rank) if (name, dim) in self._labels}

    def labelled(self, name: str, data: np.ndarray) -> Dense:
        """A feed with the labels of its dims."""
        return Dense(data, self.of(name, data.ndim), self._rows)

    def sizes(self, shapes: Mapping[str, Sequence[int]], numbers: Mapping[str, int] = {}) -> dict[int, int]:  # noqa: B006
        """The size that each label denotes in a batch, or the fed number; labels of which these disagree are split."""
        found: dict[int, int] = {}
        again: dict[tuple[int, int], int] = {}
        for (name, dim), label in list(self._labels.items()):
            shape = shapes.get(name, ())
            size = numbers.get(name) if dim == NUMBER else shape[dim] if dim < len(shape) else None
            if size is None or found.setdefault(label, size) == size:
                continue
            other = again.setdefault((label, size), self._new())
            self._labels[name, dim] = other
            found[other] = size
        return found

    def floor(self, label: int, operations: int, side: int = 0) -> int:
        """The least room for a dim in batches of a new kind: the largest size since it changed, and a quarter more; of
        one that is expected to change, as much as is cheap, where each place takes so many ``operations``, and as much
        as the larger ``side`` of an image needs.
        """
        if label in self._guessed:
            return max(first_places(operations), finer(side))
        most = self._most.get(label, 0)
        return bucket(most + most // 4)

    def refuse(self, labels: Collection[Any]) -> bool:
        """Give these dims their true size from now on; if any was a guess, all guesses get it, until they change.

        Returns:
            Whether that is permanent.
        """
        wrong = not self._guessed.isdisjoint(labels)
        gone = {place for place, label in self._labels.items() if label in (self._guessed if wrong else labels)}
        self._refused |= set() if wrong else gone
        self._labels = {place: label for place, label in self._labels.items() if place not in gone}
        return not wrong

    def _new(self) -> int:
        self._count += 1
        return self._count
