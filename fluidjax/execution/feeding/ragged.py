"""Fed rows of sequences that get room for more."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from fluidjax.execution.rooms.buckets import bucket, sum_of_others
from fluidjax.execution.rooms.families import Sizes
from fluidjax.execution.scopes.exchange import lod_array


class Ragged(NamedTuple):
    """Rows of sequences that get room for more: ``data`` and the offsets of each level.

    ``ranked`` says that bounds on the longest sequences are wanted as well.
    """

    data: Any
    lod: Sequence[Sequence[int]]
    ranked: bool

    @property
    def alike(self) -> Any:
        """What an executable depends on, whatever room it has."""
        return self.data.shape[1:], self.data.dtype, len(self.lod[0]), len(self.lod)

    def sizes(self) -> Sizes:
        """The numbers of rows and of each level's inner sequences; if ranked, also each level's longest sequence."""
        inner = [len(level) - 1 for level in self.lod[1:]]
        return (self.data.shape[0], *inner, *(self._longest() if self.ranked else ()))

    @property
    def kinds(self) -> int:
        """How many sizes it has."""
        return len(self.lod) * (1 + self.ranked)

    def units(self) -> Sizes:
        """The bytes that one unit of each size takes."""
        row = self.data.dtype.itemsize * prod(self.data.shape[1:])
        return (row, *(4,) * (len(self.lod) - 1), *(len(self.lod) * self.ranked * (0,)))

    def floors(self, rows: int, *, ahead: bool = False) -> Sizes:
        """The least room for each size; ``ahead``: enough for other sequences of which these are a sample.

        One-row sequences are a batch like a dense one, whose size seldom changes.
        """
        changing = self.data.shape[0] != len(self.lod[-1]) - 1
        *inner, all_rows = (sum_of_others(np.diff(level)) if ahead else 0 for level in self.lod)
        return (max(rows if changing else 0, all_rows), *inner, *(0,) * (len(self.lod) * self.ranked))

    def value(self, room: Sizes | None) -> Any:
        """The value with this much room; None: with none to spare."""
        if room is None:
            longest = tuple(bucket(n) for n in self._longest()) if self.ranked else ()
            return lod_array(self.data, self.lod, room=None, longest=longest)
        levels = len(self.lod)
        return lod_array(self.data, self.lod, room=room[:levels], longest=room[levels:])

    def _longest(self) -> Sizes:
        return tuple(int(np.diff(level).max(initial=1)) for level in self.lod)
