"""Binary operators with Fluid's axis broadcasting, their gradients and second gradients."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from lowering.engine.checks import nonzero
from lowering.ops.math.broadcast import infer_broadcast, placed_pair
from lowering.ops.math.rounding import product
from lowering.program import PADDLE_2, PADDLE_2_5
from lowering.registry import WISE, Value, op
from lowering.values import Meta, SelectedRows, data_of

VENDOR = "use_mkldnn x_data_format y_data_format"


def aligned(x, y, axis: int):
    """X and Y reshaped so that NumPy broadcasting gives Fluid's result."""
    if x.shape == y.shape:
        return x, y
    sx, sy = placed_pair(x.shape, y.shape, axis)
    if len(sx) != len(sy):
        raise ValueError(
            f"no dims of the larger operand lie where the other begins; expected axis {axis} plus the smaller rank to"
            f" be at most the larger rank, received X {list(x.shape)}, Y {list(y.shape)}; set axis"
        )
    return x.reshape(sx), y.reshape(sy)


def unbroadcast(grad, view: tuple[int, ...], shape: tuple[int, ...]):
    """Sum ``grad`` over the axes that broadcasting ``view`` repeated; the result has ``shape``."""
    if grad.shape == tuple(shape):
        return grad
    axes = tuple(i for i, (g, v) in enumerate(zip(grad.shape, view, strict=True)) if v == 1 and g != 1)
    return (jnp.sum(grad, axis=axes) if axes else grad).reshape(shape)


def _both(x, y, axis, gx, gy):
    """(gx, gy) summed to the shapes of X and Y."""
    sx, sy = placed_pair(x.shape, y.shape, axis)
    return unbroadcast(gx, sx, x.shape), unbroadcast(gy, sy, y.shape)


def _both_typed(x, y, axis, gx, gy):
    """(gx, gy) as ``_both`` gives them; what integers get is cut to integers element by element, as in kernels."""
    cut = (jnp.trunc(g).astype(v.dtype) if v.dtype.kind in "iu" else g for g, v in ((gx, x), (gy, y)))
    return _both(x, y, axis, *cut)


@op(vendor=VENDOR, rows=WISE, fold=True, infer=infer_broadcast(), linear=True)
def elementwise_add(x, y, *, axis: int = -1):
    """Out = X + Y, with Y's dimensions aligned with X's from ``axis`` (-1: trailing dimensions)."""
    x, y = aligned(x, y, axis)
    return x + y


@elementwise_add.grad
def _(x: Meta, y: Meta, d_out, *, axis):
    return _both(x, y, axis, d_out, d_out)


@elementwise_add.grad_grad(out="DDOut", rows=None)
def _(y: Meta, dout: Meta, ddx=None, ddy=None, *, axis):
    return _plus(ddx, ddy, y, dout, axis, 1)


def _plus(ddx, ddy, y, dout, axis, sign):
    """ddx + sign * ddy in the shape of Out, an absent one being zero; y has the shape of ddy."""
    sx, sy = _views(ddx, y, dout, axis)
    terms = [0 if ddx is None else ddx.reshape(sx), 0 if ddy is None else sign * ddy.reshape(sy)]
    return jnp.broadcast_to(sum(terms), dout.shape)


def _views(x, y, out, axis):
    """X's and Y's shapes brought to one rank; an absent X is as large as Out."""
    if x is None and len(y.shape) == len(out.shape):
        return tuple(out.shape), tuple(y.shape)
    return placed_pair(out.shape if x is None else x.shape, y.shape, axis)


@op(vendor=VENDOR, rows=WISE, fold=True, infer=infer_broadcast(), linear=True)
def elementwise_sub(x, y, *, axis: int = -1):
    """Out = X - Y."""
    x, y = aligned(x, y, axis)
    return x - y


@elementwise_sub.grad
def _(x: Meta, y: Meta, d_out, *, axis):
    return _both(x, y, axis, d_out, -d_out)


@elementwise_sub.grad_grad(out="DDOut", rows=None)
def _(y: Meta, dout: Meta, ddx=None, ddy=None, *, axis):
    return _plus(ddx, ddy, y, dout, axis, -1)


@op(vendor=VENDOR, rows=WISE, fold=True, infer=infer_broadcast(), linear=True)
def elementwise_mul(x: Value, y, *, axis: int = -1):
    """Out = X * Y, with Y's dimensions aligned with X's from ``axis``. X may be SelectedRows if Y is a scalar [1]."""
    if isinstance(x, SelectedRows):
        if y.size != 1:
            raise ValueError(f"SelectedRows times a tensor of shape {y.shape}: Y has to be a scalar of shape [1]")
        return replace(x, values=x.values * y.reshape(()))
    x, y = aligned(data_of(x), y, axis)
    return product(x, y)


@elementwise_mul.grad
def _(x, y, d_out, *, axis):
    a, b = aligned(x, y, axis)
    return _both(x, y, axis, d_out * b, d_out * a)


@elementwise_mul.grad_grad(out="DDOut X@GRAD Y@GRAD", rows=None)
def _(x, y, dout, ddx=None, ddy=None, *, axis):
    ddx = jnp.zeros_like(x) if ddx is None else ddx
    ddy = jnp.zeros_like(y) if ddy is None else ddy
    a, b = aligned(x, y, axis)
    da, db = ddx.reshape(a.shape), ddy.reshape(b.shape)
    return da * b + a * db, *_both(x, y, axis, dout * db, dout * da)


