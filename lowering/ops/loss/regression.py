"""Losses of the difference between a prediction and a value, with explicit gradients."""

import math

import jax.numpy as jnp

from lowering.ops import fitting
from lowering.program import VarInfo
from lowering.registry import WISE, Wise, op
from lowering.values import Meta


@op(out="Residual~ Out", lod={"Out": "x"}, rows=WISE)
def huber_loss(x, y, *, delta: float):
    """Out = 0.5 r^2 where |r| <= delta, else delta * (|r| - 0.5 delta); Residual r = Y - X."""
    fitting.alike("X and Y", x, y)  # again: a feed may tell what a declaration left open
    r = y - x
    size = jnp.abs(r)
    return r, jnp.where(size <= delta, 0.5 * r * r, delta * (size - 0.5 * delta))


@huber_loss.fits
def _(x, y):
    fitting.alike("X and Y", x, y)


@huber_loss.grad(rows=Wise("residual d_out"))
def _(residual, d_out, *, delta):
    slope = jnp.where(jnp.abs(residual) <= delta, residual, jnp.where(residual > 0, delta, -delta)) * d_out
    return -slope, slope


@op(out="IntermediateVal~ Out", diff="x", lod=None, rows=WISE)
def modified_huber_loss(x, y):
    """v = X * (2Y - 1); Out = -4 v below -1, (1 - v)^2 below 1, else 0."""
    fitting.alike("X and Y", x, y)
    v = x * (2 * y - 1)
    return v, jnp.where(v < -1, -4 * v, jnp.where(v < 1, jnp.square(1 - v), 0))


@modified_huber_loss.fits
def _(x, y):
    fitting.alike("X and Y", x, y)


@modified_huber_loss.grad(rows=WISE)
def _(y, intermediate_val, d_out):
    v, sign = intermediate_val, 2 * y - 1
    slope = jnp.where(v < -1, -4 * sign, jnp.where(v < 1, -2 * (1 - v) * sign, 0))
    return slope * d_out


def _rows_sum(v):
    return v.reshape(v.shape[0], -1).sum(axis=1, keepdims=True)


def _infer_smooth_l1(op_view, var_of):
    """From X alone, as in Fluid: Y may be declared with an unknown number of rows."""
    x = var_of(op_view.inputs["X"][0])
    if x is None:
        return {}
    found = {n: VarInfo(tuple(x.shape), x.dtype, 0) for n in op_view.outputs["Diff"]}
    return found | {n: VarInfo((x.shape[0], 1), x.dtype, 0) for n in op_view.outputs["Out"]}


@op(out="Diff~ Out", diff="x y", lod=None, rows=WISE, infer=_infer_smooth_l1)
def smooth_l1_loss(x, y, inside_weight=None, outside_weight=None, *, sigma: float = 1.0):
    """Out[n] = sum over a row of OutsideWeight * s(InsideWeight * (X - Y)).

    s(d) = 0.5 sigma^2 d^2 where |d| < 1 / sigma^2, else |d| - 0.5 / sigma^2. Weights come in pairs: as in Fluid, an
    OutsideWeight alone is not looked at.
    """
    diff = (x - y) if inside_weight is None else (x - y) * inside_weight
    size = jnp.abs(diff)
    s2, bend = _bend(sigma)
    value = jnp.where(size < bend, 0.5 * s2 * diff * diff, size - 0.5 * bend)
    value = value if inside_weight is None or outside_weight is None else value * outside_weight
    return diff, _rows_sum(value)


def _bend(sigma: float) -> tuple[float, float]:
    """sigma^2, and where the parabola ends: nowhere if sigma is 0."""
    s2 = sigma * sigma
    return s2, 1 / s2 if s2 else math.inf


@smooth_l1_loss.fits
def _(x, y):
    fitting.alike("X and Y", x, y)


@smooth_l1_loss.grad
def _(diff, d_out, inside_weight=None, outside_weight=None, *, sigma):
    s2, bend = _bend(sigma)
    slope = jnp.where(jnp.abs(diff) < bend, s2 * diff, jnp.nan_to_num(jnp.sign(diff)))  # that of NaN is 0
    for weight in () if inside_weight is None else (inside_weight, outside_weight):
        slope = slope if weight is None else slope * weight
    dx = slope * d_out.reshape(d_out.shape[0], *[1] * (diff.ndim - 1))
    return dx, -dx


@op(out="sub_result~ Out", slots={"sub_result": "sub_result"}, lod={"Out": "x"}, rows=WISE)
def squared_l2_distance(x, y):
    """Out[n, 1] = sum((X[n] - Y[n])^2), Y having one row for all or as many as X; sub_result = X - Y."""
    diff = x.reshape(x.shape[0], -1) - y.reshape(y.shape[0], -1)
    return diff, jnp.square(diff).sum(axis=1, keepdims=True)


@squared_l2_distance.fits
def _(x, y):
    fitting.rank("Y", y, len(x.shape))
    fitting.dim("Y", y, 0, 1, x.shape[0])
    if min(*x.shape[1:], *y.shape[1:]) >= 0:
        fitting.same("the sizes of X's and Y's rows", [math.prod(x.shape[1:])], [math.prod(y.shape[1:])])


@squared_l2_distance.grad
def _(x: Meta, y: Meta, sub_result, d_out):
    dx = 2 * d_out.reshape(-1, 1) * sub_result
    dy = -dx.sum(axis=0, keepdims=True) if y.shape[0] == 1 else -dx
    return dx.reshape(x.shape), dy.reshape(y.shape)
