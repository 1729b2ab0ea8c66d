"""Which dims of a sequence's leaves have room, and how much."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fluidjax.eager.values import Spec, is_plain

Shapes = tuple[Spec, ...]


class Layout(NamedTuple):
    """Which dims of which leaves have room.

    Attributes:
        leaves: an example.
        labels: (leaf, dim) -> its label; dims with the same label have the same size.
        rooms: how much, by label.
    """

    leaves: Shapes
    labels: Mapping[tuple[int, int], int]
    rooms: tuple[int, ...]

    def sizes(self, leaves: Shapes) -> np.ndarray | None:
        """int32 [labels]: the sizes of these leaves; None if they differ in anything else, or do not fit."""
        found: dict[int, int] = {}
        for k, (here, there) in enumerate(zip(leaves, self.leaves, strict=True)):
            if here is there and not self._roomy(k):
                continue
            if not alike(here, there):
                return None
            for dim, (n, m) in enumerate(zip(here.shape, there.shape, strict=True)):
                label = self.labels.get((k, dim))
                if n != m if label is None else not 0 < found.setdefault(label, n) == n <= self.rooms[label]:
                    return None
        return np.array([found[label] for label in range(len(self.rooms))], np.int32)

    def _roomy(self, leaf: int) -> bool:
        return any(k == leaf for k, _ in self.labels)

    def shape(self, leaf: int) -> tuple[int, ...]:
        """The shape of a leaf with its room."""
        dims = enumerate(self.leaves[leaf].shape)
        return tuple([self.rooms[self.labels[leaf, d]] if (leaf, d) in self.labels else n for d, n in dims])


def alike(one: Spec, other: Spec) -> bool:
    """Whether two leaves differ in sizes alone."""
    if one is other:
        return True
    return is_plain(one) and is_plain(other) and one.dtype == other.dtype and len(one.shape) == len(other.shape)
