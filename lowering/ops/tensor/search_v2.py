"""Sorting and searching, as in Paddle 2."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.dtypes import INT64, to_numpy
from lowering.errors import NeedsConcrete
from lowering.ops.shared import concrete_scalar
from lowering.ops.tensor import roomy_unique as roomy
from lowering.program import VarInfo
from lowering.ragged.rows import highest, lowest
from lowering.registry import Long, op
from lowering.values import LoDArray, Meta, fill_padding, is_padded, row_mask


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
    """Out, Indices = the k largest (smallest) elements along ``axis`` and their positions, in order."""
    del sorted
    if x.ndim == 0:
        return x, np.zeros((), np.int64)
    count = k_ if k is None else int(concrete_scalar(k, "top_k_v2: K"))
    out, places = _ranked(jnp.moveaxis(x, axis, -1), count, largest)
    return jnp.moveaxis(out, -1, axis), jnp.moveaxis(places, -1, axis)


@top_k_v2.with_room
def _(x: Any, k: Any, *, k_, axis, largest):
    """The best rows, at most as many as there are."""
    if not is_padded(x) or axis % x.data.ndim:
        raise NeedsConcrete("top_k_v2: K")
    count = min(x.capacity, k_ if k is None else int(concrete_scalar(k, "top_k_v2: K")))
    worst = lowest(x.dtype) if largest else highest(x.dtype)
    columns = jnp.moveaxis(jnp.where(row_mask(x), x.data, worst), 0, -1)
    rows = jnp.minimum(x.rows(), count)
    found = (jnp.moveaxis(part, -1, 0) for part in _ranked(columns, count, largest))
    return tuple(LoDArray(fill_padding(part, rows, backward=False), (), rows) for part in found)


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
    """Out, Indices = the k-th smallest element along ``axis`` and its position."""
    out, places = _ranked(jnp.moveaxis(x, axis, -1), k, False)
    return _kept(out[..., -1], axis, keepdim), _kept(places[..., -1], axis, keepdim)


@kthvalue.grad
def _(x: Meta, indices, d_out, *, axis, keepdim):
    if not keepdim:
        indices, d_out = jnp.expand_dims(indices, axis), jnp.expand_dims(d_out, axis)
    return _placed(x, indices, d_out, axis)


@op(out="Out Indices", diff="x")
def mode(x, *, axis: int = -1, keepdim: bool = False):
    """Out, Indices = the most frequent element along ``axis`` and its last position; among ties, the smallest."""
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
    """Out = the insertion positions of Values in SortedSequence, row by row; after equal elements if ``right``."""
    find = lambda row, wanted: jnp.searchsorted(row, wanted, side="right" if right else "left")  # noqa: E731
    if sorted_sequence.ndim == 1:
        found = find(sorted_sequence, values)
    else:
        rows = sorted_sequence.reshape(-1, sorted_sequence.shape[-1])
        found = jax.vmap(find)(rows, values.reshape(rows.shape[0], -1)).reshape(values.shape)
    return found.astype(np.int32 if out_int32 else np.int64)


@op(diff="", lod=None)
def bincount(x, weights=None, *, minlength: int = 0):
    """Out[n] = the number of occurrences of n in X [N], or the sum of its Weights; at least ``minlength`` long.

    The size of the result depends on the values, so the program is compiled for each largest one.
    """
    most = int(concrete_scalar(jnp.max(x), "bincount: the largest number")) + 1 if x.size else 0
    out = jnp.bincount(x, weights, length=max(most, minlength))
    return out if weights is not None else out.astype(np.int64)


@op(diff="", lod=None)
def histogram(x, *, bins: Long = 100, min: int = 0, max: int = 0):
    """Out[bins] = histogram of X over ``bins`` equal bins in [min, max], or in X's own range."""
    low, high = (jnp.min(x), jnp.max(x)) if min == max else (min, max)
    low, high = jnp.where(low == high, low - 1.0, low), jnp.where(low == high, high + 1.0, high)
    part = jnp.floor((x.reshape(-1) - low) * bins / (high - low)).astype(np.int32)
    inside = (x.reshape(-1) >= low) & (x.reshape(-1) <= high)
    return jnp.zeros(bins, np.int64).at[jnp.minimum(part, bins - 1)].add(inside.astype(np.int64))


def _running(x, axis: int, dtype: int, later: Any):
    """The running extreme along an axis and its place; of equal values the later one, and NaN stays."""

    def better(a, b):
        take = later(b[0], a[0]) | jnp.isnan(b[0]) if jnp.issubdtype(x.dtype, jnp.floating) else later(b[0], a[0])
        return tuple(jnp.where(take, new, old) for old, new in zip(a, b, strict=True))

    places = jax.lax.broadcasted_iota(to_numpy(dtype), x.shape, axis % x.ndim)
    return jax.lax.associative_scan(better, (x, places), axis=axis)


_RUNNING = {"out": "out indices", "slots": {"x": "x"}, "diff": "", "lod": {"out": "x"}}


@op(**_RUNNING)
def cummax(x, *, axis: int = -1, dtype: int = 3):
    """out, indices = the cumulative maximum along ``axis`` and its position."""
    return _running(x, axis, dtype, jnp.greater_equal)


@op(**_RUNNING)
def cummin(x, *, axis: int = -1, dtype: int = 3):
    """out, indices = the cumulative minimum along ``axis`` and its position."""
    return _running(x, axis, dtype, jnp.less_equal)


@op(out="Out Index? Counts?", kind="host", diff="", lod=None)
def unique_consecutive(
    x, *, return_inverse: bool = False, return_counts: bool = False, axis: list[int] = (), dtype: int = 5
):
    """Out = X (flattened, or slices along ``axis``) without consecutive duplicates.

    Index maps elements to results, Counts holds the lengths of runs. A host op.
    """
    del return_inverse, return_counts
    rows = np.moveaxis(np.asarray(x), axis[0], 0) if len(axis) else np.asarray(x).reshape(-1)
    new = np.ones(len(rows), np.bool_)
    new[1:] = (rows[1:] != rows[:-1]).reshape(max(len(rows) - 1, 0), -1).any(axis=1)
    out = np.moveaxis(rows[new], 0, axis[0]) if len(axis) else rows[new]
    counts = np.diff(np.append(np.flatnonzero(new), len(rows)))
    return out, (np.cumsum(new) - 1).astype(to_numpy(dtype)), counts.astype(to_numpy(dtype))


unique_consecutive.with_room(roomy.consecutive)


@op(out="Out MedianIndex~", diff="", lod=None)
def nanmedian(x, *, axis: list[int] = (), keepdim: bool = True):
    """Out = the median along ``axis`` (or of all elements), ignoring NaN."""
    over = tuple(axis) or None
    return jnp.nanmedian(x, axis=over, keepdims=keepdim), None


@op(diff="")
def renorm(x, *, p: float, axis: int, max_norm: float):
    """Out = X whose slices along ``axis`` are scaled down to a p-norm of at most ``max_norm``."""
    others = tuple(d for d in range(x.ndim) if d != axis % x.ndim)
    norms = jnp.sum(jnp.abs(x) ** p, axis=others, keepdims=True) ** (1 / p)
    return jnp.where(norms > max_norm, x * (max_norm / (norms + 1e-7)), x)
