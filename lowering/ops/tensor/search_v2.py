"""Ordering and looking up values, as Paddle 2 has it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from lowering.dtypes import INT64
from lowering.ops.shared import concrete_scalar
from lowering.program import VarInfo
from lowering.registry import Long, op
from lowering.values import Meta


def _ranked(x, k: int, largest: bool):
    """The k first places along the last dim in falling (rising) order; of equal values the earlier ones."""
    if jnp.issubdtype(x.dtype, jnp.floating):
        places = jnp.argsort(-x if largest else x, axis=-1, stable=True)[..., :k]
    else:
        places = jnp.argsort(x, axis=-1, stable=True, descending=largest)[..., :k]
    return jnp.take_along_axis(x, places, axis=-1), places.astype(np.int64)


def _infer_top(op, var_of):
    x = var_of(op.inputs["X"][0])
    dims, axis = list(x.shape), int(op.attrs.get("axis", -1))
    if dims:
        dims[axis] = -1 if op.inputs.get("K") else int(op.attrs.get("k", 1))
    values, places = (VarInfo(tuple(dims), dtype, x.lod_level) for dtype in (x.dtype, INT64))
    return {op.outputs["Out"][0]: values, op.outputs["Indices"][0]: places}


@op(out="Out Indices", diff="x", infer=_infer_top)
def top_k_v2(x, k=None, *, k_: int = 1, axis: int = -1, largest: bool = True, sorted: bool = True):
    """Out, Indices = the k largest (smallest) elements along ``axis`` and their places, in order."""
    del sorted
    if x.ndim == 0:
        return x, np.zeros((), np.int64)
    count = k_ if k is None else int(concrete_scalar(k, "top_k_v2: K"))
    out, places = _ranked(jnp.moveaxis(x, axis, -1), count, largest)
    return jnp.moveaxis(out, -1, axis), jnp.moveaxis(places, -1, axis)


def _placed(x: Meta, places, d_out, axis: int):
    zeros = jnp.zeros(x.shape, d_out.dtype)
    return jnp.put_along_axis(zeros, places, d_out, axis=axis, inplace=False) if x.shape else d_out


@top_k_v2.grad
def _(x: Meta, indices, d_out, *, axis):
    return _placed(x, indices, d_out, axis)


def _kept(value, axis: int, keepdim: bool):
    return jnp.expand_dims(value, axis) if keepdim else value


@op(out="Out Indices", diff="x")
def kthvalue(x, *, k: int = 1, axis: int = -1, keepdim: bool = False):
    """Out, Indices = the k-th smallest element along ``axis`` and its place."""
    out, places = _ranked(jnp.moveaxis(x, axis, -1), k, False)
    return _kept(out[..., -1], axis, keepdim), _kept(places[..., -1], axis, keepdim)


@kthvalue.grad
def _(x: Meta, indices, d_out, *, axis, keepdim):
    if not keepdim:
        indices, d_out = jnp.expand_dims(indices, axis), jnp.expand_dims(d_out, axis)
    return _placed(x, indices, d_out, axis)


@op(out="Out Indices", diff="x")
def mode(x, *, axis: int = -1, keepdim: bool = False):
    """Out, Indices = the most frequent element along ``axis`` and its last place; of several, the smallest."""
    rows = jnp.moveaxis(x, axis, -1)
    counts = jnp.sum(rows[..., :, None] == rows[..., None, :], axis=-1)
    best = counts == jnp.max(counts, axis=-1, keepdims=True)
    top = np.inf if jnp.issubdtype(rows.dtype, jnp.floating) else jnp.iinfo(rows.dtype).max
    value = jnp.min(jnp.where(best, rows, top), axis=-1)
    numbers = jnp.arange(rows.shape[-1], dtype=np.int64)
    place = jnp.max(jnp.where(rows == value[..., None], numbers, -1), axis=-1)
    return _kept(value, axis, keepdim), _kept(place, axis, keepdim)


@mode.grad
def _(x: Meta, indices, d_out, *, axis, keepdim):
    if not keepdim:
        indices, d_out = jnp.expand_dims(indices, axis), jnp.expand_dims(d_out, axis)
    return _placed(x, indices, d_out, axis)


@op(diff="", slots={"sorted_sequence": "SortedSequence", "values": "Values"}, lod=None)
def searchsorted(sorted_sequence, values, *, out_int32: bool = False, right: bool = False):
    """Out = where each of Values would stand in SortedSequence, row by row; after its equals with ``right``."""
    find = lambda row, wanted: jnp.searchsorted(row, wanted, side="right" if right else "left")  # noqa: E731
    if sorted_sequence.ndim == 1:
        found = find(sorted_sequence, values)
    else:
        rows = sorted_sequence.reshape(-1, sorted_sequence.shape[-1])
        found = jax.vmap(find)(rows, values.reshape(rows.shape[0], -1)).reshape(values.shape)
    return found.astype(np.int32 if out_int32 else np.int64)


@op(diff="", lod=None)
def bincount(x, weights=None, *, minlength: int = 0):
    """Out[n] = how often n is in X [N], or the sum of its Weights; at least ``minlength`` long.

    The result's size depends on the numbers, so the program compiles for each largest one.
    """
    most = int(concrete_scalar(jnp.max(x), "bincount: the largest number")) + 1 if x.size else 0
    out = jnp.bincount(x, weights, length=max(most, minlength))
    return out if weights is not None else out.astype(np.int64)


@op(diff="", lod=None)
def histogram(x, *, bins: Long = 100, min: int = 0, max: int = 0):
    """Out[bins] = how many elements of X fall into each of ``bins`` equal parts of [min, max], or of X's own range."""
    low, high = (jnp.min(x), jnp.max(x)) if min == max else (min, max)
    low, high = jnp.where(low == high, low - 1.0, low), jnp.where(low == high, high + 1.0, high)
    part = jnp.floor((x.reshape(-1) - low) * bins / (high - low)).astype(np.int32)
    inside = (x.reshape(-1) >= low) & (x.reshape(-1) <= high)
    return jnp.zeros(bins, np.int64).at[jnp.minimum(part, bins - 1)].add(inside.astype(np.int64))
