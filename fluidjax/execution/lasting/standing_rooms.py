"""Ragged feeds in memory that stays: for each room that their rows are padded to, a step and memory of that size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from fluidjax.base.lod import lod_fault
from fluidjax.base.values import LoDTensor
from fluidjax.execution.feeding.batches import shares_of, sizes_of
from fluidjax.execution.feeding.ragged import Ragged
from fluidjax.execution.lasting.standing import Standing
from fluidjax.execution.rooms.families import Family, Room, Sizes
from fluidjax.execution.rooms.tiers import Visit
from fluidjax.execution.steps.in_place import MOST
from lowering.values import LoDArray


class Rooms:
    """Where batches of one family stand.

    Args:
        visit: the visit of one of them.
        names, feed, values: what was fed under which names, and what was made of it.
        owners: see ``Feeder``.

    Attributes:
        family: what the batches have in common.
        possible: whether they may stand: all feeds are arrays as they were fed, or rows on the host with room for more.
        standing: the steps, each with memory for its feeds, by room; None where there is none for them.
        left: bytes of memory that further rooms may take.
    """

    def __init__(
        self,
        visit: Visit,
        names: Sequence[str],
        feed: Mapping[str, Any],
        values: Sequence[Any],
        owners: Mapping[str, str] = MappingProxyType({}),
    ):
        self.family = visit.family
        self.standing: dict[Room, Standing | None] = {}
        self.left = MOST
        padded = {n: v for n, v in zip(names, values, strict=True) if type(v) is LoDArray and v.padded}
        found = [(name, _rows(feed[name], ranked=bool(value.longest))) for name, value in padded.items()]
        self._ragged = tuple((name, rows.alike, rows.ranked) for name, rows in found if rows is not None)
        self._owners = tuple(owners.get(name, name) for name, _, _ in self._ragged)
        as_fed = all(value is feed[name] for name, value in zip(names, values, strict=True) if name not in padded)
        self.possible = as_fed and self._sizes([rows for _, rows in found if rows is not None]) == visit.sizes

    def add(self, room: Room, standing: Standing | None) -> None:
        """Let batches in ``room`` stand there."""
        self.standing[room] = standing
        self.left -= 0 if standing is None else standing.bytes

    def visit(self, feed: Mapping[str, Any], again: Callable[[Family, Sizes], Visit | None]) -> Visit | None:
        """The visit of a batch like those before, as far as its ragged feeds tell; None for any other.

        ``again`` makes the visit of a family's batch of these sizes, which has only to be counted.
        """
        if not self.possible:
            return None
        found = []
        for name, alike, ranked in self._ragged:
            rows = _rows(feed[name], ranked=ranked)
            if rows is None or rows.alike != alike:
                return None
            found.append(rows)
        return again(self.family, self._sizes(found))

    def _sizes(self, ragged: Sequence[Ragged]) -> Sizes:
        return sizes_of(shares_of(self._owners, ragged))


def _rows(fed: Any, *, ranked: bool) -> Ragged | None:
    """What is fed as rows of sequences on the host; None if it is something else, or if its LoD does not fit."""
    if type(fed) is not LoDTensor or not fed._lod:
        return None
    data = fed._value
    if type(data) is not np.ndarray or lod_fault(fed._lod, len(data)) is not None:
        return None
    return Ragged(data, fed._lod, ranked)
