"""What says how many positions of a wide axis are used: axes with the same label use the same number."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from lowering.values import Array

LONGEST = "longest sequence"


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
    """The label of an axis that uses ``by`` positions more than those labelled ``base``."""

    base: Hashable
    by: int


class Carried(NamedTuple):
    """The label of an axis that becomes longer by ``by`` positions in each step of a loop.

    Attributes:
        loop: which loop, and whether during it or after it.
        start: the label, or the size, of the axis before the loop.
    """

    loop: Hashable
    start: Hashable
    by: int


def grown(label: Hashable, by: int) -> Hashable:
    """The label of an axis that uses ``by`` positions more than those with this label."""
    if not by:
        return label
    return Grown(label.base, label.by + by) if isinstance(label, Grown) else Grown(label, by)


def root(label: Hashable) -> Hashable:
    """The label that decides how many positions an axis uses."""
    return label.base if isinstance(label, Grown) else label


def count_of(label: Hashable, counts: Mapping[Any, Array]) -> Array:
    """How many positions axes with this label use; ``counts`` has it for this label, or for one it has grown from."""
    if label in counts or not isinstance(label, Grown):
        return counts[label]
    nearest = max((k for k in counts if root(k) == label.base), key=lambda k: k.by if isinstance(k, Grown) else 0)
    return counts[nearest] + (label.by - (nearest.by if isinstance(nearest, Grown) else 0))
