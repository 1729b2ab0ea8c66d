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
from lowering.engine.pinned import pinned
from lowering.engine.shapes.infer_rules import Out, by_rule
from lowering.program import PADDLE_2
from lowering.registry import MASKED, OpDef, op
from lowering.values import LoDArray, Meta, row_mask

OPTIONS: dict[str, Any] = {"rows": MASKED, "lod": None}


def reduced_axes(ndim: int, dim: list[int], reduce_all: bool) -> tuple[int, ...]:
    """The axes that a reduction sums over, from 0."""
    if reduce_all or not dim:
        return tuple(range(ndim))
    if any(not -ndim <= d < ndim for d in dim) and ndim:
        raise ValueError(f"dims {list(dim)} are not all in [{-ndim}, {ndim}), the axes of an input of rank {ndim}")
    return tuple(sorted({d % ndim for d in dim})) if ndim else ()


def masked(x: LoDArray, axes: tuple[int, ...], neutral: Any) -> Any:
    """X with padding rows neutralised if they are reduced."""
    if x.padded and 0 in axes:
        return jnp.where(row_mask(x), x.data, jnp.asarray(neutral, x.dtype))
    return x.data


def _finish(out: Any, x: LoDArray, axes: tuple[int, ...]) -> Any:
    if 0 in axes or out.ndim == 0:
        return out.reshape(1) if out.ndim == 0 else out
    return x.with_data(out)


def cast(data: Any, number: int) -> Any:
    """``data`` in a data type by its number; as it is for -1."""
    return data.astype(to_numpy(number)) if number >= 0 else data


def _reduced(shapes: Any, attr: Callable[[str], Any]) -> Any:
    """The remaining dims; rows keep their LoD if they are not reduced."""
    if attr("out_dtype") >= 0:
        return None
    x = shapes["X"]
    axes = reduced_axes(len(x), attr("dim"), attr("reduce_all"))
    dims = tuple(1 if i in axes else n for i, n in enumerate(x) if attr("keep_dim") or i not in axes)
    return {"Out": Out(dims or (1,), lod="" if 0 in axes else "X")}


IN_ITS_TYPE = by_rule(_reduced)  # the inference of a reduction that leaves floating numbers in their type


def _declared(x: LoDArray, number: int, ctx: Any) -> int:
    """The data type to reduce in: Paddle 2 sums integers as int64 without an attribute that says so."""
    if number >= 0 or ctx.release < PADDLE_2 or not jnp.issubdtype(x.dtype, jnp.integer):
        return number
    out = ctx.out_var("Out")
    return number if out is None else out.dtype


def reduction(**options: Any) -> Callable[[Callable[..., Any]], OpDef]:
    """Register a function of (X, dims to reduce, keep_dim, out_dtype) as an op with the attributes of reductions."""

    def decorate(fn: Callable[..., Any]) -> OpDef:
        def rule(
            x: LoDArray,
            *,
            dim: list[int] = (0,),
            keep_dim: bool = False,
            reduce_all: bool = False,
            in_dtype: int = -1,
            out_dtype: int = -1,
            ctx,
        ):
            axes = reduced_axes(x.data.ndim, dim, reduce_all)
            return _finish(fn(x, axes, keep_dim, _declared(x, out_dtype, ctx)), x, axes)

        rule.__doc__, rule.__module__ = fn.__doc__, fn.__module__
        return op(fn.__name__, **OPTIONS, **options)(rule)

    return decorate


def spread(grad: Any, x: Any, axes: tuple[int, ...]) -> Any:
    """A reduced gradient with the reduced dims back as ones."""
    data = grad.data if isinstance(grad, LoDArray) else grad
    return data.reshape(tuple(1 if i in axes else n for i, n in enumerate(x.shape)))


def to_input(grad: Any, x: LoDArray, axes: tuple[int, ...]) -> Any:
    """The gradient in X's shape; padding rows are zero (I2)."""
    grad = jnp.broadcast_to(grad, x.shape).astype(x.dtype)
    if x.padded and 0 in axes:
        grad = jnp.where(row_mask(x), grad, 0)
    return x.with_data(grad)


def in_its_dtype(grad: Any, x: LoDArray, d_out: Any, in_dtype: int, out_dtype: int) -> Any:
    """The gradient of a reduction that casts has type ``in_dtype``, or Out's where only that is given (Fluid's has)."""
    if in_dtype < 0 and out_dtype < 0:
        return grad
    return x.with_data(grad.data.astype(to_numpy(in_dtype) if in_dtype >= 0 else d_out.dtype))


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


@op(**OPTIONS, infer=by_rule(lambda shapes, attr: {"Out": (1,)}))
def mean(x: LoDArray):
    """Out[1] = mean of all elements of X."""
    axes = tuple(range(x.data.ndim))
    total = jnp.sum(masked(x, axes, 0), dtype=x.dtype)
    return (total / jnp.asarray(_count(x, axes), x.dtype)).reshape(1)


@mean.grad
def _(x: Meta, d_out):
    like = _like(x)
    axes = tuple(range(len(x.shape)))
    return to_input(d_out.reshape(()) / jnp.asarray(_count(like, axes), d_out.dtype), like, axes)


