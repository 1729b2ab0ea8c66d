"""Ragged feeds with one row in every sequence: labels, targets, tags. They are a batch like a dense one.

Their number of rows is that of the sequences, for which a program is compiled anyway, so they need no room for more:
they are paired with what other feeds' sequences are pooled to, whose number is exact. That a feed is of this kind is
found by watching. One that comes with other sequences gets room like all ragged feeds from then on; after a few of
those, all do, since each is one more form that is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence

_CHANGES = 2


class OneRowFeeds:
    """Which ragged feeds have had one row in every sequence so far.

    Args:
        wanted: whether the program may take any as they are.
    """

    def __init__(self, *, wanted: bool) -> None:
        self._changes = _CHANGES if wanted else 0  # how many feeds may still turn out to be others
        self._found: set[str] = set()
        self._others: set[str] = set()

    def has(self, name: str, lod: Sequence[Sequence[int]], rows: int) -> bool:
        """Whether the feed ``name`` is of this kind, in this batch and in all before."""
        if not self._changes or name in self._others:
            return False
        if rows and all(len(level) == rows + 1 and list(level) == list(range(rows + 1)) for level in lod):
            self._found.add(name)
            return True
        self._others.add(name)
        if name in self._found:
            self._found.discard(name)
            self._changes -= 1
        return False

    def refuse(self) -> bool:
        """Let all have room for more from now on; returns whether any had none."""
        self._changes, any_found = 0, bool(self._found)
        self._found.clear()
        return any_found
