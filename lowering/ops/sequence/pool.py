"""Pooling and softmax over the rows of each sequence."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from lowering.engine.pinned import pinned
from lowering.ops.sequence import shapes
from lowering.ragged.rows import (
    bounds,
    expand_dims,
    grad_spec,
    lengths,
    lowest,
    offsets,
    per_row,
    per_sequence,
    row_gradient,
    row_numbers,
    segment_max,
    segment_sum,
    segments,
    take,
    without_lod,
)
from lowering.registry import MASKED, op
from lowering.symbols import number
from lowering.values import Array, LoDArray, Meta


def _weights(pooltype: str, off: Array, dtype: np.dtype) -> Array | None:
    """[n]: what the sum over a sequence is multiplied by; None for a plain sum."""
    count = jnp.maximum(lengths(off), 1).astype(dtype)
    if pooltype == "AVERAGE":
        return 1 / count
    return 1 / jnp.sqrt(count) if pooltype == "SQRT" else None


def pool_rows(x: LoDArray, pooltype: str, pad_value: float) -> tuple[Array, Array | None]:
    """([n, ...], index of the maximum or None): one row for each sequence of the finest level."""
    off = offsets(x)
    index = None
    if pooltype == "MAX":
        out, index = _max_pool(x.data, off)
    elif pooltype in ("FIRST", "LAST"):
        out = take(x.data, off[:-1] if pooltype == "FIRST" else off[1:] - 1)
    elif pooltype in ("SUM", "AVERAGE", "SQRT"):
        seg = segments(off, row_numbers(x.capacity))
        out = segment_sum(x.data, seg, off.shape[0] - 1)
        weights = _weights(pooltype, off, x.dtype)
        out = out if weights is None else out * expand_dims(weights, out.ndim)
    else:
        raise ValueError(f"pooltype {pooltype!r} is unknown; expected SUM, AVERAGE, SQRT, MAX, FIRST or LAST")
    empty = expand_dims(lengths(off) == 0, out.ndim)
    return jnp.where(empty, jnp.asarray(pad_value, out.dtype), out), index


def _max_pool(x: Array, off: Array) -> tuple[Array, Array]:
    x, n = pinned(x), off.shape[0] - 1
    rows = row_numbers(x.shape[0])
    seg = segments(off, rows)
    out = segment_max(x, seg, n, lowest(x.dtype))
    # The first row that holds the maximum: the largest of the negated row numbers.
    hit = x == take(out, seg)
    none = number(-x.shape[0])
    candidates = jnp.where(hit, -expand_dims(rows, x.ndim), none)
    first = -segment_max(candidates, seg, n, none)
    return out, jnp.where(expand_dims(lengths(off) == 0, x.ndim), np.int32(-1), first)


@op(out="Out MaxIndex~", rows=MASKED, lod=None, infer=shapes.sequence_pool)
def sequence_pool(x: LoDArray, *, is_test: bool = False, pooltype: str = "AVERAGE", pad_value: float = 0.0):
    """Out[i] = pool(X rows of sequence i): SUM, AVERAGE, SQRT (sum / sqrt(length)), MAX, FIRST or LAST.

    An empty sequence yields ``pad_value``. MAX also yields the row of each maximum (-1 for an empty sequence).
    The finest LoD level is removed.
    """
    pooltype = pooltype.upper()
    out, index = pool_rows(x, pooltype, pad_value)
    if index is None or is_test:
        return per_sequence(x, out), None
    return per_sequence(x, out), without_lod(per_sequence(x, index))


@sequence_pool.grad
def _(x: Meta, d_out, max_index=None, *, pooltype="AVERAGE"):
    off = offsets(x)
    rows = row_numbers(x.capacity)
    seg, start, end = bounds(off, x.capacity)
    pooltype = pooltype.upper()
    weights = _weights(pooltype, off, d_out.dtype)
    if weights is not None:
        d_out = d_out * expand_dims(weights, d_out.ndim)
    grad = take(d_out, seg)
    if pooltype == "MAX":
        grad = jnp.where(take(max_index, seg) == expand_dims(rows, grad.ndim), grad, 0)
    elif pooltype in ("FIRST", "LAST"):
        chosen = start if pooltype == "FIRST" else end - 1
        grad = jnp.where(expand_dims(rows == chosen, grad.ndim), grad, 0)
    return row_gradient(x, grad.reshape(x.shape))


@sequence_pool.grad_maker
def _(g):
    index = " MaxIndex" if str(g.attrs.get("pooltype", "AVERAGE")).upper() == "MAX" else ""
    return grad_spec(g, "X Out@GRAD" + index, "X")


@op(vendor="use_cudnn", rows=MASKED)
def sequence_softmax(x: LoDArray, *, data_format: str = "AnyLayout"):
    """Out[r] = exp(X[r]) / sum over the rows r' of the same sequence of exp(X[r'])."""
    off = offsets(x)
    n = off.shape[0] - 1
    seg = segments(off, row_numbers(x.capacity))
    flat = x.data.reshape(x.capacity)
    inside = seg < n  # padding rows belong to no sequence
    peak = jnp.where(inside, take(segment_max(flat, seg, n, lowest(x.dtype)), seg), flat)
    exps = jnp.exp(flat - peak)
    out = exps / jnp.where(inside, take(segment_sum(exps, seg, n), seg), 1)
    return per_row(x, out.reshape(x.shape))


@sequence_softmax.grad
def _(x: Meta, out, d_out):
    off = offsets(x)
    seg = segments(off, row_numbers(x.capacity))
    inner = segment_sum(out * d_out, seg, off.shape[0] - 1)
    return row_gradient(x, out * (d_out - take(inner, seg)))
