"""Sequence ops fused with a convolution, an embedding, a projection or a concatenation."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from lowering.engine.checks import Demand
from lowering.ops.fused import shapes
from lowering.ops.math.extrema import at_least
from lowering.ops.recurrent.activations import activation
from lowering.ops.sequence.conv import check_context, context_columns
from lowering.ops.sequence.pool import pool_rows
from lowering.ragged.rows import (
    expand_dims,
    offsets,
    per_row,
    per_sequence,
    row_numbers,
    segment_sum,
    segments,
    sequence_count,
    take,
)
from lowering.registry import MASKED, Long, op
from lowering.values import Array, LoDArray, Meta, SelectedRows, fill_padding


def _unit_lod(x: LoDArray, data: Array) -> LoDArray:
    """Rows as sequences of one row each, as the fused pooling ops leave them."""
    off, count = row_numbers(data.shape[0] + 1), sequence_count(x)
    if count is not None:
        off = jnp.minimum(off, count)
    return LoDArray(data, (off,), count, count)


@op(out="Out ColMat~", rows=MASKED, diff="", infer=shapes.fusion_seqconv_eltadd_relu)
def fusion_seqconv_eltadd_relu(
    x: LoDArray,
    filter,
    bias,
    *,
    contextLength: int,
    contextStart: int = 0,
    contextStride: int = 1,
):
    """Out = relu(sequence_conv(X, Filter) + Bias); ColMat holds the contexts."""
    check_context(contextLength, contextStride)
    columns = context_columns(x.data, offsets(x), contextStart, contextLength)
    out = at_least(jnp.dot(columns, filter) + bias.reshape(1, -1), 0)
    return per_row(x, out), LoDArray(fill_padding(columns, x.nrows, backward=False), (), x.nrows)


@op(
    out="Out FCOut~",
    slots={"fc_weight": "FCWeight", "fc_bias": "FCBias", "fc_out": "FCOut"},
    rows=MASKED,
    diff="",
    infer=shapes.fusion_seqexpand_concat_fc,
)
def fusion_seqexpand_concat_fc(x: list[LoDArray], fc_weight, fc_bias=None, *, fc_activation: str = "identity"):
    """Out = act(concat(X[0], X[1] ... expanded to the sequences of X[0]) FCWeight + FCBias)."""
    first = x[0]
    off = offsets(first)
    split = first.shape[1]
    per_seq = jnp.dot(jnp.concatenate([v.data for v in x[1:]], axis=1), fc_weight[split:])
    seg = jnp.minimum(segments(off, row_numbers(first.capacity)), off.shape[0] - 2)
    out = jnp.dot(first.data, fc_weight[:split]) + take(per_seq, seg)
    out = out if fc_bias is None else out + fc_bias.reshape(1, -1)
    return per_row(first, activation(fc_activation)(out)), per_seq


@op(rows=MASKED, diff="", lod=None, infer=shapes.fusion_seqpool_concat)
def fusion_seqpool_concat(x: list[LoDArray], *, pooltype: str = "SUM", axis: int = 1):
    """Out = the pooled sequences of every X, concatenated (SUM, AVERAGE or SQRT)."""
    pooled = [pool_rows(v, pooltype, 0.0)[0] for v in x]
    return _unit_lod(x[0], jnp.concatenate(pooled, axis=axis))


@op(slots={"cvm": "CVM"}, rows=MASKED, diff="", lod=None, infer=shapes.fusion_seqpool_cvm_concat)
def fusion_seqpool_cvm_concat(x: list[LoDArray], cvm, *, pooltype: str = "SUM", use_cvm: bool = True, axis: int = 1):
    """fusion_seqpool_concat whose parts go through cvm: the first two columns, show and click, become
    log(show + 1) and log(click + 1) - log(show + 1), or go away without ``use_cvm``."""
    parts = []
    for value in x:
        pooled = pool_rows(value, pooltype, 0.0)[0]
        rest = pooled[:, 2:]
        if use_cvm:
            show, click = jnp.log(pooled[:, :1] + 1), jnp.log(pooled[:, 1:2] + 1)
            rest = jnp.concatenate([show, click - show, rest], axis=1)
        parts.append(rest)
    return _unit_lod(x[0], jnp.concatenate(parts, axis=axis))


@op(
    vendor={"grad_inplace": False, "@ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@": True},
    rows=MASKED,
    diff="w",
    lod=None,
    infer=shapes.fused_embedding_seq_pool,
)
def fused_embedding_seq_pool(
    w, ids: LoDArray, *, combiner: str = "sum", padding_idx: Long = -1, is_sparse: bool = False
):
    """Out[i] = sum over the rows of sequence i of the concatenated embeddings W[Ids]; ``padding_idx`` counts as 0."""
    flat = ids.data.reshape(ids.capacity, math.prod(ids.shape[1:])).astype(jnp.int32)
    rows = take(w, flat)
    if padding_idx >= 0:
        rows = jnp.where(expand_dims(flat == padding_idx, rows.ndim), 0, rows)
    off = offsets(ids)
    seg = segments(off, row_numbers(ids.capacity))
    return per_sequence(ids, segment_sum(rows.reshape(ids.capacity, flat.shape[1] * w.shape[1]), seg, off.shape[0] - 1))


@fused_embedding_seq_pool.check
def _(w: Meta, ids, *, padding_idx):
    return [Demand("ids", ids, 0, w.shape[0], None if padding_idx == -1 else padding_idx)]


@fused_embedding_seq_pool.grad
def _(w, ids: LoDArray, d_out, *, padding_idx: Long = -1, is_sparse=False):
    """W@GRAD; a sparse one has rows of ``padding_idx`` too, as in Fluid."""
    flat = ids.data.reshape(ids.capacity, math.prod(ids.shape[1:])).astype(jnp.int32)
    off = offsets(ids)
    seg = segments(off, row_numbers(ids.capacity))
    values = take(d_out, seg).reshape(*flat.shape, w.shape[1])
    dead = (seg >= off.shape[0] - 1)[:, None]
    if padding_idx >= 0 and not is_sparse:
        dead = dead | (flat == padding_idx)
    values = jnp.where(expand_dims(jnp.broadcast_to(dead, flat.shape), 3), 0, values)
    values, flat = values.reshape(-1, w.shape[1]), flat.reshape(-1)
    if not is_sparse:
        return jnp.zeros_like(w).at[flat].add(values)
    count = ids.rows() * np.int32(math.prod(ids.shape[1:])) if ids.padded else None
    return SelectedRows(flat.astype(jnp.int64), values, w.shape[0], count)
