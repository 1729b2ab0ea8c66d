"""A recorded sequence as one compiled block."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from fluidjax.eager.sequences.order import Record, one_by_one, output_specs
from fluidjax.eager.sequences.packs import Piece, packs_of, taken, within_room
from fluidjax.eager.sequences.tiers import Tiered, light
from fluidjax.eager.values import Spec
from fluidjax.execution.steps.buffers import joined
from lowering.engine.interrupts import uninterrupted
from lowering.engine.x64 import in_x64, with_x64


class Whole(Tiered):
    """A sequence as one compiled block.

    Attributes:
        alive: the outputs it returns.
        packs: leaves and outputs that share a buffer.
        singles, given: the other leaves, and the positions of the other outputs in ``alive``.
        donated: which of the singles donate their memory; all buffers of packs do.
        keeps: whether none does, though everything is laid out as if it did.
    """

    def __init__(
        self,
        records: Sequence[Record],
        leaves: Sequence[Spec],
        alive: Sequence[int],
        donated: Sequence[int],
        keeps: bool = False,
    ) -> None:
        super().__init__()
        self.alive, self.keeps = tuple(alive), keeps
        self.places = {code: k for k, code in enumerate(alive)}
        self.compilations = 1
        self.packs = packs_of(records, leaves, alive)
        packed = {leaf for pack in self.packs for leaf in pack.leaves}
        given = {code for pack in self.packs for code in pack.outputs}
        self.singles = [k for k in range(len(leaves)) if k not in packed]
        self.given = [k for k, code in enumerate(alive) if code not in given]
        free = [k for k in self.singles if k in donated]
        taken_over = {*within_room(records, leaves, [alive[k] for k in self.given], free)}
        self.donated = [n for n, k in enumerate(self.singles) if k in taken_over]
        self._order = self._order_of_results()
        uninterrupted(partial(self._compile, records, leaves))

    def _order_of_results(self) -> list[int]:
        """For each output, its number among the single results and the pieces."""
        given = [self.alive[k] for k in self.given] + [code for pack in self.packs for code in pack.outputs]
        numbers = {code: n for n, code in enumerate(given)}
        return [numbers[code] for code in self.alive]

    @in_x64
    def _compile(self, records: Sequence[Record], leaves: Sequence[Spec]) -> None:
        def block(*given: Any) -> list[Any]:
            arrays: list[Any] = [None] * len(leaves)
            for k, array in zip(self.singles, given, strict=False):
                arrays[k] = array
            for pack, buffer in zip(self.packs, given[len(self.singles) :], strict=True):
                for k, array in zip(pack.leaves, pack.split(buffer), strict=True):
                    arrays[k] = array
            results = self._results(records, arrays)
            buffers = [joined([results[self.places[c]] for c in pack.outputs]) for pack in self.packs]
            return [results[k] for k in self.given] + buffers

        avals = [self._aval(k, leaves[k]) for k in self.singles]
        avals += [jax.ShapeDtypeStruct((p.size,), leaves[p.leaves[0]].aval.dtype) for p in self.packs]
        taken_over = [] if self.keeps else [*self.donated, *range(len(self.singles), len(avals))]
        types, specs = [kernel.type for kernel, *_ in records], output_specs(records, leaves)
        traced, quick = jax.jit(block, donate_argnums=taken_over).trace(*avals), light(types, specs, len(records))
        self._compile_first(traced, len(records), quick=quick, content=(types, specs, self.alive, taken_over))

    def _aval(self, leaf: int, spec: Spec) -> Any:
        return spec.aval

    def _results(self, records: Sequence[Record], arrays: Sequence[Any]) -> list[Any]:
        """The outputs, inside jit."""
        return one_by_one(records, arrays, self.alive)

    def run(self, arrays: list[Any], alive: tuple[int, ...]) -> list[Any]:
        """The outputs `alive`; the list must hold the only references to leaves that may be donated."""
        results = with_x64(self._run, arrays)
        return results if alive == self.alive else [results[self.places[code]] for code in alive]

    def _run(self, arrays: list[Any]) -> list[Any]:
        joins = [pack.join(arrays) for pack in self.packs]
        used = [pieces for _, pieces in joins]
        buffers = [buffer for buffer, _ in joins]
        singles = [*map(arrays.__getitem__, self.singles)]
        arrays.clear()
        for k in () if self.keeps else self.donated:
            if singles[k].__class__ is np.ndarray:  # of ops that ran one by one
                singles[k] = jax.device_put(singles[k], may_alias=False)
            elif sys.getrefcount(singles[k]) > 2:  # the list, and the call
                singles[k] = jax.numpy.array(taken(singles[k]), copy=True)
        if Piece in map(type, singles):
            singles = [*map(taken, singles)]
        found = self.call([*singles, *buffers])
        if not self.packs:
            return found
        results = found[: len(self.given)]
        for pack, buffer, pieces in zip(self.packs, found[len(self.given) :], used, strict=True):
            results += pack.pieces(buffer, pieces)
        return [*map(results.__getitem__, self._order)]
