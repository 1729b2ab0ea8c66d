"""Containers of tensors: SelectedRows and arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fluidjax.base.errors import EnforceNotMet
from fluidjax.base.values import LoDTensor
from lowering.values import RankTable


class SelectedRows:
    """Some rows of a tall table: `rows` (indices, possibly repeated), their values, and the table's `height`."""

    def __init__(self, rows: Sequence[int] = (), height: int = 0) -> None:
        self._rows: Any = [int(r) for r in rows]
        self._height = int(height)
        self._tensor = LoDTensor()

    def rows(self) -> list[int]:
        """The row indices."""
        return [int(r) for r in np.asarray(self._rows).reshape(-1)]

    def set_rows(self, rows: Sequence[int]) -> None:
        """Replace the row indices."""
        self._rows = [int(r) for r in rows]

    def height(self) -> int:
        """The number of rows of the entire table."""
        return self._height

    def set_height(self, height: int) -> None:
        """Set the number of rows of the entire table."""
        self._height = int(height)

    def sync_index(self) -> None:
        """Update the lookup index; a no-op, since there is none."""

    def numel(self) -> int:
        """The number of values stored."""
        return int(np.prod(self._tensor.shape()))

    def get_tensor(self) -> LoDTensor:
        """The values, one row per index; the tensor itself, not a copy."""
        return self._tensor

    def __str__(self) -> str:
        return f"SelectedRows(rows={self.rows()}, height={self._height}, value=\n{self._tensor})"


class NoSuchElementError(EnforceNotMet, IndexError):
    """An array of tensors has no element of that number; Fluid 1.8.5 says EnforceNotMet."""


class LoDTensorArray:
    """A list of LoDTensors, initially ``items`` (not copied)."""

    def __init__(self, items: Iterable[LoDTensor] = ()) -> None:
        self._items = list(items)

    def append(self, tensor: LoDTensor) -> None:
        """Append a copy of `tensor`."""
        self._items.append(_checked_tensor(tensor))

    def _move_to_list(self) -> list[LoDTensor]:
        items, self._items = self._items, []
        return items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> LoDTensor:
        return self._items[index]

    def __setitem__(self, index: int, tensor: LoDTensor) -> None:
        checked = _checked_tensor(tensor)
        if index >= len(self._items):
            raise NoSuchElementError(
                f"LoDTensorArray: element {index} of {len(self._items)} cannot be set. Expected one that is"
                " there. Append a tensor first."
            )
        self._items[index] = checked

    def __iter__(self) -> Iterator[LoDTensor]:
        return iter(self._items)

    def __str__(self) -> str:
        return "LoDTensorArray[\n" + "".join(str(item) for item in self._items) + "]"


class FetchList(list[Any]):
    """What fetch ops leave, and feed ops read: a LoDTensor or a LoDTensorArray in each column."""

    def append(self, var: Any) -> None:
        """Append a tensor or an array of them. Raises TypeError for anything else."""
        if not isinstance(var, (LoDTensor, LoDTensorArray)):
            raise TypeError(f"FetchList holds LoDTensors and LoDTensorArrays, received {var!r:.60}. Make one of it.")
        super().append(var)

    def _move_to_list(self) -> list[Any]:
        """What it holds; nothing is left in it."""
        items = list(self)
        self.clear()
        return items


class FetchUnmergedList(FetchList):
    """What was fetched over several devices: for each column a list of their values."""


class LodRankTable:
    """Sequences by falling length, as the op ``lod_rank_table`` leaves them in a variable."""

    def __init__(self, table: RankTable | None = None) -> None:
        self._table = table

    def items(self) -> list[tuple[int, int]]:
        """(index, length) of each sequence, the longest first."""
        if self._table is None:
            return []
        index, lengths = np.asarray(self._table.index), np.asarray(self._table.lengths)
        count = len(index) if self._table.nseq is None else int(self._table.nseq)
        return list(zip(index[:count].tolist(), lengths[:count].tolist(), strict=True))


def _checked_tensor(tensor: LoDTensor) -> LoDTensor:
    if not isinstance(tensor, LoDTensor):
        raise TypeError(
            f"LoDTensorArray holds LoDTensors, got {type(tensor).__name__}. Make one with fluid.create_lod_tensor "
            "or LoDTensor().set(array, place)."
        )
    return tensor._copy(tensor._place())


def take_over(held: Any, new: Any) -> bool:
    """Update rows or an array held by users with the contents of `new`; returns False if the types differ."""
    if isinstance(held, SelectedRows) and isinstance(new, SelectedRows):
        held._rows, held._height = new._rows, new._height
        held._tensor._set_value(new._tensor._value, new._tensor._lod)
    elif isinstance(held, LoDTensorArray) and isinstance(new, LoDTensorArray):
        held._items = new._items
    else:
        return False
    return True
