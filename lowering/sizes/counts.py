"""Integers that follow the rows of a padded value, or the sizes of wide dims: shapes, and sums and products of them.

The number of valid rows, or of used positions, is known only to a run; the trace knows the room. A tensor whose first
dim is such a count can therefore be padded like the rows it counts, and one that has a dim of the size of a wide one is
wide like it. Counts exist in the outermost block; loops, branches and host ops see plain numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lowering.errors import NeedsExact, NeedsSizes
from lowering.registry import OpDef
from lowering.sizes.labels import grown, roots, scaled
from lowering.sizes.moves import refilled
from lowering.values import Array, Axis, Counted, LoDArray, RowCounts, Wide, fill_padding, is_concrete, is_padded

# Numbers at which an op that is linear in its counts is evaluated: two define the line of each, the third verifies it.
_PROBES = (7, 12, 100_003)
_MOST = 64


class RowSize(int):
    """A size that follows rows or the size of a wide dim: the room as an int, together with the actual number.

    Attributes:
        nrows: the actual number, a traced scalar (int32).
        least: the number if there are no rows.
        label: of axes that use as many positions; None for rows.
        rate: how many times as many it is.
    """

    nrows: Array
    least: int
    label: Hashable = None
    rate: int = 1

    @staticmethod
    def of(number: Array, counted: Counted, rate: int, base: int, *, multiples: bool = False) -> RowSize:
        """The size rate * number + base: with room as an int; as the run has it, and not below 0, in ``nrows``.

        ``multiples``: whether it may be a multiple of the size of a dim.

        Raises:
            NeedsExact: the size shrinks as rows are added, so the room does not bound it; or it is no size that an
                axis may have.
        """
        if rate < 0:
            raise NeedsExact("a size that falls as rows are added")
        if counted.label is not None and (counted.room + base < 1 or (rate != 1 and (base or not multiples))):
            raise NeedsExact("a multiple of the size of a dim, or nothing of it")
        size = RowSize(rate * counted.room + base)
        same = rate == 1 and not base and number.dtype == np.int32  # then it is known for the same number
        size.nrows = number if same else jnp.maximum(rate * jnp.asarray(number) + base, 0).astype(np.int32)
        size.least = base
        size.label = None if counted.label is None else grown(counted.label, base)
        size.rate = 1 if counted.label is None else rate
        return size

    def times(self, scale: float) -> RowSize:
        """So many times the size of a wide dim, or a half, a quarter ... of it, without what is left.

        Raises NeedsSizes for another part.
        """
        part = whole_part(scale)
        if self.rate != 1 or not (part or scale == int(scale)):
            needed = NeedsSizes("a part of the size of a dim")
            needed.labels = roots([self.label])
            raise needed
        size = RowSize(self // part if part else self * int(scale))
        size.nrows = self.nrows // part if part else self.nrows * int(scale)
        size.label = grown(self.label, 0, part) if part else scaled(self.label, int(scale))
        size.least = 0
        return size

    def within(self, first: int, last: int) -> RowSize:
        """How many of the positions ``first`` to ``last`` lie before this one.

        Raises:
            NeedsExact: this position may be negative, which counts from the end; or it is the size of a wide dim, of
                which not all lie there.
        """
        if self.label is not None:
            if first or self > last:
                raise NeedsExact("a bound that follows a dim, of fewer places than that may have")
            return self
        if self.least < 0:
            raise NeedsExact("a bound that may be negative")
        size = RowSize(max(min(self, last) - first, 0))
        size.nrows = (jnp.clip(self.nrows, first, last) - first).astype(np.int32)
        size.least = 0
        return size


def whole_part(scale: float) -> int:
    """2, 4, 8 ... for a half, a quarter, an eighth ..., by which sizes divide without rounding; 0 for other numbers."""
    part = round(1 / scale) if 0 < scale < 1 else 0
    return part if part and part & (part - 1) == 0 and part * scale == 1 else 0


def sizes_of(counts: RowCounts, *, multiples: bool = False) -> list[int]:
    """The numbers with room; those that follow rows or wide dims are ``RowSize``, ``multiples`` of these if so wanted.

    Raises NeedsExact for one that follows several.
    """
    return [_size(counts, i, base, multiples) for i, base in enumerate(counts.base)]


def _size(counts: RowCounts, i: int, base: int, multiples: bool) -> int:
    found = [k for k, rate in enumerate(counts.rates) if rate[i]]
    if len(found) > 1:
        raise NeedsExact("a size that follows several dims")
    if not found:
        return base
    (k,) = found
    return RowSize.of(counts.numbers[k], counts.counted[k], counts.rates[k][i], base, multiples=multiples)


def shape_counts(shape: Sequence[int], nrows: Array, dtype: Any) -> RowCounts:
    """The dims of a padded value."""
    trailing = tuple(int(n) for n in shape[1:])
    rate, base = (1,) + (0,) * len(trailing), (0, *trailing)
    return RowCounts((nrows,), (Counted(int(shape[0])),), (rate,), base, (len(rate),), np.dtype(dtype))


def sizes_along(value: Any, dims: Sequence[int]) -> list[int]:
    """The sizes of dims of a value; of those that are axes with room, ``RowSize``."""
    wide = zip(value.axes, value.counts, strict=True) if isinstance(value, Wide) else ()
    sized = {axis.dim: RowSize.of(count, Counted(axis.room, axis.label), 1, 0) for axis, count in wide}
    return [sized.get(dim, value.shape[dim]) for dim in dims]


def plain(value: Any) -> Any:
    """Counts as the traced numbers that they are; anything else unchanged."""
    return value.data if isinstance(value, RowCounts) else value


def with_rows(data: Array, dims: Sequence[int]) -> Any:
    """``data`` [dims] as rows that follow those counted by ``dims[0]``, or wide like dims; unchanged without counts.

    Raises:
        NeedsExact: another dim counts rows, and only dim 0 can be padded.
    """
    sizes = {dim: n for dim, n in enumerate(dims) if isinstance(n, RowSize)}
    rows = [dim for dim, n in sizes.items() if n.label is None]
    if any(rows) or (rows and len(sizes) > 1):
        raise NeedsExact("a dim after the first follows the rows of a padded value")
    if not sizes:
        return data
    if not rows:
        axes = tuple(Axis(dim, int(n), n.label) for dim, n in sizes.items())
        return refilled(Wide(jnp.asarray(data), tuple(n.nrows for n in sizes.values()), axes))
    nrows = sizes[0].nrows
    return LoDArray(fill_padding(jnp.asarray(data), nrows, backward=False), (), nrows)


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
        values: counts of one padded value or of wide dims, and known values.
    """
    counts = [v for v in flat(values) if isinstance(v, RowCounts)]
    if not definition.linear or not counts:
        return None
    variables = {key: variable for c in counts for key, variable in _variables(c).items()}
    if sum(variable.counted.label is None for variable in variables.values()) > 1:
        return None
    if not all(v is None or isinstance(v, RowCounts) or (is_concrete(v) and v.size <= _MOST) for v in flat(values)):
        return None
    with jax.ensure_compile_time_eval():
        found = [run(each(values, partial(_at, numbers=numbers))) for numbers in _probes(list(variables))]
        probed = [{slot: np.asarray(value) for slot, value in results.items()} for results in found]
    lines = {slot: _line([results[slot] for results in probed], list(variables.values())) for slot in probed[0]}
    return None if any(v is None for v in lines.values()) else lines


