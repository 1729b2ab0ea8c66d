"""What says how many positions of a wide axis are used: axes with the same label use the same number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from lowering.values import Array

LONGEST = "longest sequence"
Sized = tuple[Hashable, Array]  # a label, and how many positions are used; or None, and a size that is known


class Labels:
    """Labels for the lengths of sequences that become a dim: equal for equal offsets."""

    def __init__(self) -> None:
        self._offsets: list[Array] = []

    def of(self, offsets: Array) -> tuple[str, int]:
        """The label of the longest length under these offsets."""
        known = [i for i, other in enumerate(self._offsets) if other is offsets]
        if not known:
            self._offsets.append(offsets)
        return LONGEST, known[0] if known else len(self._offsets) - 1


class Grown(NamedTuple):
    """The label of an axis that uses (n + by) // stride positions where those labelled ``base`` use n."""

    base: Hashable
    by: int
    stride: int = 1


class Scaled(NamedTuple):
    """The label of an axis that uses ``times`` as many positions as those labelled ``of``."""

    of: Hashable
    times: int


class Total(NamedTuple):
    """The label of an axis that uses the sum of so many times the products of what axes with some labels use.

    Attributes:
        terms: (how many times, labels whose numbers are multiplied), in one order.
    """

    terms: tuple[tuple[int, tuple[Hashable, ...]], ...]


class Carried(NamedTuple):
    """The label of an axis that becomes longer by ``by`` positions in each step of a loop.

    Attributes:
        loop: which loop, and whether during it or after it.
        start: the label, or the size, of the axis before the loop.
    """

    loop: Hashable
    start: Hashable
    by: int


def grown(label: Hashable, by: int, stride: int = 1) -> Hashable:
    """The label of an axis that uses (n + by) // stride positions where those with this label use n."""
    before = form_of(label)
    found = Grown(before.base, before.by + by * before.stride, before.stride * stride)
    return before.base if found == form_of(before.base) else found


def form_of(label: Hashable) -> Grown:
    """A label as one that follows from its root."""
    return label if isinstance(label, Grown) else Grown(label, 0)


def scaled(label: Hashable, times: int) -> Hashable:
    """The label of an axis that uses so many times as many positions as those with this label."""
    return label if times == 1 else Scaled(label, times)


def total(terms: Iterable[tuple[int, Sequence[Hashable]]]) -> Hashable:
    """The label of an axis that uses the sum of these (how many times, labels whose numbers are multiplied)."""
    times: Counter[tuple[Hashable, ...]] = Counter()
    for each, labels in terms:
        times[tuple(sorted(labels, key=repr))] += each
    by = times.pop((), 0)
    found = sorted(((n, labels) for labels, n in times.items()), key=repr)
    alone = len(found) == 1 and len(found[0][1]) == 1
    return grown(scaled(found[0][1][0], found[0][0]) if alone else Total(tuple(found)), by)


def root(label: Hashable) -> Hashable:
    """The label that decides how many positions an axis uses; a total is one."""
    base = form_of(label).base
    return root(base.of) if isinstance(base, Scaled) else base


def roots(labels: Iterable[Hashable]) -> frozenset[Hashable]:
    """The labels that decide how many positions axes with these labels use, and totals of them."""
    found = {root(label) for label in labels}
    totals = {label for label in found if isinstance(label, Total)}
    inner = (label for each in totals for _, factors in each.terms for label in factors)
    return frozenset((found - totals) | (roots(inner) if totals else frozenset()))


def family(label: Hashable) -> tuple[Hashable, int]:
    """A label, and how many positions more than that this one uses; labels a fixed number apart share the first."""
    form = form_of(label)
    more, by = divmod(form.by, form.stride)
    return grown(form.base, by, form.stride), more


def number_of(label: Hashable, number: Array) -> Array:
    """How many positions axes with this label use, where those with its root use ``number``."""
    return count_of(label, {root(label): number})


def count_of(label: Hashable, counts: Mapping[Any, Array]) -> Array:
    """How many positions axes with this label use; ``counts`` has it for this label, or for one it follows from."""
    if label in counts:
        return counts[label]
    form = form_of(label)
    known = [other for other in map(form_of, counts) if other.base == form.base and _leads(other, form)]
    if known:
        nearest = max(known, key=lambda other: (other.stride, other.by))
        number = counts[grown(nearest.base, nearest.by, nearest.stride)]
        return (number + (form.by - nearest.by) // nearest.stride) // (form.stride // nearest.stride)
    if isinstance(form.base, Scaled):
        number = count_of(form.base.of, counts) * form.base.times
    elif isinstance(form.base, Total):
        number = sum(n * prod(count_of(each, counts) for each in labels) for n, labels in form.base.terms)
    else:
        raise KeyError(label)
    return (number + form.by) // form.stride


def _leads(other: Grown, form: Grown) -> bool:
    """Whether the number of one label's positions decides that of another's."""
    return form.stride % other.stride == 0 and (form.by - other.by) % other.stride == 0
