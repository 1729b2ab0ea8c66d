"""Losses of the order of scores."""

import jax
import jax.numpy as jnp

from lowering.engine.checks import Demand
from lowering.ops import fitting
from lowering.ops.loss.pointwise import softplus
from lowering.ops.math.extrema import at_least
from lowering.registry import WISE, op
from lowering.values import Meta


@op(diff="left right", lod=None, rows=WISE)
def rank_loss(label, left, right):
    """Out = log(1 + exp(Left - Right)) - Label * (Left - Right), all [N, 1] or [N]; Out is shaped like Label."""
    o = (left.reshape(-1) - right.reshape(-1)).reshape(label.shape)
    return softplus(o) - label * o


@rank_loss.fits
def _(label, left, right):
    for name, var in (("Label", label), ("Left", left), ("Right", right)):
        fitting.rank(name, var, 1, 2)
        if len(var.shape) == 2:
            fitting.dim(name, var, 1, 1)


@rank_loss.grad
def _(label, left, right, d_out):
    o = left.reshape(-1) - right.reshape(-1)
    slope = d_out.reshape(-1) * (jax.nn.sigmoid(o) - label.reshape(-1))
    return slope.reshape(left.shape), -slope.reshape(right.shape)


@op(out="Activated~ Out", diff="x1 x2", slots={"x1": "X1", "x2": "X2"}, lod=None, rows=WISE)
def margin_rank_loss(x1, x2, label, *, margin: float = 0.0):
    """Out = max(0, margin - Label * (X1 - X2)); Activated is 1 where it is positive."""
    raw = margin - label * (x1 - x2)
    return (raw > 0).astype(x1.dtype), at_least(raw, 0)


@margin_rank_loss.fits
def _(x1, x2, label):
    fitting.alike("X1, X2 and Label", x1, x2, label)
    fitting.rank("Label", label, 2)
    fitting.dim("Label", label, 1, 1)


@margin_rank_loss.grad(rows=WISE)
def _(label, activated, d_out):
    slope = -d_out * activated * label
    return slope, -slope


def _others(x, label):
    """True off the label's column."""
    return label.reshape(*x.shape[:-1], 1) != jnp.arange(x.shape[-1], dtype=label.dtype)


@op(out="Y", diff="x", lod="x", rows=WISE)
def bpr_loss(x, label):
    """Y[..., 1] = mean over j other than the label of log(1 + exp(X[..., j] - X[..., label]))."""
    chosen = jnp.take_along_axis(x, label.reshape(*x.shape[:-1], 1), axis=-1)
    terms = jnp.where(_others(x, label), softplus(x - chosen), 0)
    return terms.sum(axis=-1, keepdims=True) / (x.shape[-1] - 1)


@bpr_loss.fits
def _(x, label):
    fitting.rank("Label", label, len(x.shape))
    fitting.dim("Label", label, -1, 1)


@bpr_loss.check
def _(x: Meta, label):
    return [Demand("label", label, 0, x.shape[-1])]


@bpr_loss.grad
def _(x, label, d_y):
    others = _others(x, label)
    chosen = jnp.take_along_axis(x, label.reshape(*x.shape[:-1], 1), axis=-1)
    slope = jnp.where(others, jax.nn.sigmoid(x - chosen), 0) * d_y.reshape(*x.shape[:-1], 1) / (x.shape[-1] - 1)
    return jnp.where(others, slope, -slope.sum(axis=-1, keepdims=True))
