"""Complex numbers: construction and decomposition."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lowering.registry import WISE, op


@op("complex", rows=WISE, diff="")
def complex_(x, y):
    """Out = X + i Y, with broadcasting."""
    return jax.lax.complex(*jnp.broadcast_arrays(x, y))


@op("as_complex", diff="")
def as_complex(x):
    """Out [...] = the complex numbers of the pairs X [..., 2]."""
    return jax.lax.complex(x[..., 0], x[..., 1])


@op("as_real", diff="")
def as_real(x):
    """Out [..., 2] = the real and imaginary parts of X."""
    return jnp.stack([x.real, x.imag], axis=-1)


@op(rows=WISE, diff="")
def real(x):
    """Out = the real part of X."""
    return jnp.real(x)


@op(rows=WISE, diff="")
def imag(x):
    """Out = the imaginary part of X."""
    return jnp.imag(x)


@op(rows=WISE, diff="")
def conj(x):
    """Out = X with its imaginary part negated."""
    return jnp.conj(x)


@op(rows=WISE)
def angle(x):
    """Out = the angle of X; for real numbers 0 or pi, with zero gradient."""
    return jnp.angle(x)


@angle.grad
def _(x, d_out):
    if jnp.iscomplexobj(x):
        raise ValueError("angle of complex numbers has no gradient here; received complex X; feed real numbers")
    return jnp.zeros_like(d_out)
