"""Ragged values of different capacities that meet in a row-wise op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from lowering.engine.counts import SlotValues, each, flat
from lowering.errors import NeedsExact
from lowering.program import GRAD, OpView
from lowering.registry import OpDef, Wise
from lowering.values import Array, LoDArray, is_concrete, is_padded

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


class FedRows:
    """The row counts that a trace was given, and which of them must be equal because rows are paired.

    Attributes:
        pairs: positions among the inputs of the trace, and the error to raise if their row counts differ.
    """

    def __init__(self, inputs: Sequence[Any] = ()):
        self._known = {id(v.nrows): (at, v.nrows) for at, v in enumerate(inputs) if is_padded(v)}
        self.pairs: dict[tuple[int, int], NeedsExact] = {}

    def expect_equal(self, op: OpView, values: Sequence[LoDArray]) -> None:
        """Record that ``op`` pairs the rows of these values."""
        at = sorted({self._known[id(v.nrows)][0] for v in values if id(v.nrows) in self._known})
        for pair in pairwise(at):
            self.pairs.setdefault(pair, NeedsExact(UNEVEN).asked_by(op))


def check_pairs(pairs: Mapping[tuple[int, int], NeedsExact], inputs: Sequence[Any]) -> None:
    """Raise NeedsExact if inputs whose rows are paired have different numbers of rows, as far as the host knows."""
    for (a, b), need in pairs.items():
        counts = [v.nrows for v in (inputs[a], inputs[b]) if is_padded(v) and is_concrete(v.nrows)]
        if len(counts) == 2 and counts[0] != counts[1]:
            raise need


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
