"""Elementary functions of one argument introduced in Paddle 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lowering.registry import WISE, op


def _function(name: str, fn: Callable[[Any], Any], doc: str) -> None:
    """Register an elementwise function of X whose gradient reads X."""

    def rule(x):
        return fn(x)

    rule.__doc__ = doc
    op(name, rows=WISE, grad="vjp", reads="x")(rule)


_function("sinh", jnp.sinh, "Out = sinh(X).")
_function("cosh", jnp.cosh, "Out = cosh(X).")
_function("tan", jnp.tan, "Out = tan(X).")
_function("asinh", jnp.arcsinh, "Out = asinh(X).")
_function("acosh", jnp.arccosh, "Out = acosh(X).")
_function("atanh", jnp.arctanh, "Out = atanh(X).")
_function("log2", jnp.log2, "Out = log2(X).")
_function("log10", jnp.log10, "Out = log10(X).")
_function("lgamma", jax.scipy.special.gammaln, "Out = the logarithm of the gamma function's absolute value.")
_function("digamma", jax.scipy.special.digamma, "Out = the derivative of lgamma.")
_function("silu", jax.nn.silu, "Out = X sigmoid(X).")


@op(rows=WISE)
def expm1(x):
    """Out = exp(X) - 1."""
    return jnp.expm1(x)


@expm1.grad
def _(out, d_out):
    return d_out * (out + 1)


@op(rows=WISE)
def erfinv(x):
    """Out = the number whose erf is X."""
    return jax.lax.erf_inv(x)


@erfinv.grad
def _(out, d_out):
    return d_out * 0.5 * jnp.pi**0.5 * jnp.exp(out * out)


@op(rows=WISE, slots={"x": "x"}, out="out", grad="vjp", reads="x", lod={"out": "x"})
def i0(x):
    """out = the modified Bessel function of order 0."""
    return jax.scipy.special.i0(x)


def _bessel(name: str, fn: Callable[[Any], Any], doc: str) -> None:
    """Register a Bessel function, whose slots Paddle names in small letters."""

    def rule(x):
        return fn(x)

    rule.__doc__ = doc
    op(name, rows=WISE, slots={"x": "x"}, out="out", grad="vjp", reads="x", lod={"out": "x"})(rule)


_bessel("i0e", jax.scipy.special.i0e, "out = exp(-|x|) i0(x).")
_bessel("i1", jax.scipy.special.i1, "out = the modified Bessel function of order 1.")
_bessel("i1e", jax.scipy.special.i1e, "out = exp(-|x|) i1(x).")


@op(rows=WISE, slots={"x": "x"}, out="out", diff="", lod={"out": "x"})
def polygamma(x, *, n: int):
    """out = the n-th derivative of digamma."""
    return jax.scipy.special.polygamma(n, x)


@op(rows=WISE)
def trunc(x):
    """Out = X truncated towards zero; its gradient is zero."""
    return jnp.trunc(x) if jnp.issubdtype(x.dtype, jnp.floating) else x


@trunc.grad
def _(d_out):
    return jnp.zeros_like(d_out)


@op(rows=WISE, grad="vjp", reads="x")
def logit(x, *, eps: float = 1e-6):
    """Out = log(x / (1 - x)) for X clipped to [eps, 1 - eps]; without eps, NaN outside [0, 1]."""
    x = jnp.clip(x, eps, 1 - eps) if eps else x
    return jnp.log(x / (1 - x))


@op(rows=WISE, grad="vjp", reads="x")
def celu(x, *, alpha: float = 1.0):
    """Out = max(0, X) + min(0, alpha (exp(X / alpha) - 1))."""
    return jax.nn.celu(x, alpha)


def _test(name: str, fn: Callable[[Any], Any], doc: str) -> None:
    def rule(x):
        return fn(x)

    rule.__doc__ = doc
    op(name, rows=WISE, diff="")(rule)


_test("isnan_v2", jnp.isnan, "Out = whether each element of X is no number.")
_test("isinf_v2", jnp.isinf, "Out = whether each element of X is infinite.")
_test("isfinite_v2", jnp.isfinite, "Out = whether each element of X is finite.")
