"""Operators for recommendation models: cvm, rank_attention; and fsp, the Gram matrix used in distillation."""

import jax.numpy as jnp

from lowering.engine.shapes.infer_rules import by_rule
from lowering.ops import fitting
from lowering.registry import WISE, op
from lowering.values import Meta


@op(out="Y", slots={"cvm_": "CVM"}, diff="x", lod="x")
def cvm(x, cvm_: Meta, *, use_cvm: bool = True):
    """Y = X with its first columns (show, click) as log(show + 1), log(click + 1) - log(show + 1); or without them."""
    if not use_cvm:
        return x[:, 2:]
    show = jnp.log(x[:, :1] + 1)
    return jnp.concatenate([show, jnp.log(x[:, 1:2] + 1) - show, x[:, 2:]], axis=1)


@cvm.fits
def _(x):
    fitting.rank("X", x, 2)


@cvm.grad(slots={"cvm_": "CVM"}, rows=None)
def _(x: Meta, cvm_, d_y, *, use_cvm):
    """The first two columns get CVM's values (of the row, or of the row's sequence), not derivatives, as in Fluid."""
    rows = jnp.arange(x.shape[0])
    if x.lod:
        rows = (rows[:, None] >= x.lod[0][1:]).sum(axis=1)
    return jnp.concatenate([jnp.asarray(cvm_)[rows].astype(d_y.dtype), d_y[:, 2:] if use_cvm else d_y], axis=1)


def _rank_blocks(rank_offset, max_rank, x, param):
    """(X of each rank's peer [N, K, D], index of the parameter block [N, K], whether both ranks exist)."""
    own = rank_offset[:, :1] - 1
    peer, index = rank_offset[:, 1::2] - 1, rank_offset[:, 2::2]
    valid = (own >= 0) & (peer >= 0)
    rows = jnp.where(valid[..., None], jnp.asarray(x)[jnp.where(valid, index, 0)], 0)
    return rows, jnp.where(valid, own * max_rank + peer, 0), valid


@op(diff="rank_param")
def rank_attention(x, rank_offset, rank_param, *, MaxRank: int = 3):
    """Out[n] = sum over ranks k of X[peer k of n] RankParam[block (rank of n, rank k)].

    RankOffset [N, 1 + 2 MaxRank] holds the row's rank (from 1), then (rank, row) of each peer; 0 means none.
    """
    rows, block, _ = _rank_blocks(rank_offset, MaxRank, x, rank_param)
    blocks = jnp.asarray(rank_param).reshape(MaxRank * MaxRank, x.shape[1], -1)
    return jnp.einsum("nkd,nkdc->nc", rows, blocks[block])


@rank_attention.grad
def _(x, rank_offset, rank_param: Meta, d_out, *, MaxRank):
    rows, block, _ = _rank_blocks(rank_offset, MaxRank, x, rank_param)
    outer = jnp.einsum("nkd,nc->nkdc", rows, d_out)
    blocks = jnp.zeros((MaxRank * MaxRank, x.shape[1], d_out.shape[1]), d_out.dtype)
    return blocks.at[block].add(outer).reshape(rank_param.shape)


def _channels_of_both(shapes, attr):
    x, y = shapes["X"], shapes["Y"]
    fitting.same("the images and pixels of X and Y", (x[0], *x[2:]), (y[0], *y[2:]))
    return {"Out": (*x[:2], y[1])}


@op(rows=WISE, infer=by_rule(_channels_of_both))
def fsp(x, y):
    """Out[n, i, j] = mean over pixels of X[n, i] * Y[n, j]."""
    return jnp.einsum("nihw,njhw->nij", x, y) / (x.shape[2] * x.shape[3])


@fsp.grad(rows=None)
def _(x, y, d_out):
    scaled = d_out / (x.shape[2] * x.shape[3])
    return jnp.einsum("nij,njhw->nihw", scaled, y), jnp.einsum("nij,nihw->njhw", scaled, x)
