"""Ragged values that meet in a row-wise op with unequal room for padding."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from .counts import SlotValues, each, flat
from .program import GRAD, OpView
from .registry import OpDef
from .values import Array, LoDArray, is_padded

if TYPE_CHECKING:
    from .block import Runner


def aligned(definition: OpDef, op: OpView, values: SlotValues, runner: Runner) -> SlotValues:
    """``values`` with the padded ones cut to the least capacity among them, for an op that works row by row.

    Equally many valid rows fit into each of them. That they are equally many, the run tells: where they are not, the
    executor runs the op on exact rows, which fail as they would without padding.
    """
    padded = [v for v in flat(values) if is_padded(v)]
    if len({v.capacity for v in padded}) < 2 or not _row_wise(definition, op, padded[0]):
        return values
    rows = [jnp.asarray(v.nrows) for v in padded]
    runner.expect_equal_rows(op, jnp.stack(rows).min() == jnp.stack(rows).max())
    capacity = min(v.capacity for v in padded)
    return each(values, lambda v: _cut(v, capacity))


def regrown(values: SlotValues, results: SlotValues) -> SlotValues:
    """Gradients with the capacity that their forward values had before they were cut; the added rows are zero."""
    for slot, result in results.items():
        forward = values.get(slot.removesuffix(GRAD)) if slot.endswith(GRAD) else None
        if isinstance(forward, LoDArray) and is_padded(result) and result.capacity < forward.capacity:
            results = {**results, slot: result.with_data(_grown(result.data, forward.capacity))}
    return results


def _row_wise(definition: OpDef, op: OpView, value: LoDArray) -> bool:
    return (definition.rows_rule(op.attrs, value.data.ndim) or "").startswith("wise")


def _cut(value: Any, capacity: int) -> Any:
    return replace(value, data=value.data[:capacity]) if is_padded(value) else value


def _grown(data: Array, capacity: int) -> Array:
    return jnp.concatenate([data, jnp.zeros((capacity - data.shape[0], *data.shape[1:]), data.dtype)])
