"""Norms, and positions of extrema."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from lowering.dtypes import INT64, to_numpy
from lowering.engine.pinned import pinned
from lowering.ops.math.reduction import OPTIONS, cast, in_its_dtype, masked, reduced_axes, reduction, spread, to_input
from lowering.ops.shared import off_rows
from lowering.registry import Long, op
from lowering.values import LoDArray


@reduction()
def frobenius_norm(x, axes, keep_dim, out_dtype):
    """Out = sqrt of the sum of X * X over ``dim``."""
    data = cast(masked(x, axes, 0), out_dtype)
    return jnp.sqrt(jnp.sum(data * data, axis=axes, keepdims=keep_dim)).astype(data.dtype)


@frobenius_norm.grad
def _(x: LoDArray, out: LoDArray, d_out: LoDArray, *, dim, reduce_all, in_dtype, out_dtype):
    axes = reduced_axes(x.data.ndim, dim, reduce_all)
    grad = to_input(x.data / (spread(out, x, axes) + 1e-12) * spread(d_out, x, axes), x, axes)
    return in_its_dtype(grad, x, d_out, in_dtype, out_dtype)


def _all(x: LoDArray) -> tuple[int, ...]:
    return tuple(range(x.data.ndim))


@op(**OPTIONS)
def l1_norm(x: LoDArray):
    """Out[1] = sum of |X|."""
    return jnp.sum(jnp.abs(masked(x, _all(x), 0))).reshape(1)


@l1_norm.grad
def _(x: LoDArray, d_out):
    return to_input(d_out.reshape(()) * jnp.sign(x.data), x, _all(x))


@op(**OPTIONS)
def squared_l2_norm(x: LoDArray):
    """Out[1] = sum of X * X."""
    data = masked(x, _all(x), 0)
    return jnp.sum(data * data).reshape(1)


@squared_l2_norm.grad
def _(x: LoDArray, d_out):
    return to_input(2 * d_out.reshape(()) * x.data, x, _all(x))


@op(out="Norm~ Out", lod=None, rows=off_rows)
def norm(x, *, axis: int, epsilon: float = 1e-10):
    """Norm = sqrt(sum of X * X over ``axis`` + epsilon), the axis kept with size 1; Out = X / Norm."""
    length = jnp.sqrt(jnp.sum(x * x, axis=axis, keepdims=True) + epsilon)
    return length, x / length


@norm.grad
def _(x, norm, d_out, *, axis):
    inner = jnp.sum(x * d_out, axis=axis, keepdims=True)
    return d_out / norm - x * (inner / (norm * norm * norm))


@op(lod=None, newer="asvector")
def p_norm(
    x, *, porder: float = 2.0, axis: int = -1, epsilon: float = 1e-12, keepdim: bool = False, asvector: bool = False
):  # fmt: skip
    """Out = (sum of |X| ** porder over ``axis``) ** (1 / porder); porder 0 counts nonzeros, +-inf take extrema.

    ``asvector`` treats X as a single vector, whose norm has shape [1]; that of a vector without ``keepdim`` has none.
    """
    del epsilon
    axis = None if asvector else axis
    size = jnp.abs(x)
    if porder == 0:
        out = jnp.sum((x != 0).astype(x.dtype), axis=axis, keepdims=keepdim)
    elif np.isinf(porder):
        out = (jnp.max if porder > 0 else jnp.min)(size, axis=axis, keepdims=keepdim)
    else:
        out = jnp.sum(size**porder, axis=axis, keepdims=keepdim) ** (1 / porder)
    return out.reshape(1) if asvector and not keepdim else out


@p_norm.grad
def _(x, out, d_out, *, porder, axis, epsilon, asvector):
    kept = tuple(1 if asvector or i == axis % x.ndim else n for i, n in enumerate(x.shape))
    out, d_out = out.reshape(kept), d_out.reshape(kept)
    if porder == 0:
        return jnp.zeros_like(x)
    if np.isinf(porder):
        size = pinned(jnp.abs(x))
        over = None if asvector else axis
        extreme = (jnp.max if porder > 0 else jnp.min)(size, axis=over, keepdims=True)
        return jnp.where(size == extreme, jnp.sign(x) * d_out, 0)
    slope = jnp.abs(x) ** (porder - 1) / (out ** (porder - 1) + epsilon)
    return slope * jnp.sign(x) * d_out


def _off_found(attrs, ndim):
    return None if attrs["flatten"] else off_rows(attrs, ndim)


def _arg(fn, x, axis, keepdims, dtype, flatten):
    return fn(x, axis=None if flatten else axis, keepdims=keepdims).astype(to_numpy(INT64 if dtype < 0 else dtype))


@op(lod=None, diff="", rows=_off_found, newer="flatten")
def arg_max(x, *, axis: Long, keepdims: bool = False, dtype: int = -1, flatten: bool = False):
    """Out = index of the first maximum of X along ``axis``, or of the flat X; int64 unless ``dtype`` is another."""
    return _arg(jnp.argmax, x, axis, keepdims, dtype, flatten)


@op(lod=None, diff="", rows=_off_found, newer="flatten")
def arg_min(x, *, axis: Long, keepdims: bool = False, dtype: int = -1, flatten: bool = False):
    """Out = index of the first minimum of X along ``axis``, or of the flat X; int64 unless ``dtype`` is another."""
    return _arg(jnp.argmin, x, axis, keepdims, dtype, flatten)
