"""Scaling a tensor down to a norm: gradient clipping."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp

from lowering.errors import Misfit
from lowering.ops.math.reduction import masked
from lowering.ops.sparse import distinct_rows
from lowering.ragged.rows import per_row
from lowering.registry import MASKED, Value, op
from lowering.values import LoDArray, SelectedRows


@op(grad=None, rows=MASKED)
def clip_by_norm(x: Value, *, max_norm: float):
    """Out = X * max_norm / norm if norm = sqrt(sum X^2) exceeds ``max_norm``, else X.

    Duplicate rows of SelectedRows are summed before the norm is computed.
    """
    if isinstance(x, SelectedRows):
        merged = distinct_rows([x])
        return replace(merged, values=_scaled(merged.values, merged.values, max_norm))
    if isinstance(x, LoDArray):
        return per_row(x, _scaled(x.data, masked(x, (0,), 0), max_norm))
    return _scaled(x, x, max_norm)


@clip_by_norm.fits
def _(*, max_norm):
    if max_norm <= 0:
        raise Misfit(f"max_norm must be above 0, received {max_norm}")


def _scaled(x, counted, max_norm: float):
    norm = jnp.sqrt(jnp.sum(jnp.square(counted)))
    under = norm <= max_norm  # not so for NaN, which has to show in every element
    return x * jnp.where(under, 1, max_norm / jnp.where(under, 1, norm)).astype(x.dtype)
