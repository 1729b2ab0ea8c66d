"""Reductions over dims, norms and arg-extrema.

Rows of a padded value are masked with the reduction's neutral element where dim 0 is reduced; otherwise each row
is reduced by itself and the result keeps its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np

from lowering.dtypes import to_numpy
from lowering.registry import op
from lowering.values import LoDArray, Meta, row_mask

OPTIONS: dict[str, Any] = {"rows": "masked", "lod": None}


def _axes(ndim: int, dim: list[int], reduce_all: bool) -> tuple[int, ...]:
    if reduce_all:
        return tuple(range(ndim))
    return tuple(sorted({d % ndim for d in dim})) if ndim else ()


def _masked(x: LoDArray, axes: tuple[int, ...], neutral: Any) -> Any:
    """X with padding rows neutralised if they are reduced."""
    if x.padded and 0 in axes:
        return jnp.where(row_mask(x), x.data, jnp.asarray(neutral, x.dtype))
    return x.data


def _finish(out: Any, x: LoDArray, axes: tuple[int, ...]) -> Any:
    if 0 in axes or out.ndim == 0:
        return out.reshape(1) if out.ndim == 0 else out
    return x.with_data(out)


def _cast(data: Any, number: int) -> Any:
    return data.astype(to_numpy(number)) if number >= 0 else data


def _reduce(x: LoDArray, fn: Callable[..., Any], neutral: Any, dim, keep_dim, reduce_all, out_dtype=-1) -> Any:
    axes = _axes(x.data.ndim, dim, reduce_all)
    data = _cast(_masked(x, axes, neutral), out_dtype)
    return _finish(fn(data, axis=axes, keepdims=keep_dim), x, axes)


def _spread(grad: Any, x: Any, axes: tuple[int, ...]) -> Any:
    """A reduced gradient with the reduced dims back as ones."""
    data = grad.data if isinstance(grad, LoDArray) else grad
    return data.reshape(tuple(1 if i in axes else n for i, n in enumerate(x.shape)))


def _to_input(grad: Any, x: LoDArray, axes: tuple[int, ...]) -> Any:
    """The gradient in X's shape; padding rows are zero (I2)."""
    grad = jnp.broadcast_to(grad, x.shape).astype(x.dtype)
    if x.padded and 0 in axes:
        grad = jnp.where(row_mask(x), grad, 0)
    return x.with_data(grad)


def _count(x: LoDArray, axes: tuple[int, ...]) -> Any:
    """Number of elements reduced into one, a traced scalar for padded rows."""
    if x.padded and 0 in axes:
        return jnp.maximum(x.nrows, 1) * prod(x.shape[i] for i in axes if i)
    return prod(x.shape[i] for i in axes)


def _like(meta: Meta) -> LoDArray:
    """X without its numbers, for a gradient that reads only shape, dtype and rows."""
    return LoDArray(_Shell(tuple(meta.shape), meta.dtype), meta.lod, meta.nrows)


class _Shell:
    """Stands for the data of an array that is not read."""

    def __init__(self, shape: tuple[int, ...], dtype: Any):
        self.shape, self.dtype, self.ndim = shape, dtype, len(shape)


@op(**OPTIONS)
def mean(x: LoDArray):
    """Out[1] = mean of all elements of X."""
    axes = tuple(range(x.data.ndim))
    total = jnp.sum(_masked(x, axes, 0), dtype=x.dtype)
    return (total / jnp.asarray(_count(x, axes), x.dtype)).reshape(1)


@mean.grad
def _(x: Meta, d_out):
    like = _like(x)
    axes = tuple(range(len(x.shape)))
    return _to_input(d_out.reshape(()) / jnp.asarray(_count(like, axes), d_out.dtype), like, axes)


@op(**OPTIONS)
def reduce_sum(
    x: LoDArray,
    *,
    dim: list[int] = (0,),
    keep_dim: bool = False,
    reduce_all: bool = False,
    in_dtype: int = -1,
    out_dtype: int = -1,
):
    """Out = sum of X over ``dim``; [1] when nothing is left."""
    del in_dtype
    return _reduce(x, _sum, 0, dim, keep_dim, reduce_all, out_dtype)


def _sum(data, axis, keepdims):
    return jnp.sum(data, axis=axis, keepdims=keepdims, dtype=data.dtype)


@reduce_sum.grad
def _(x: Meta, d_out: LoDArray, *, dim, reduce_all):
    like = _like(x)
    axes = _axes(len(x.shape), dim, reduce_all)
    return _to_input(_spread(d_out, like, axes), like, axes)