class _Variable(NamedTuple):
    number: Array
    counted: Counted


def _variables(counts: RowCounts) -> dict[Hashable, _Variable]:
    """What counts follow, by what tells it from others."""
    pairs = [_Variable(*pair) for pair in zip(counts.numbers, counts.counted, strict=True)]
    return {id(v.number) if v.counted.label is None else (v.counted.label,): v for v in pairs}


def _probes(keys: Sequence[Hashable]) -> list[dict[Hashable, int]]:
    """The numbers of each probe: all as the first; each alone as the second; all as the third, and unlike."""
    first = dict.fromkeys(keys, _PROBES[0])
    return [first, *({**first, key: _PROBES[1]} for key in keys), {k: _PROBES[2] + i for i, k in enumerate(keys)}]


def _at(value: Any, numbers: Mapping[Hashable, int]) -> Any:
    return value.at(*(numbers[key] for key in _variables(value))) if isinstance(value, RowCounts) else value


def _line(at: Sequence[np.ndarray], variables: Sequence[_Variable]) -> Any:
    """The counts with these values at the probed numbers; None if they are not linear."""
    if any(v.shape != at[0].shape or not _whole_numbers(v) for v in at):
        return None
    first, *others, last = (v.astype(np.int64) for v in at)
    found = [np.divmod(other - first, _PROBES[1] - _PROBES[0]) for other in others]
    rates = [rate for rate, _ in found]
    base = first - sum(rates) * _PROBES[0]
    expected = base + sum(rate * (_PROBES[2] + i) for i, rate in enumerate(rates))
    if any(rest.any() for _, rest in found) or (expected != last).any():
        return None
    used = [(v, tuple(r.reshape(-1).tolist())) for v, r in zip(variables, rates, strict=True) if r.any()]
    if not used:
        return at[0]
    (numbers, counted), bases = zip(*(v for v, _ in used), strict=True), tuple(base.reshape(-1).tolist())
    return RowCounts(numbers, counted, tuple(r for _, r in used), bases, at[0].shape, at[0].dtype)


def _whole_numbers(value: np.ndarray) -> bool:
    """Whether these are integers, perhaps in a type of fractions, which sizes are cast to."""
    return np.issubdtype(value.dtype, np.integer) or (
        np.issubdtype(value.dtype, np.floating) and bool((value == np.floor(value)).all())
    )


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
