"""Integers that follow the rows of a padded value: its shape, and sums and products that a program computes from it.

The number of valid rows is known only to a run; the trace knows the capacity. A tensor whose first dim is such
a count can therefore be padded like the rows it counts. Counts exist in the outermost block; loops, branches and
host ops see plain numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.errors import NeedsExact
from lowering.registry import OpDef
from lowering.values import Array, LoDArray, RowCounts, fill_padding, is_concrete, is_padded

# Row counts at which an op that is linear in its counts is evaluated: two define the line, the third verifies it.
_PROBES = (7, 12, 100_003)
_MOST = 64


class RowSize(int):
    """A size that follows the rows of a padded value: the capacity as an int, together with the actual number.

    Attributes:
        nrows: the actual number, a traced scalar (int32).
        least: the number if there are no rows.
    """

    nrows: Array
    least: int

    @staticmethod
    def of(counts: RowCounts, rate: int, base: int) -> RowSize:
        """The size rate * rows + base: at capacity as an int; for the valid rows, and not below 0, in ``nrows``.

        Raises:
            NeedsExact: the size shrinks as rows are added, so the capacity does not bound it.
        """
        if rate < 0:
            raise NeedsExact("a size that falls as rows are added")
        size = RowSize(rate * counts.capacity + base)
        size.nrows = jnp.maximum(rate * jnp.asarray(counts.nrows) + base, 0).astype(np.int32)
        size.least = base
        return size

    def within(self, first: int, last: int) -> RowSize:
        """How many of the positions ``first`` to ``last`` lie before this one.

        Raises:
            NeedsExact: this position may be negative, which counts from the end.
        """
        if self.least < 0:
            raise NeedsExact("a bound that may be negative")
        size = RowSize(max(min(self, last) - first, 0))
        size.nrows = (jnp.clip(self.nrows, first, last) - first).astype(np.int32)
        size.least = 0
        return size


def sizes_of(counts: RowCounts) -> list[int]:
    """The numbers at capacity; those that follow the rows are ``RowSize``."""
    pairs = zip(counts.rate, counts.base, strict=True)
    return [RowSize.of(counts, rate, base) if rate else base for rate, base in pairs]


def shape_counts(shape: Sequence[int], nrows: Array, dtype: Any) -> RowCounts:
    """The dims of a padded value."""
    trailing = tuple(int(n) for n in shape[1:])
    rate, base = (1,) + (0,) * len(trailing), (0, *trailing)
    return RowCounts(nrows, int(shape[0]), rate, base, (len(rate),), np.dtype(dtype))


def plain(value: Any) -> Any:
    """Counts as the traced numbers that they are; anything else unchanged."""
    return value.data if isinstance(value, RowCounts) else value


def with_rows(data: Array, dims: Sequence[int]) -> Any:
    """``data`` [dims] as rows that follow those counted by ``dims[0]``; unchanged if no dim is a count.

    Raises:
        NeedsExact: another dim is a count, and only dim 0 can be padded.
    """
    if any(isinstance(n, RowSize) for n in dims[1:]):
        raise NeedsExact("a dim after the first follows the rows of a padded value")
    if not dims or not isinstance(dims[0], RowSize):
        return data
    return LoDArray(fill_padding(jnp.asarray(data), dims[0].nrows, backward=False), (), dims[0].nrows)


SlotValues = dict[str, Any]  # slot -> value, or list of values for a duplicable slot


def flat(values: SlotValues) -> Iterator[Any]:
    """Every value of every slot."""
    for value in values.values():
        yield from value if isinstance(value, list) else [value]


def each(values: SlotValues, change: Callable[[Any], Any]) -> SlotValues:
    """``values`` with a function applied to each value."""
    return {s: [change(v) for v in value] if isinstance(value, list) else change(value) for s, value in values.items()}


def follows_rows(value: Any) -> bool:
    """Whether a value depends on how many rows of a padded value are valid."""
    return isinstance(value, RowCounts) or is_padded(value)


def counted(definition: OpDef, run: Callable[[SlotValues], SlotValues], values: SlotValues) -> SlotValues | None:
    """Results of an op that is linear in its integers, given row counts, as counts again; None if they are not counts.

    Args:
        run: the op on known values.
        values: counts of one padded value, and known values.
    """
    counts = [v for v in flat(values) if isinstance(v, RowCounts)]
    if not definition.linear or not counts or any(c.nrows is not counts[0].nrows for c in counts):
        return None
    if not all(v is None or isinstance(v, RowCounts) or (is_concrete(v) and v.size <= _MOST) for v in flat(values)):
        return None
    with jax.ensure_compile_time_eval():
        found = [run(each(values, partial(_at, rows=rows))) for rows in _PROBES]
        probed = [{slot: np.asarray(value) for slot, value in results.items()} for results in found]
    lines = {slot: _line([results[slot] for results in probed], counts[0]) for slot in probed[0]}
    return None if any(v is None for v in lines.values()) else lines


def _at(value: Any, rows: int) -> Any:
    return value.at(rows) if isinstance(value, RowCounts) else value


def _line(at: Sequence[np.ndarray], counts: RowCounts) -> Any:
    """The counts with these values at the probed numbers of rows; None if they are not linear."""
    if any(v.shape != at[0].shape or not np.issubdtype(v.dtype, np.integer) for v in at):
        return None
    first, second, third = (v.astype(np.int64) for v in at)
    rate, rest = np.divmod(second - first, _PROBES[1] - _PROBES[0])
    base = first - rate * _PROBES[0]
    if rest.any() or (rate * _PROBES[2] + base != third).any():
        return None
    if not rate.any():
        return at[0]
    rates, bases = (tuple(v.reshape(-1).tolist()) for v in (rate, base))
    return RowCounts(counts.nrows, counts.capacity, rates, bases, at[0].shape, at[0].dtype)


def without_counts(env: MutableMapping[str, Any]) -> AbstractContextManager[None]:
    """Counts among these values are temporarily plain numbers; those not replaced become counts again afterwards."""
    return _as_numbers(env) if RowCounts in map(type, env.values()) else nullcontext()


@contextmanager
def _as_numbers(env: MutableMapping[str, Any]) -> Iterator[None]:
    held = {name: value for name, value in env.items() if isinstance(value, RowCounts)}
    numbers = {name: value.data for name, value in held.items()}
    env.update(numbers)
    yield
    env.update({name: value for name, value in held.items() if env[name] is numbers[name]})