def _quotient(x, y):
    """X / Y; integers truncate towards zero."""
    if np.issubdtype(x.dtype, np.floating) or x.dtype.kind == "V":
        return x / y
    return jnp.sign(x) * jnp.sign(y) * (jnp.abs(x) // jnp.abs(y))


@op(vendor=VENDOR, rows=WISE, fold=True, infer=infer_broadcast())
def elementwise_div(x, y, *, axis: int = -1):
    """Out = X / Y; integers truncate towards zero."""
    return _quotient(*aligned(x, y, axis))


@elementwise_div.check
def _(y):
    return nonzero("y", y)


@elementwise_div.grad
def _(x, y, out, d_out, *, axis):
    _, b = aligned(x, y, axis)
    quotient = d_out / b
    return _both_typed(x, y, axis, quotient, -quotient * out)


@elementwise_div.grad_grad(out="Y@GRAD DOut DDOut", rows=None)
def _(y, out, dx=None, ddx=None, ddy=None, d_out=None, *, axis):
    """d_out is bound where X may be smaller than Out, or has no gradient; else dX is d_out / Y."""
    if d_out is None and (dx is None or dx.size < out.size):
        raise ValueError(
            f"X of shape {None if dx is None else dx.shape} is broadcast to {out.shape}, and without Out@GRAD this op"
            " reads only the sum of what its elements get: expected an X as large as Out. Expand X before the division"
        )
    sx, sy = _views(dx, y, out, axis)
    b, da, db = y.reshape(sy), jnp.zeros_like(out), jnp.zeros(sy, y.dtype)
    da = da if ddx is None else ddx.reshape(sx)
    db = db if ddy is None else ddy.reshape(sy)
    g = dx.reshape(sx) if d_out is None else d_out / b
    d_y = unbroadcast((out * db - da) * g / b, sy, y.shape)
    return d_y, -g * db, (da - out * db) / b


@op(vendor=VENDOR, rows=WISE, fold=True, infer=infer_broadcast())
def elementwise_max(x, y, *, axis: int = -1):
    """Out = X > Y ? X : Y, so that a NaN in X is dropped and one in Y is kept."""
    a, b = aligned(x, y, axis)
    return jnp.where(a > b, a, b)


@elementwise_max.grad
def _(x, y, d_out, *, axis):
    """Y takes the gradient where both are equal; neither does where one is NaN."""
    a, b = aligned(x, y, axis)
    return _both(x, y, axis, jnp.where(a > b, d_out, 0), jnp.where(a <= b, d_out, 0))


@op(vendor=VENDOR, rows=WISE, fold=True, infer=infer_broadcast())
def elementwise_min(x, y, *, axis: int = -1):
    """Out = X < Y ? X : Y, so that a NaN in X is dropped and one in Y is kept."""
    a, b = aligned(x, y, axis)
    return jnp.where(a < b, a, b)


@elementwise_min.grad
def _(x, y, d_out, *, axis):
    """Y takes the gradient where both are equal; neither does where one is NaN."""
    a, b = aligned(x, y, axis)
    return _both(x, y, axis, jnp.where(a < b, d_out, 0), jnp.where(a >= b, d_out, 0))


@op(vendor=VENDOR, rows=WISE, fold=True, infer=infer_broadcast())
def elementwise_pow(x, y, *, axis: int = -1):
    """Out = X ** Y; integers are computed in float64, whose last bit depends on the platform, and rounded."""
    x, y = aligned(x, y, axis)
    if np.issubdtype(x.dtype, np.integer):
        return jnp.rint(jnp.power(x.astype(np.float64), y.astype(np.float64))).astype(x.dtype)
    return jnp.power(x, y)


@elementwise_pow.grad
def _(x, y, d_out, *, axis):
    """dX = dOut Y X ** (Y - 1), dY = dOut log(X) X ** Y; of integers in float64, cut to integers in the end."""
    a, b = aligned(x, y, axis)
    if np.issubdtype(a.dtype, np.integer):
        a, b = a.astype(np.float64), b.astype(np.float64)
        # A GPU's 6 ** 1 may be a last bit below 6, which cutting would make 5.
        slope, power = jnp.power(a, b - 1), jnp.rint(jnp.power(a, b))
        slope = jnp.where(b >= 1, jnp.rint(slope), slope)
    else:
        slope, power = jnp.power(a, b - 1), jnp.power(a, b)
    return _both_typed(x, y, axis, d_out * b * slope, d_out * jnp.log(a) * power)


@op(vendor=VENDOR, rows=WISE, fold=True, infer=infer_broadcast(), diff="")
def elementwise_mod(x, y, *, axis: int = -1, ctx):
    """Out = X mod Y: the remainder of truncated division for integers, of floored division for floats.

    Since Paddle 2, of floored division for both.
    """
    x, y = aligned(x, y, axis)
    truncated = np.issubdtype(x.dtype, np.integer) and ctx.release < PADDLE_2
    return x - _quotient(x, y) * y if truncated else jnp.mod(x, y)


@elementwise_mod.check
def _(y):
    return nonzero("y", y)


@op(vendor=VENDOR, rows=WISE, fold=True, infer=infer_broadcast(), diff="")
def elementwise_floordiv(x, y, *, axis: int = -1, ctx):
    """Out = X / Y for integers, truncated towards zero (Fluid's kernel, despite its name); floored since Paddle 2.5."""
    x, y = aligned(x, y, axis)
    return jnp.floor_divide(x, y) if ctx.release >= PADDLE_2_5 else _quotient(x, y)


@elementwise_floordiv.check
def _(y):
    return nonzero("y", y)
