"""A sequence as one block for inputs of several sizes.

Inputs are put into arrays of the room's size, whose other places hold copies of the first one; ops know how many places
are used (see ``lowering.wide``), and of the outputs the used part is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jax
import numpy as np

from fluidjax.base.enums import VarType
from fluidjax.eager.sequences.layout import Layout
from fluidjax.eager.sequences.order import Record
from fluidjax.eager.sequences.packs import taken
from fluidjax.eager.sequences.program import Recorded
from fluidjax.eager.sequences.whole import Whole
from fluidjax.eager.values import Spec
from fluidjax.execution.rooms.dense import grown
from lowering.engine.expected import Expected, as_expected
from lowering.errors import NeedsSizes
from lowering.sizes.counts import plain
from lowering.sizes.labels import count_of
from lowering.values import Axis, Wide
from lowering.values import taken as used


class Roomy(Whole):
    """A block with room in some dims of its leaves.

    Attributes:
        layout: which dims these are.

    Raises:
        Need: an op cannot take values with room.
    """

    def __init__(self, records: Sequence[Record], layout: Layout, alive: Sequence[int], donated: Sequence[int]) -> None:
        self.layout = layout
        self._axes: list[tuple[Axis, ...]] = []
        self._expected: Expected = {}
        self._places = {k: [d for leaf, d in layout.labels if leaf == k] for k, _ in layout.labels}
        sizes = Spec.of((len(layout.rooms),), VarType.INT32)
        super().__init__(records, (*layout.leaves, sizes), alive, [k for k in donated if k not in self._places])

    def _aval(self, leaf: int, spec: Spec) -> Any:
        return jax.ShapeDtypeStruct(self.layout.shape(leaf), spec.aval.dtype) if leaf in self._places else spec.aval

    def _results(self, records: Sequence[Record], arrays: Sequence[Any]) -> list[Any]:
        *arrays, sizes = arrays
        given = [self._wide(k, array, sizes) for k, array in enumerate(arrays)]
        recorded = Recorded(records, given)
        found = [plain(value) for value in recorded.run(self.alive)]
        for value in found:
            if not isinstance(value, (Wide, jax.Array, np.ndarray)):
                raise NeedsSizes(f"an output that is a {type(value).__name__}")
        self._axes = [value.axes if isinstance(value, Wide) else () for value in found]
        self._expected = recorded.expected
        return [value.data if isinstance(value, Wide) else value for value in found]

    def _wide(self, leaf: int, array: Any, sizes: Any) -> Any:
        if leaf not in self._places:
            return array
        labels = [(dim, self.layout.labels[leaf, dim]) for dim in self._places[leaf]]
        axes = tuple([Axis(dim, array.shape[dim], label) for dim, label in labels])
        return Wide(array, tuple([sizes[label] for _, label in labels]), axes)

    def takes(self, leaves: Sequence[Spec]) -> np.ndarray | None:
        """The sizes of leaves that it can take (see ``Layout.sizes``); None if it cannot."""
        sizes = self.layout.sizes(tuple(leaves))
        if sizes is None:
            return None
        stand_ins = [self._wide(k, np.empty(spec.shape), sizes) for k, spec in enumerate(leaves)]
        return sizes if as_expected(self._expected, stand_ins) else None

    def share(self, sizes: np.ndarray) -> float:
        """How much of what it computes is for nothing, in sequences of these sizes."""
        return 1 - prod(sizes.tolist()) / prod(self.layout.rooms)

    def run_sizes(self, arrays: list[Any], alive: tuple[int, ...], sizes: np.ndarray) -> list[Any]:
        """The outputs `alive` for leaves of these sizes; see ``Whole.run``."""
        for k in self._places:
            arrays[k] = grown(np.asarray(taken(arrays[k])), self.layout.shape(k))
        arrays.append(sizes)
        results = self.run(arrays, self.alive)
        counts = dict(enumerate(sizes))
        return [self._cut(results[k], self._axes[k], counts) for k in [self.places[code] for code in alive]]

    def _cut(self, result: Any, axes: tuple[Axis, ...], counts: dict[int, Any]) -> Any:
        if not axes:
            return result
        return np.array(used(Wide(result, tuple([count_of(axis.label, counts) for axis in axes]), axes)))
