"""Sequences of the same ops whose inputs differ in the sizes of dims alone, and which room would serve all of them."""

from __future__ import annotations

from collections.abc import Sequence

from fluidjax.eager.sequences.layout import Layout, Shapes, alike
from fluidjax.eager.sequences.points import Point
from fluidjax.eager.sequences.roomy import Roomy
from fluidjax.execution.rooms.buckets import finer

_SEEN = 16  # sequences of a kind by which dims are told apart
_BLOCKS = 4  # blocks with room of a kind: for longer inputs, for other outputs, for dims that went together before


class Kind:
    """What is known of sequences of the same kernels and wiring.

    Attributes:
        blocks: with room, the latest first.
        refused: whether some op cannot take room.
        pending: whether a block is being compiled; `asked`: how many were asked for.
        last: when one of them occurred last.
    """

    last = 0

    def __init__(self) -> None:
        self.blocks: list[Roomy] = []
        self.pending = False
        self._paid = self._latest = 0.0  # seconds
        self._seen: list[Shapes] = []
        self.refused, self.asked = False, 0

    def see(self, way: Sequence[Point]) -> None:
        """A sequence of this kind occurred, which never did before."""
        leaves = leaves_of(way)
        if self._seen and not all(map(alike, leaves, self._seen[0])):
            self.refused = True
        if len(self._seen) < _SEEN:
            self._seen.append(leaves)

    @property
    def open(self) -> bool:
        """Whether another block with room may be compiled, as sizes have changed."""
        return len(self._seen) > 1 and not (self.refused or self.pending) and self.asked < _BLOCKS

    def layout(self, leaves: Shapes) -> Layout | None:
        """Room for leaves of these sizes, and all seen so far; None if no dim but the first of leaves has changed."""
        seen = [*self._seen, leaves]
        labels: dict[tuple[int, int], int] = {}
        numbers: dict[tuple[int, ...], int] = {}
        for k, spec in enumerate(leaves):
            for dim in range(len(spec.shape)):
                column = tuple([each[k].shape[dim] for each in seen])
                if len({*column}) > 1:
                    labels[k, dim] = numbers.setdefault(column, len(numbers))
        if all(dim == 0 for _, dim in labels) or min(map(min, numbers)) < 1:
            return None
        return Layout(leaves, labels, tuple([_room(max(column)) for column in numbers]))

    def pay(self, seconds: float) -> None:
        """Note what a sequence that never occurred took op by op."""
        self._latest = seconds
        self._paid += seconds if len(self._seen) > 1 else 0.0

    def dear(self, price: float) -> bool:
        """Whether running another one of new sizes op by op would make it more than this price."""
        return self._paid + self._latest >= price


def leaves_of(way: Sequence[Point]) -> Shapes:
    """The specs of the leaves."""
    return tuple([spec for point in way for spec in point.fresh])


def _room(most: int) -> int:
    """Room for sizes of which this was the largest so far: a quarter more."""
    return finer(most + most // 4)