@reduction(infer=IN_ITS_TYPE)
def reduce_sum(x, axes, keep_dim, out_dtype):
    """Out = sum of X over ``dim``; [1] when nothing is left. Booleans, which only Paddle 2 sums, count as int64."""
    data = cast(masked(x, axes, 0), out_dtype)
    return _sum(data.astype(jnp.int64) if data.dtype == bool else data, axes, keep_dim)


def _sum(data, axis, keepdims):
    return jnp.sum(data, axis=axis, keepdims=keepdims, dtype=data.dtype)


@reduce_sum.grad
def _(x: Meta, d_out: LoDArray, *, dim, reduce_all, in_dtype, out_dtype):
    like = _like(x)
    axes = reduced_axes(len(x.shape), dim, reduce_all)
    return in_its_dtype(to_input(spread(d_out, like, axes), like, axes), like, d_out, in_dtype, out_dtype)


@reduction(infer=IN_ITS_TYPE)
def reduce_mean(x, axes, keep_dim, out_dtype):
    """Out = mean of X over ``dim``; integers truncate towards zero."""
    data = cast(masked(x, axes, 0), out_dtype)
    total, count = _sum(data, axes, keep_dim), _count(x, axes)
    if jnp.issubdtype(data.dtype, jnp.integer):
        return jnp.sign(total) * (jnp.abs(total) // count)
    return total / jnp.asarray(count, data.dtype)


@reduce_mean.grad
def _(x: Meta, d_out: LoDArray, *, dim, reduce_all, in_dtype, out_dtype):
    like = _like(x)
    axes = reduced_axes(len(x.shape), dim, reduce_all)
    grad = spread(d_out, like, axes)
    grad = to_input(grad / jnp.asarray(_count(like, axes), grad.dtype), like, axes)
    return in_its_dtype(grad, like, d_out, in_dtype, out_dtype)


def lowest(dtype: np.dtype) -> Any:
    """The number of a data type that no other is below."""
    return -np.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min


def highest(dtype: np.dtype) -> Any:
    """The number of a data type that no other is above."""
    return np.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).max


def extremum(fn: Callable[..., Any], neutral: Callable[[Any], Any], x: LoDArray, axes, keep_dim, out_dtype) -> Any:
    """The extremum of no elements is the neutral number, as in Eigen; NumPy raises."""
    data = cast(masked(x, axes, neutral(x.dtype)), out_dtype)
    initial = None if data.size else jnp.asarray(neutral(data.dtype), data.dtype)
    return fn(data, axis=axes, keepdims=keep_dim, initial=initial)


@reduction(infer=IN_ITS_TYPE)
def reduce_max(x, axes, keep_dim, out_dtype):
    """Out = maximum of X over ``dim``."""
    return extremum(jnp.max, lowest, x, axes, keep_dim, out_dtype)


def extremal(fn: Callable[..., Any], neutral: Callable[[Any], Any], x: LoDArray, axes: tuple[int, ...]) -> Any:
    """Which elements of X are the extremum. Out is not asked: it may be rounded otherwise than X is here."""
    x = x.with_data(pinned(x.data))
    return x.data == extremum(fn, neutral, x, axes, keep_dim=True, out_dtype=-1)


def _extremum_grad(fn, neutral, x, d_out, dim, reduce_all):
    """Every element equal to the extremum takes the whole gradient."""
    axes = reduced_axes(x.data.ndim, dim, reduce_all)
    return to_input(jnp.where(extremal(fn, neutral, x, axes), spread(d_out, x, axes), 0), x, axes)


@reduce_max.grad
def _(x: LoDArray, out: Meta, d_out: LoDArray, *, dim, reduce_all):
    return _extremum_grad(jnp.max, lowest, x, d_out, dim, reduce_all)


@reduction(infer=IN_ITS_TYPE)
def reduce_min(x, axes, keep_dim, out_dtype):
    """Out = minimum of X over ``dim``."""
    return extremum(jnp.min, highest, x, axes, keep_dim, out_dtype)


@reduce_min.grad
def _(x: LoDArray, out: Meta, d_out: LoDArray, *, dim, reduce_all):
    return _extremum_grad(jnp.min, highest, x, d_out, dim, reduce_all)


@reduction(infer=IN_ITS_TYPE)
def reduce_prod(x, axes, keep_dim, out_dtype):
    """Out = product of X over ``dim``."""
    data = cast(masked(x, axes, 1), out_dtype)
    return jnp.prod(data, axis=axes, keepdims=keep_dim, dtype=data.dtype)


@reduce_prod.grad
def _(x: LoDArray, out: LoDArray, d_out: LoDArray, *, dim, reduce_all):
    """dX = dOut * Out / X, as in Fluid: not finite where X is 0."""
    axes = reduced_axes(x.data.ndim, dim, reduce_all)
    return to_input(spread(d_out, x, axes) * spread(out, x, axes) / x.data, x, axes)


@reduction(diff="")
def reduce_all(x, axes, keep_dim, out_dtype):
    """Out = logical and of X (bool) over ``dim``."""
    return jnp.all(masked(x, axes, True), axis=axes, keepdims=keep_dim)


@reduction(diff="")
def reduce_any(x, axes, keep_dim, out_dtype):
    """Out = logical or of X (bool) over ``dim``."""
    return jnp.any(masked(x, axes, False), axis=axes, keepdims=keep_dim)
