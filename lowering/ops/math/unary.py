"""Elementary functions of one argument."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from lowering.engine.shapes.infer_rules import like
from lowering.ops.sparse import on_values
from lowering.program import PADDLE_2, OpSpec
from lowering.registry import WISE, Value, op

_elementary = op(vendor="use_mkldnn use_cudnn", rows=WISE, infer=like("X"))


@_elementary
def sqrt(x: Value):
    """Out = sqrt(X). X may be SelectedRows."""
    return on_values(x, jnp.sqrt)


@sqrt.grad
def _(out, d_out):
    return 0.5 * d_out / out


@sqrt.grad_grad(out="DOut DDOut")
def _(out, dx, ddx):
    return -dx * ddx / out, 0.5 * ddx / out


@_elementary
def rsqrt(x):
    """Out = 1 / sqrt(X)."""
    return jax.lax.rsqrt(x)


@rsqrt.grad
def _(out, d_out):
    return -0.5 * d_out * out * out * out


def _as(x, y):
    """y in the dtype of x: Fluid computes integer powers and exponentials in floating point and truncates."""
    return y.astype(x.dtype)


@_elementary
def abs_(x: Value):
    """Out = |X|. X may be SelectedRows."""
    return on_values(x, jnp.abs)


@abs_.grad
def _(x, d_out):
    return d_out * jnp.sign(x)


@_elementary
def ceil(x):
    """Out = the smallest integer >= X; its gradient is zero."""
    return jnp.ceil(x)


@_elementary
def floor(x):
    """Out = the largest integer <= X; its gradient is zero."""
    return jnp.floor(x)


@_elementary
def round_(x, *, ctx):
    """Out = the nearest integer; its gradient is zero. Halves go to even, as in Fluid's vectorised kernel, and away
    from zero in Paddle 2."""
    if ctx.release >= PADDLE_2 and jnp.issubdtype(x.dtype, jnp.floating):
        return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)
    return jnp.round(x)


def _constant_grad(d_out):
    return jnp.zeros_like(d_out)


for _steps in (ceil, floor, round_):
    _steps.grad(_constant_grad)


@_elementary
def cos(x):
    """Out = cos(X)."""
    return jnp.cos(x)


@cos.grad
def _(x, d_out):
    return -d_out * jnp.sin(x)


@_elementary
def sin(x):
    """Out = sin(X)."""
    return jnp.sin(x)


@sin.grad
def _(x, d_out):
    return d_out * jnp.cos(x)


@op(rows=WISE)
def acos(x):
    """Out = acos(X)."""
    return jnp.arccos(x)


@acos.grad
def _(x, d_out):
    return -d_out / jnp.sqrt(1 - x * x)


@op(rows=WISE)
def asin(x):
    """Out = asin(X)."""
    return jnp.arcsin(x)


@asin.grad
def _(x, d_out):
    return d_out / jnp.sqrt(1 - x * x)


@op(rows=WISE)
def atan(x):
    """Out = atan(X)."""
    return jnp.arctan(x)


@atan.grad
def _(x, d_out):
    return d_out / (1 + x * x)


@_elementary
def reciprocal(x):
    """Out = 1 / X."""
    return 1 / x


@reciprocal.grad
def _(out, d_out):
    return -d_out * out * out


@_elementary
def log(x):
    """Out = ln(X)."""
    return jnp.log(x)


@log.grad
def _(x, d_out):
    return d_out / x


@_elementary
def log1p(x):
    """Out = ln(1 + X)."""
    return jnp.log1p(x)


@log1p.grad
def _(x, d_out):
    return d_out / (1 + x)


@op(vendor="use_mkldnn use_cudnn", rows=WISE, fold=True, infer=like("X"))
def square(x: Value):
    """Out = X * X. X may be SelectedRows."""
    return on_values(x, lambda data: data * data)


@square.grad
def _(x, d_out):
    return 2 * d_out * x


@square.grad_grad(out="DDOut DX")
def _(x, dout, ddx):
    return 2 * x * ddx, 2 * dout * ddx


@_elementary
def exp(x):
    """Out = e ** X; integers truncate. A single number, as schedules compute it, is rounded from float64."""
    return _as(x, jnp.exp(x.astype(jnp.float64) if x.size == 1 else x))


@exp.grad
def _(out, d_out):
    return d_out * out


@op(rows=WISE)
def erf(x):
    """Out = 2 / sqrt(pi) * integral of exp(-t * t) from 0 to X."""
    return jax.lax.erf(x)


@erf.grad
def _(x, d_out):
    return d_out * 1.1283791670955126 * jnp.exp(-x * x)


def _factor(factor, factor_tensor, x):
    if factor_tensor is None:
        return factor
    return factor_tensor.reshape(()).astype(x.dtype)


@op(rows=WISE, diff="x")
def pow_(x, factor_tensor=None, *, factor: float = 1.0):
    """Out = X ** factor, the factor from FactorTensor [1] when given; integers truncate the factor first."""
    return x ** _kernel_factor(x, factor, factor_tensor)


def _kernel_factor(x, factor, factor_tensor):
    factor = _factor(factor, factor_tensor, x)
    if factor_tensor is None and jnp.issubdtype(x.dtype, jnp.integer):
        return int(factor)
    return factor


@pow_.grad
def _(x, d_out, factor_tensor=None, *, factor: float = 1.0):
    factor = _kernel_factor(x, factor, factor_tensor)
    return d_out * factor * x ** (factor - 1)


@op(rows=WISE)
def sign(x):
    """Out = -1, 0 or 1, and 0 for NaN; the gradient is ``scale`` by 0, as Fluid writes it."""
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)


@sign.grad_maker
def _(g):
    return [OpSpec("scale", {"X": g.output_grad("Out")}, {"Out": g.input_grad("X")}, {"scale": 0.0})]
