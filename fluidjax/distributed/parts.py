"""Splitting values into one shard per server, and merging several values of a variable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from lowering.values import LoDArray, SelectedRows, exact


@dataclass(frozen=True)
class Target:
    """The location of the shards of a variable.

    Attributes:
        names, endpoints: one of each per shard.
        sections: number of rows of each consecutive shard; empty for a single shard.
    """

    names: tuple[str, ...]
    endpoints: tuple[str, ...]
    sections: tuple[int, ...]

    def split(self, value: Any) -> list[tuple[str, str, Any]]:
        """(endpoint, name, shard) of a dense value or SelectedRows; rows are counted from the start of their shard."""
        if len(self.names) == 1:
            return [(self.endpoints[0], self.names[0], value)]
        bounds = list(pairwise(accumulate(self.sections, initial=0)))
        parts = [_rows(value, *b) if isinstance(value, SelectedRows) else value[slice(*b)] for b in bounds]
        return list(zip(self.endpoints, self.names, parts, strict=True))

    def wanted(self) -> list[tuple[str, str]]:
        """(endpoint, name) of each shard."""
        return list(zip(self.endpoints, self.names, strict=True))


def _rows(value: SelectedRows, begin: int, end: int) -> SelectedRows:
    own = (begin <= value.rows) & (value.rows < end)
    return SelectedRows(value.rows[own] - begin, value.values[own], end - begin)


def on_host(value: Any) -> Any:
    """A value of a run as NumPy, without padding."""
    value = exact(value)
    if isinstance(value, SelectedRows):
        count = None if value.nrows is None else int(value.nrows)
        rows, values = np.asarray(value.rows)[:count], np.asarray(value.values)[:count]
        return replace(value, rows=rows.astype(np.int64), values=values, nrows=None)
    return value if isinstance(value, LoDArray) else np.asarray(value)


def merged(values: Sequence[Any], *, mean: bool) -> Any:
    """Merge several gradients of a variable into their sum or mean."""
    factor = 1 / len(values) if mean else 1.0
    first = values[0]
    if len(values) == 1:
        return first
    if isinstance(first, SelectedRows):
        rows = np.concatenate([value.rows for value in values])
        joined = np.concatenate([value.values for value in values])
        return replace(first, rows=rows, values=joined * first.values.dtype.type(factor))
    return sum(values[1:], first) * first.dtype.type(factor)
