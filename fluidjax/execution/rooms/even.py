"""Ragged feeds whose sequences are all of one length: labels, targets, tags. They are a batch like a dense one.

Their number of rows follows from that of the sequences, for which a program is compiled anyway, so they need no room
for more: they are paired with what other feeds' sequences are pooled to, whose number is exact. Those with one row in
every sequence are taken as they are from the first batch on; those with another number, as the three wrong answers to
each question, only where an op has refused room for more, because chance makes sequences of one length, too.

That a feed is of this kind is found by watching. One that comes with other sequences gets room like all ragged feeds
from then on; after a few of those that had one row, all do, since each is one more form that is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence

_CHANGES = 2

Lengths = tuple[int, ...]  # of each level's sequences
_ONE_ROW: Lengths = (1,)


class EvenFeeds:
    """Which ragged feeds have had sequences of one length, the same in every batch so far.

    Args:
        wanted: whether the program may take any as they are.
    """

    def __init__(self, *, wanted: bool) -> None:
        self._changes = _CHANGES if wanted else 0  # how many feeds of one row may still turn out to be others
        self._lengths: dict[str, Lengths | None] = {}  # None: they have differed
        self._longer = False  # whether sequences of more than one row are taken as they are, too

    def has(self, name: str, lod: Sequence[Sequence[int]], rows: int) -> bool:
        """Whether the feed ``name`` is to be taken as it is: it is of this kind, in this batch and in all before."""
        if not self._changes:
            return False
        now = even_lengths(lod, rows) if self._lengths.get(name, ()) is not None else None
        before = self._lengths.setdefault(name, now)
        if before is not None and before != now:
            self._lengths[name] = None
            self._changes -= int(before == _ONE_ROW and not self._longer)
        found = self._lengths[name]
        return found is not None and (self._longer or found == _ONE_ROW)

    def accept(self) -> bool:
        """Take sequences of any one length as they are from now on; returns whether any feed has those."""
        if not self._changes or self._longer:
            return False
        self._longer = any(found is not None and found != _ONE_ROW for found in self._lengths.values())
        return self._longer

    def refuse(self) -> bool:
        """Let all have room for more from now on; returns whether any had none."""
        taken = [found for found in self._lengths.values() if found is not None and (self._longer or found == _ONE_ROW)]
        any_found = bool(self._changes and taken)
        self._changes = 0
        return any_found


def even_lengths(lod: Sequence[Sequence[int]], rows: int) -> Lengths | None:
    """The length of each level's sequences, (1,) for one row in each; None where they differ, or there are no rows."""
    found = []
    for level in lod:
        count = len(level) - 1
        length = level[-1] // count if count else 0
        if not length or level[1] != length or list(level) != list(range(0, count * length + 1, length)):
            return None
        found.append(length)
    if not rows or not found:
        return None
    return tuple(found) if max(found) > 1 else _ONE_ROW
