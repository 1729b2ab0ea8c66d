"""Decompositions and inverses of matrices; the last two dims are the matrix."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lowering.registry import op


@op(grad="vjp", reads="x")
def cholesky(x, *, upper: bool = False):
    """Out = the lower (upper) triangle L with L L^T = X."""
    out = jnp.linalg.cholesky(x)
    return jnp.swapaxes(out, -1, -2) if upper else out


@op(slots={"input": "Input"}, out="Output", lod="input")
def inverse(input):
    """Output = the inverse of Input."""
    return jnp.linalg.inv(input)


@inverse.grad
def _(output, d_output):
    transposed = jnp.swapaxes(output, -1, -2)
    return -transposed @ d_output @ transposed


@op(slots={"input": "Input"}, lod=None)
def determinant(input):
    """Out = the determinant of Input."""
    return jnp.linalg.det(input)


@determinant.grad
def _(input, out, d_out):
    return (out * d_out).reshape(*input.shape[:-2], 1, 1) * jnp.swapaxes(jnp.linalg.inv(input), -1, -2)


@op(grad="vjp", reads="x y")
def solve(x, y):
    """Out = the solution of X Out = Y; Y may be vectors."""
    return jnp.linalg.solve(x, y[..., None])[..., 0] if y.ndim == x.ndim - 1 else jnp.linalg.solve(x, y)


@op(grad="vjp", reads="x y")
def triangular_solve(x, y, *, upper: bool = True, transpose: bool = False, unitriangular: bool = False):
    """Out = the solution of X Out = Y of a triangular X."""
    batch = jnp.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x, y = jnp.broadcast_to(x, batch + x.shape[-2:]), jnp.broadcast_to(y, batch + y.shape[-2:])
    options = {"lower": not upper, "transpose_a": transpose, "unit_diagonal": unitriangular}
    return jax.lax.linalg.triangular_solve(x, y, left_side=True, **options)


@op(grad="vjp", reads="x")
def matrix_power(x, *, n: int):
    """Out = X multiplied with itself n times; of the inverse for a negative n."""
    return jnp.linalg.matrix_power(x, n)
