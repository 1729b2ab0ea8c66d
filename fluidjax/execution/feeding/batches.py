"""A run's feeds as one batch, of which some get room for more: how large they are, and what they are in a room.

Feeds that are devices' shares of one variable get room alike, for the largest of them: which device has the longer
sequences changes with every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from fluidjax.execution.feeding.ragged import Ragged
from fluidjax.execution.rooms.dense import Dense
from fluidjax.execution.rooms.families import Sizes

Shares = dict[tuple[str, int], list[Ragged]]  # rows, by whose they are, and how many sizes they have


def shares_of(owners: Iterable[str], values: Iterable[Any]) -> Shares:
    """The rows among the ``values``, together where they are shares of one variable, in the order of the first ones.

    Args:
        owners: for each value, the variable that it is, or is a share of.
    """
    found: Shares = {}
    for owner, value in zip(owners, values, strict=True):
        if type(value) is Ragged:
            found.setdefault((owner, value.kinds), []).append(value)
    return found


def sizes_of(shares: Shares, of: Callable[[Ragged], Sizes] = Ragged.sizes) -> Sizes:
    """The sizes of all rows, or what else ``of`` tells of each size: of shares of one variable, the largest."""
    return tuple(chain.from_iterable(map(max, zip(*map(of, rows), strict=True)) for rows in shares.values()))


class Batch:
    """Values, of which ``Ragged`` and ``Dense`` ones get room.

    Args:
        owners: for each value, the variable that it is, or is a share of.
        values: what is fed.
        labels: the size of each label of dense ones.
    """

    def __init__(self, owners: Sequence[str], values: Sequence[Any], labels: Mapping[int, int]):
        self._owners = owners
        self.values = values
        self.labels = labels
        self._shares = shares_of(owners, values)

    @property
    def alike(self) -> Any:
        """What an executable depends on, whatever room it has."""
        kinds = (v.alike if type(v) in (Ragged, Dense) else (getattr(v, "shape", ()), type(v)) for v in self.values)
        return tuple(kinds), tuple(self.labels)

    @property
    def sizes(self) -> Sizes:
        """Those of the rows, then that of each label."""
        return (*sizes_of(self._shares), *self.labels.values())

    @property
    def units(self) -> Sizes:
        """The bytes that one more of each size takes."""
        bytes_of = dict.fromkeys(self.labels, 0)
        for value in self.values:
            for dim, label in value.labels.items() if type(value) is Dense else ():
                bytes_of[label] += value.unit(dim)
        rows = (map(sum, zip(*map(Ragged.units, rows), strict=True)) for rows in self._shares.values())
        return (*chain.from_iterable(rows), *bytes_of.values())

    def floors(self, rows: int, *, ahead: bool) -> Sizes:
        """The least room for the rows' sizes; see ``Ragged.floors``."""
        return sizes_of(self._shares, lambda share: share.floors(rows, ahead=ahead))

    def positions(self, label: int) -> int:
        """How many rows a place of the dims with this label has."""
        return max(v.positions(label) for v in self.values if type(v) is Dense and label in v.labels.values())

    def side(self, label: int) -> int:
        """The larger side of an image: of this size and those beside it that are at most twice as large, as one that is
        wide may be followed by one that is as high. 0 where there are none.
        """
        dense = (v for v in self.values if type(v) is Dense and label in v.labels.values())
        beside = {self.labels[other] for v in dense for dim, other in v.labels.items() if dim > 0 and other != label}
        alike = [n for n in beside if n <= 2 * self.labels[label]]
        return max(self.labels[label], *alike) if alike else 0

    def in_room(self, room: Sizes) -> list[Any]:
        """The values in a room, which is given as ``sizes`` are."""
        at, rooms = 0, {}
        for owner, kinds in self._shares:
            rooms[owner, kinds] = room[at : at + kinds]
            at += kinds
        wide = dict(zip(self.labels, room[at:], strict=True))
        return [self._placed(o, v, rooms, wide) for o, v in zip(self._owners, self.values, strict=True)]

    @staticmethod
    def _placed(owner: str, value: Any, rooms: Mapping[tuple[str, int], Sizes], wide: Mapping[int, int]) -> Any:
        if type(value) is Ragged:
            return value.value(rooms[owner, value.kinds])
        return value.value(wide) if type(value) is Dense else value


def exact(value: Any) -> Any:
    """A value with no room to spare."""
    if type(value) is Ragged:
        return value.value(None)
    return value.data if type(value) is Dense else value
