"""Ragged values of different capacities that meet in a row-wise op."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from lowering.engine.run import Run
from lowering.errors import NeedsExact
from lowering.program import GRAD, OpView
from lowering.registry import OpDef, Wise
from lowering.sizes.counts import SlotValues, each, flat
from lowering.values import Array, LoDArray, is_padded


def aligned(definition: OpDef, op: OpView, values: SlotValues, run: Run) -> SlotValues:
    """``values`` with the padded ones cut to the smallest capacity among them, for an op that works row by row.

    The same number of valid rows fits into each. Whether they do have the same number, the run checks: if not, the
    executor runs the op on unpadded rows, which fail as they would without padding.
    """
    padded = [v for v in flat(values) if is_padded(v)]
    counts, capacities = {id(v.nrows) for v in padded}, {v.capacity for v in padded}
    if max(len(counts), len(capacities)) < 2 or not _row_wise(definition, op, padded[0]):
        return values
    run.fed.expect_equal(op, padded)
    if len(capacities) == 1:
        return values
    if len(counts) > 1:
        rows = jnp.stack([jnp.asarray(v.nrows) for v in padded])
        run.expect_equal_rows(op, rows.min() == rows.max())
    capacity = min(capacities)
    return each(values, lambda v: _cut(v, capacity))


def paired(run: Run, op: OpView, *values: LoDArray) -> list[LoDArray]:
    """Values of an op that pairs their rows, cut to the smallest capacity; NeedsExact if some are not padded.

    That they have equally many rows is checked, as in ``aligned``.
    """
    if not any(v.padded for v in values):
        return list(values)
    if not all(v.padded for v in values):
        raise NeedsExact(f"op {op.type} pairs padded rows with exact ones")
    if len({id(v.nrows) for v in values}) > 1 and not run.fed.expect_equal(op, values):
        rows = jnp.stack([jnp.asarray(v.nrows) for v in values])
        run.expect_equal_rows(op, rows.min() == rows.max())
    capacity = min(v.capacity for v in values)
    return [_cut(v, capacity) for v in values]


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