@op(**OPTIONS)
def reduce_mean(
    x: LoDArray,
    *,
    dim: list[int] = (0,),
    keep_dim: bool = False,
    reduce_all: bool = False,
    in_dtype: int = -1,
    out_dtype: int = -1,
):
    """Out = mean of X over ``dim``; integers truncate towards zero."""
    del in_dtype
    axes = _axes(x.data.ndim, dim, reduce_all)
    data = _cast(_masked(x, axes, 0), out_dtype)
    total, count = _sum(data, axes, keep_dim), _count(x, axes)
    if jnp.issubdtype(data.dtype, jnp.integer):
        return _finish(jnp.sign(total) * (jnp.abs(total) // count), x, axes)
    return _finish(total / jnp.asarray(count, data.dtype), x, axes)


@reduce_mean.grad
def _(x: Meta, d_out: LoDArray, *, dim, reduce_all):
    like = _like(x)
    axes = _axes(len(x.shape), dim, reduce_all)
    grad = _spread(d_out, like, axes)
    return _to_input(grad / jnp.asarray(_count(like, axes), grad.dtype), like, axes)


def _lowest(dtype: np.dtype) -> Any:
    return -np.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min


def _highest(dtype: np.dtype) -> Any:
    return np.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).max


def _extremum(fn: Callable[..., Any], neutral: Callable[[Any], Any]) -> Callable[..., Any]:
    """The extremum of no elements is the neutral number, as in Eigen; NumPy raises."""

    def reduce(data: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        initial = None if data.size else jnp.asarray(neutral(data.dtype), data.dtype)
        return fn(data, axis=axis, keepdims=keepdims, initial=initial)

    return reduce


@op(**OPTIONS)
def reduce_max(
    x: LoDArray,
    *,
    dim: list[int] = (0,),
    keep_dim: bool = False,
    reduce_all: bool = False,
    in_dtype: int = -1,
    out_dtype: int = -1,
):
    """Out = maximum of X over ``dim``."""
    del in_dtype
    return _reduce(x, _extremum(jnp.max, _lowest), _lowest(x.dtype), dim, keep_dim, reduce_all, out_dtype)


def _extremum_grad(x, out, d_out, dim, reduce_all):
    """Every element equal to the extremum takes the whole gradient."""
    axes = _axes(x.data.ndim, dim, reduce_all)
    hit = x.data == _spread(out, x, axes)
    return _to_input(jnp.where(hit, _spread(d_out, x, axes), 0), x, axes)


@reduce_max.grad
def _(x: LoDArray, out: LoDArray, d_out: LoDArray, *, dim, reduce_all):
    return _extremum_grad(x, out, d_out, dim, reduce_all)


@op(**OPTIONS)
def reduce_min(
    x: LoDArray,
    *,
    dim: list[int] = (0,),
    keep_dim: bool = False,
    reduce_all: bool = False,
    in_dtype: int = -1,
    out_dtype: int = -1,
):
    """Out = minimum of X over ``dim``."""
    del in_dtype
    return _reduce(x, _extremum(jnp.min, _highest), _highest(x.dtype), dim, keep_dim, reduce_all, out_dtype)


@reduce_min.grad
def _(x: LoDArray, out: LoDArray, d_out: LoDArray, *, dim, reduce_all):
    return _extremum_grad(x, out, d_out, dim, reduce_all)


@op(**OPTIONS)
def reduce_prod(
    x: LoDArray,
    *,
    dim: list[int] = (0,),
    keep_dim: bool = False,
    reduce_all: bool = False,
    in_dtype: int = -1,
    out_dtype: int = -1,
):
    """Out = product of X over ``dim``."""
    del in_dtype
    return _reduce(x, _prod, 1, dim, keep_dim, reduce_all, out_dtype)


def _prod(data, axis, keepdims):
    return jnp.prod(data, axis=axis, keepdims=keepdims, dtype=data.dtype)


@reduce_prod.grad
def _(x: LoDArray, out: LoDArray, d_out: LoDArray, *, dim, reduce_all):
    """dX = dOut * Out / X, as Fluid has it: not finite where X is 0."""
    axes = _axes(x.data.ndim, dim, reduce_all)
    return _to_input(_spread(d_out, x, axes) * _spread(out, x, axes) / x.data, x, axes)


@op(**OPTIONS, diff="")
def reduce_all(
    x: LoDArray,
    *,
    dim: list[int] = (0,),
    keep_dim: bool = False,
    reduce_all: bool = False,
    in_dtype: int = -1,
    out_dtype: int = -1,
):
    """Out = logical and of X (bool) over ``dim``."""
    del in_dtype, out_dtype
    return _reduce(x, jnp.all, True, dim, keep_dim, reduce_all)


@op(**OPTIONS, diff="")
def reduce_any(
    x: LoDArray,
    *,
    dim: list[int] = (0,),
    keep_dim: bool = False,
    reduce_all: bool = False,
    in_dtype: int = -1,
    out_dtype: int = -1,
):
    """Out = logical or of X (bool) over ``dim``."""
    del in_dtype, out_dtype
    return _reduce(x, jnp.any, False, dim, keep_dim, reduce_all)
