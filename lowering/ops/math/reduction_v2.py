"""Reductions and scans introduced in Paddle 2."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from lowering.ops.math.reduction import extremal, extremum, highest, lowest, reduced_axes, reduction, spread, to_input
from lowering.registry import op
from lowering.values import LoDArray, Meta


@reduction()
def reduce_amax(x, axes, keep_dim, out_dtype):
    """Out = maximum of X over ``dim``; equal elements share the gradient evenly."""
    return extremum(jnp.max, lowest, x, axes, keep_dim, out_dtype)


@reduction()
def reduce_amin(x, axes, keep_dim, out_dtype):
    """Out = minimum of X over ``dim``; equal elements share the gradient evenly."""
    return extremum(jnp.min, highest, x, axes, keep_dim, out_dtype)


def _shared_grad(fn, neutral, x: LoDArray, d_out: LoDArray, dim, reduce_all):
    axes = reduced_axes(x.data.ndim, dim, reduce_all)
    hit = extremal(fn, neutral, x, axes).astype(x.dtype)
    return to_input(hit * spread(d_out, x, axes) / jnp.sum(hit, axis=axes, keepdims=True), x, axes)


@reduce_amax.grad
def _(x: LoDArray, out: Meta, d_out: LoDArray, *, dim, reduce_all):
    return _shared_grad(jnp.max, lowest, x, d_out, dim, reduce_all)


@reduce_amin.grad
def _(x: LoDArray, out: Meta, d_out: LoDArray, *, dim, reduce_all):
    return _shared_grad(jnp.min, highest, x, d_out, dim, reduce_all)


@op(grad="vjp", reads="x", lod=None)
def logsumexp(x, *, axis: list[int] = (0,), keepdim: bool = False, reduce_all: bool = False):
    """Out = log(sum(exp(X))) over ``axis``."""
    return jax.nn.logsumexp(x, None if reduce_all or not axis else tuple(axis), keepdims=keepdim)


@op()
def log_softmax(x, *, axis: int = -1):
    """Out = X - log(sum(exp(X))) along ``axis``."""
    return jax.nn.log_softmax(x, axis)


@log_softmax.grad
def _(out, d_out, *, axis):
    return d_out - jnp.exp(out) * jnp.sum(d_out, axis=axis, keepdims=True)


@op(grad="vjp", reads="x")
def cumprod(x, *, dim: int):
    """Out = cumulative products of X along ``dim``."""
    return jnp.cumprod(x, axis=dim, dtype=x.dtype)


def _one_after(y, axis: int):
    """Y moved on by one place, a -inf first."""
    first = jnp.full_like(jax.lax.slice_in_dim(y, 0, 1, axis=axis), -np.inf)
    return jnp.concatenate([first, jax.lax.slice_in_dim(y, 0, y.shape[axis] - 1, axis=axis)], axis)


@op(grad="vjp", reads="x")
def logcumsumexp(x, *, axis: int = -1, flatten: bool = False, exclusive: bool = False, reverse: bool = False):
    """Out = cumulative log(sum(exp(X))) along ``axis`` (flattened, exclusive or reversed on request)."""
    x, along = (x.reshape(-1), 0) if flatten else (x, axis % x.ndim)
    out = jax.lax.cumlogsumexp(jnp.flip(x, along) if reverse else x, axis=along)
    out = _one_after(out, along) if exclusive else out
    return jnp.flip(out, along) if reverse else out


@op(lod=None, grad="vjp", reads="x")
def identity_loss(x, *, reduction: int = 2):
    """Out = the sum of X (``reduction`` 0), its mean (1), or X itself (2)."""
    return (jnp.sum, jnp.mean, lambda value: value)[reduction](x)
