"""What a trace expects of the sizes that it is given: the host compares them before each run."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from lowering.errors import Need, NeedsExact, NeedsSizes
from lowering.program import OpView
from lowering.sizes.labels import Sized, form_of, number_of, root
from lowering.values import Array, Axis, LoDArray, RowCounts, Wide, is_concrete, is_padded

UNEVEN = "its ragged inputs do not have equally many rows"


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
        self._wide = {axis.label: at for at, v in enumerate(inputs) for axis in axes_of(v)}
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


def axes_of(value: Any) -> Sequence[Axis]:
    """The axes along which a value has room."""
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
    known = {axis.label: n for axis, n in zip(axes_of(value), value.counts, strict=True)} if axes_of(value) else {}
    number = known.get(root(label))
    return int(number_of(label, number)) if is_concrete(number) else None
