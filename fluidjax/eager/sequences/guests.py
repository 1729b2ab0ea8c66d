"""A sequence, and the blocks that its kind shares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fluidjax.eager.sequences.kinds import Kind, Shapes
from fluidjax.eager.sequences.roomy import Roomy

PRICE = 0.008  # seconds per op that a block takes to compile
_CALL = 2e-6  # seconds per op that a run takes longer than one of a block of its own: its step is not promised


class Guest:
    """A sequence as one of its kind.

    Attributes:
        kind, leaves: its kind, and the specs of its leaves.
    """

    def __init__(self, kind: Kind, leaves: Shapes) -> None:
        self.kind, self.leaves = kind, leaves
        self._lost = 0.0
        self._sizes: dict[Roomy, np.ndarray | None] = {}

    def room(self, alive: Sequence[int]) -> tuple[Roomy, np.ndarray] | None:
        """A block of its kind that takes its leaves and returns these outputs, and the sizes to tell it."""
        for block in self.kind.blocks:
            if block not in self._sizes:
                self._sizes[block] = block.takes(self.leaves)
            sizes = self._sizes[block]
            if sizes is not None and block.places.keys() >= set(alive):
                return block, sizes
        return None

    def pays(self, block: Roomy, sizes: np.ndarray, ops: int) -> bool:
        """Note a run; returns whether runs with room have taken so much longer that a block of its own had paid."""
        self._lost += block.seconds * block.share(sizes) + _CALL * ops
        return self._lost >= PRICE * ops
