"""Diagonals and triangles, as in Paddle 2."""

from __future__ import annotations

import jax.numpy as jnp

from lowering.dtypes import to_numpy
from lowering.registry import Long, op
from lowering.values import Meta


@op(lod=None)
def diag_v2(x, *, offset: int = 0, padding_value: float = 0.0):
    """Out = a matrix with X [N] on its diagonal and ``padding_value`` elsewhere; or the diagonal of X [M, N]."""
    if x.ndim == 2:
        return jnp.diagonal(x, offset)
    size = x.shape[0] + abs(offset)
    filled = jnp.full((size, size), padding_value, x.dtype)
    at = jnp.arange(x.shape[0], dtype=jnp.int32)
    return filled.at[at - min(offset, 0), at + max(offset, 0)].set(x)


@diag_v2.grad
def _(x: Meta, d_out, *, offset):
    if len(x.shape) == 1:
        return jnp.diagonal(d_out, offset)
    at = jnp.arange(d_out.shape[0], dtype=jnp.int32)
    return jnp.zeros(x.shape, d_out.dtype).at[at - min(offset, 0), at + max(offset, 0)].set(d_out)


@op(slots={"input": "Input"}, lod=None, grad="vjp", reads="input")
def diagonal(input, *, offset: int = 0, axis1: int = 0, axis2: int = 1):
    """Out = the diagonals of Input over two axes, as the last dimension."""
    return jnp.diagonal(input, offset, axis1, axis2)


@op(out="out", lod=None)
def tril_indices(*, rows: int = 0, cols: int = 0, offset: int = 0, dtype: int = 3):
    """out [2, N] = the rows and columns of a matrix's lower triangle, as NumPy's tril_indices has them."""
    return jnp.stack(jnp.tril_indices(rows, offset, cols)).astype(to_numpy(dtype))


@op(out="out", lod=None)
def triu_indices(*, row: int = 0, col: int = 0, offset: int = 0, dtype: int = 3):
    """out [2, N] = the rows and columns of a matrix's upper triangle, as NumPy's triu_indices has them."""
    return jnp.stack(jnp.triu_indices(row, offset, col)).astype(to_numpy(dtype))


@op("fill_diagonal", grad="vjp", reads="x")
def fill_diagonal(x, *, value: float = 0.0, offset: int = 0, wrap: bool = False):
    """Out = X with ``value`` on its diagonal; with ``wrap``, a tall matrix's diagonal restarts below the square."""
    rows = jnp.arange(x.shape[0], dtype=jnp.int32)[:, None]
    columns = jnp.arange(x.shape[1], dtype=jnp.int32)[None]
    period = x.shape[1] + 1 if wrap and x.ndim == 2 else x.shape[0]
    if x.ndim > 2:
        grid = jnp.indices(x.shape, sparse=True)
        hit = jnp.ones((1,) * x.ndim, bool)
        for axis in grid[1:]:
            hit = hit & (axis == grid[0])
        return jnp.where(hit, jnp.asarray(value, x.dtype), x)
    return jnp.where(rows % period + offset == columns, jnp.asarray(value, x.dtype), x)


def _with_diagonal(x, y, offset: int, dim1: int, dim2: int):
    moved = jnp.moveaxis(x, (dim1, dim2), (-2, -1))
    at = jnp.arange(jnp.diagonal(moved, offset, -2, -1).shape[-1], dtype=jnp.int32)
    place = moved.at[..., at - min(offset, 0), at + max(offset, 0)]
    filled = place.set(jnp.reshape(y, place.get().shape) if jnp.ndim(y) else y)
    return jnp.moveaxis(filled, (-2, -1), (dim1, dim2))


@op(diff="x", lod=None)
def fill_diagonal_tensor(x, y, *, offset: Long = 0, dim1: int = 0, dim2: int = 1):
    """Out = X with Y [..., diagonal] on its diagonals over two axes."""
    return _with_diagonal(x, y, offset, dim1, dim2)


@fill_diagonal_tensor.grad
def _(d_out, *, offset, dim1, dim2):
    return _with_diagonal(d_out, 0, offset, dim1, dim2)
