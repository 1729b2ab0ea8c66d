"""Conversion between variable-length rows and padded batches."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from lowering.dtypes import to_numpy
from lowering.engine.checks import Demand
from lowering.ops.sequence import shapes
from lowering.ops.shared import ints
from lowering.ragged.rows import (
    bounds,
    expand_dims,
    lengths,
    longest,
    new_rows,
    offsets,
    offsets_of,
    per_sequence,
    row_gradient,
    row_numbers,
    static_longest,
    take,
)
from lowering.registry import MASKED, WISE, Sizes, op
from lowering.sizes.counts import with_rows
from lowering.symbols import number
from lowering.values import Array, Axis, LoDArray, Meta, Wide, concrete, is_concrete


def padded_rows(x: Array, off: Array, width: int, fill: Array) -> Array:
    """[n, width, ...]: the rows of each sequence side by side, ``fill`` past its end."""
    steps = row_numbers(width)
    rows = off[:-1, None] + steps[None, :]
    inside = steps[None, :] < lengths(off)[:, None]
    return jnp.where(expand_dims(inside, x.ndim + 1), take(x, rows), fill)


def unpadded_rows(x: Array, off: Array, capacity: int) -> Array:
    """Rows of the sequences of a padded batch [n, width, ...]."""
    seg, start, _ = bounds(off, capacity)
    steps = row_numbers(capacity) - start
    flat = x.reshape((-1,) + x.shape[2:])
    return take(flat, jnp.minimum(seg, x.shape[0] - 1) * number(x.shape[1]) + steps)


def _may_be_wide(x: LoDArray, ctx) -> bool:
    """Whether the batch may be wider than it need be, and its sequences are all there."""
    known = x.tight or is_concrete(offsets(x)) or not x.longest
    return not (known or ctx.may_widen) and len(x.lod) == 1 and x.nseq is None


def _longest(x: LoDArray, ctx) -> int:
    bounded = x.longest and ctx.may_widen and not is_concrete(offsets(x))
    return x.longest[-1] if bounded else static_longest(x, "the longest sequence")


@op(out="Out Length", rows=MASKED, lod=None, diff="x", infer=shapes.sequence_pad)
def sequence_pad(x: LoDArray, pad_value, *, padded_length: int = -1, ctx):
    """Out[i, t] = row t of sequence i of X, ``PadValue`` beyond its end; Length[i] is the length.

    ``padded_length`` -1 pads to the longest sequence, so the shape changes from batch to batch; or to an upper bound of
    it, if the program removes the excess afterwards.
    """
    off = offsets(x)
    label = ctx.label(off) if padded_length < 0 and _may_be_wide(x, ctx) else None
    if label is not None:
        width = x.longest[-1]
    else:
        width = padded_length if padded_length >= 0 else _longest(x, ctx)
    fill = pad_value.reshape(()) if pad_value.size == 1 else pad_value
    out = padded_rows(x.data, off, width, fill.astype(x.dtype))
    count = lengths(off).astype(np.int64)
    rows = Wide(out, (longest(off),), (Axis(1, width, label),)) if label is not None else per_sequence(x, out)
    return rows, per_sequence(x, jnp.asarray(count))


@sequence_pad.check
def _(x: LoDArray, *, padded_length):
    return [Demand("x", lengths(offsets(x)), 0, padded_length + 1)] if padded_length >= 0 else []


@sequence_pad.grad
def _(x: Meta, d_out):
    return row_gradient(x, unpadded_rows(d_out, offsets(x), x.capacity))


@op(rows=MASKED, lod=None, diff="x", infer=shapes.sequence_unpad)
def sequence_unpad(x: LoDArray, length):
    """The first Length[i] rows of X[i], as sequence i of Out."""
    off = offsets_of(length.reshape(-1).astype(np.int32))
    batch, width = x.shape[:2]
    data = x.data if x.data.ndim > 2 else x.data[:, :, None]
    out = unpadded_rows(data, off, batch * width)
    return new_rows(out, (off,), LoDArray(out, nseq=x.nrows), longest=(width,))


@sequence_unpad.grad
def _(x: Meta, d_out: LoDArray):
    zero = jnp.zeros((), d_out.dtype)
    return padded_rows(d_out.data, offsets(d_out), x.shape[1], zero).reshape(x.shape)


@op(out="Y", rows=WISE, lod=None, diff="", infer=shapes.sequence_mask)
def sequence_mask(x, max_len_tensor: Sizes = None, *, maxlen: int = -1, out_dtype: int):
    """Y[..., j] = 1 where j < X[...], else 0, for j below ``maxlen`` (default the largest X)."""
    if max_len_tensor is not None:
        (maxlen,) = ints(max_len_tensor, "MaxLenTensor of sequence_mask")
    elif maxlen <= 0:
        maxlen = int(concrete(x, "the longest length of sequence_mask").max())
    return with_rows((row_numbers(maxlen) < x[..., None]).astype(to_numpy(out_dtype)), [*x.shape, maxlen])
