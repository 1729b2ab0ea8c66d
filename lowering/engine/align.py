"""Ragged values of different capacities that meet in a row-wise op."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp

from lowering.errors import Need, NeedsExact, NeedsSizes
from lowering.program import GRAD, OpView
from lowering.registry import OpDef, Wise
from lowering.sizes.counts import SlotValues, each, flat
from lowering.sizes.labels import Sized, form_of, number_of, root, roots
from lowering.values import Array, Axis, LoDArray, RowCounts, Wide, is_concrete, is_padded

if TYPE_CHECKING:
    from lowering.engine.runner import Runner

UNEVEN = "its ragged inputs do not have equally many rows"


def aligned(definition: OpDef, op: OpView, values: SlotValues, runner: Runner) -> SlotValues:
    """``values`` with the padded ones cut to the smallest capacity among them, for an op that works row by row.

    The same number of valid rows fits into each. Whether they do have the same number, the run checks: if not, the
    executor runs the op on unpadded rows, which fail as they would without padding.
    """
    padded = [v for v in flat(values) if is_padded(v)]
    counts, capacities = {id(v.nrows) for v in padded}, {v.capacity for v in padded}
    if max(len(counts), len(capacities)) < 2 or not _row_wise(definition, op, padded[0]):
        return values
    runner.fed.expect_equal(op, padded)
    if len(capacities) == 1:
        return values
    if len(counts) > 1:
        rows = jnp.stack([jnp.asarray(v.nrows) for v in padded])
        runner.expect_equal_rows(op, rows.min() == rows.max())
    capacity = min(capacities)
    return each(values, lambda v: _cut(v, capacity))


def paired(runner: Runner, op: OpView, *values: LoDArray) -> list[LoDArray]:
    """Values of an op that pairs their rows, cut to the smallest capacity; NeedsExact if some are not padded.

    That they have equally many rows is checked, as in ``aligned``.
    """
    if not any(v.padded for v in values):
        return list(values)
    if not all(v.padded for v in values):
        raise NeedsExact(f"op {op.type} pairs padded rows with exact ones")
    if len({id(v.nrows) for v in values}) > 1 and not runner.fed.expect_equal(op, values):
        rows = jnp.stack([jnp.asarray(v.nrows) for v in values])
        runner.expect_equal_rows(op, rows.min() == rows.max())
    capacity = min(v.capacity for v in values)
    return [_cut(v, capacity) for v in values]


class Fed(NamedTuple):
    """A row count that is ``by`` more than that of an input of a trace, which is at a position."""

    at: int
    by: int = 0


class Equal(NamedTuple):
    """Two row counts that must be equal."""

    one: Fed
    other: Fed


class Least(NamedTuple):
    """Axes with this label, which follows from a wide input of a trace, by position, have a used position."""

    at: int
    label: Hashable


class Same(NamedTuple):
    """The axes with two labels use equally many positions.

    Each is (position of a wide input of a trace from whose size it follows, label), or (None, the number).
    """

    one: tuple[int | None, Any]
    other: tuple[int | None, Any]


Expected = dict[Equal | Least | Same, Need]


class FedRows:
    """The row counts that a trace was given, and what is expected of them.

    Attributes:
        expected: the error to raise for each expectation that is not met: rows are paired, or a dim is cut.
    """

    def __init__(self, inputs: Sequence[Any] = ()):
        self._known = {id(n): (Fed(at), n) for at, v in enumerate(inputs) for n in _row_counts(v)}
        self._wide = {axis.label: at for at, v in enumerate(inputs) for axis in _axes(v)}
        self.expected: Expected = {}

    def expect_equal(self, op: OpView, values: Sequence[LoDArray]) -> bool:
        """Record that ``op`` pairs the rows of these values; returns whether all of their counts are known."""
        known = {id(v.nrows): self._known.get(id(v.nrows)) for v in values}
        fed = sorted({found[0] for found in known.values() if found is not None})
        for one, other in pairwise(fed):
            self.expected.setdefault(Equal(one, other), NeedsExact(UNEVEN).asked_by(op))
        return None not in known.values()

    def follow(self, number: Array, nrows: Array, by: int) -> None:
        """Note that ``number`` is ``nrows``, which may be that of an input, and ``by`` more."""
        if id(nrows) in self._known:
            fed = self._known[id(nrows)][0]
            self._known[id(number)] = fed._replace(by=fed.by + by), number

    def knows(self, label: Hashable) -> bool:
        """Whether a size that axes with this label follow is that of an input."""
        return root(label) in self._wide

    def expect_some(self, label: Hashable, needed: NeedsSizes) -> None:
        """Record that axes with this label have a position; else ``needed`` is raised."""
        self.expected.setdefault(Least(self._wide[root(label)], label), needed)

    def expect_same(self, one: Sized, other: Sized, needed: NeedsSizes) -> None:
        """Record that these are equal; else ``needed`` is raised."""
        sides = [(None, int(n)) if label is None else (self._wide[root(label)], label) for label, n in (one, other)]
        self.expected.setdefault(Same(*sides), needed)


class Conditions:
    """What an op on wide values needs their sizes to be: checked by the host where it knows them, else by the run."""

    def __init__(self, op: OpView, runner: Runner):
        self._op, self._runner = op, runner
        self.packs = runner.packs

    def some(self, label: Hashable, count: Array) -> None:
        """Axes with this label, of which so many positions are used, have at least one."""
        needed = self._needed("cuts all there is of a dim", label)
        if self._runner.fed.knows(label):
            self._runner.fed.expect_some(label, needed)
        else:
            self._flag(count < 1, needed)

    def same(self, one: Sized, other: Sized) -> None:
        """Axes with two labels use equally many positions; without a label, the number is known."""
        labels = [label for label, _ in (one, other) if label is not None]
        needed = self._needed("pairs dims whose sizes differ", *labels)
        if all(map(self._runner.fed.knows, labels)):
            self._runner.fed.expect_same(one, other, needed)
        else:
            self._flag(one[1] != other[1], needed)

    def sized(self, results: SlotValues) -> None:
        """No dim is made of a number that is less than the size of another, and nothing."""
        for value in flat(results):
            for axis, count in zip(_axes(value), value.counts if _axes(value) else (), strict=True):
                form = form_of(axis.label)
                if 1 + form.by < form.stride:
                    self.some(axis.label, count)

    def _needed(self, why: str, *labels: Hashable) -> NeedsSizes:
        needed = NeedsSizes(f"op {self._op.type} {why}")
        needed.labels = roots(labels)
        needed.asked_by(self._op)
        return needed

    def _flag(self, flag: Array, needed: NeedsSizes) -> None:
        """Let the run raise ``needed`` where ``flag`` is set."""
        name = f"{needed} of op {self._op.index} of block {self._op.block_idx}: {sorted(map(str, needed.labels))}"
        self._runner.uneven[name] = needed
        self._runner.overflow(name, flag)


def _axes(value: Any) -> Sequence[Axis]:
    return value.axes if isinstance(value, Wide) else ()


def of_any_form(expected: Expected) -> Expected:
    """What is expected of inputs of other forms, too: not how many times a size is another one, or a known number."""
    return {what: need for what, need in expected.items() if not isinstance(what, Same) or _is_plain(what)}


def _is_plain(what: Same) -> bool:
    return all(at is not None and root(label) == form_of(label).base for at, label in what)


def check_expected(expected: Expected, inputs: Sequence[Any]) -> None:
    """Raise what is lacking if inputs are not as expected, as far as the host knows."""
    for what, need in expected.items():
        if not _met(what, inputs):
            raise need


def as_expected(expected: Expected, inputs: Sequence[Any]) -> bool:
    """Whether inputs are as expected, as far as the host knows."""
    return all(_met(what, inputs) for what in expected)


def _met(what: Equal | Least | Same, inputs: Sequence[Any]) -> bool:
    if isinstance(what, Least):
        size = _size(inputs[what.at], what.label)
        return size is None or size > 0
    if isinstance(what, Same):
        sizes = {label if at is None else _size(inputs[at], label) for at, label in what}
        return None in sizes or len(sizes) == 1
    counts = [n + fed.by for fed in what for n in _row_counts(inputs[fed.at]) if is_concrete(n)]
    return len(counts) < 2 or bool(counts[0] == counts[1])


def _row_counts(value: Any) -> Sequence[Array]:
    """The row count of an input, which has padded rows or is such a count itself."""
    if isinstance(value, RowCounts):
        return value.numbers if len(value.counted) == 1 and value.counted[0].label is None else ()
    return (value.nrows,) if is_padded(value) else ()


def _size(value: Any, label: Hashable) -> int | None:
    """How many positions axes with this label use, where their size follows from that of ``value``."""
    known = {axis.label: n for axis, n in zip(_axes(value), value.counts, strict=True)} if _axes(value) else {}
    number = known.get(root(label))
    return int(number_of(label, number)) if is_concrete(number) else None


def regrown(values: SlotValues, results: SlotValues) -> SlotValues:
    """Gradients with the capacity that their forward values had before they were cut; added rows are zero."""
    for slot, result in results.items():
        forward = values.get(slot.removesuffix(GRAD)) if slot.endswith(GRAD) else None
        if isinstance(forward, LoDArray) and is_padded(result) and result.capacity < forward.capacity:
            results = {**results, slot: result.with_data(_grown(result.data, forward.capacity))}
    return results


def _row_wise(definition: OpDef, op: OpView, value: LoDArray) -> bool:
    return isinstance(definition.rows_rule(op.attrs, value.data.ndim), Wise)


def _cut(value: Any, capacity: int) -> Any:
    return replace(value, data=value.data[:capacity]) if is_padded(value) else value


def _grown(data: Array, capacity: int) -> Array:
    return jnp.concatenate([data, jnp.zeros((capacity - data.shape[0], *data.shape[1:]), data.dtype)])
