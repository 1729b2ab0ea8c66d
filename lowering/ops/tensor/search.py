"""Sorting, searching and distinct values.

The result sizes of where_index, unique and unique_with_counts depend on the data, so they run on the host between
the jitted parts of a program, and return unpadded results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from lowering.dtypes import INT64, to_numpy
from lowering.ops import fitting
from lowering.ops.shared import concrete_scalar, off_rows, outputs_like
from lowering.ops.tensor import roomy_unique as roomy
from lowering.ops.tensor.top import largest
from lowering.program import VarInfo
from lowering.registry import Wise, op
from lowering.values import LoDArray, Meta, data_of, fill_padding, is_padded, row_mask


def _infer_top_k(op, var_of):
    x = var_of(op.inputs["X"][0])
    k = -1 if op.inputs.get("K") else int(op.attrs.get("k", 1))
    dims = (*x.shape[:-1], k)
    values = outputs_like(op, "Out", VarInfo(dims, x.dtype, x.lod_level))
    return values | outputs_like(op, "Indices", VarInfo(dims, INT64, x.lod_level))


@op(out="Out Indices", lod={"Out": "x", "Indices": "x"}, rows=Wise("x"), diff="x", infer=_infer_top_k)
def top_k(x, k=None, *, k_: int = 1, ctx):
    """Out, Indices = the k largest values of each row (last dimension) and their positions, descending; K overrides."""
    count = k_ if k is None else int(concrete_scalar(k, "top_k: K"))
    values, indices = largest(x, count, ctx.platform)
    return values, indices.astype(np.int64)


@top_k.grad
def _(x: Meta, indices, d_out):
    return _scattered_last(x, indices, d_out)


def _scattered_last(x: Meta, indices: Any, d_out: Any) -> Any:
    """Gradients of values taken along the last dim, put back to their places."""
    flat, width = indices.reshape(-1, indices.shape[-1]), x.shape[-1]
    rows = jnp.arange(flat.shape[0], dtype=flat.dtype)[:, None]
    zeros = jnp.zeros((flat.shape[0], width), d_out.dtype)
    return zeros.at[rows, flat].add(d_out.reshape(flat.shape)).reshape(x.shape)


@op(out="Out Indices", lod={"Out": "x", "Indices": "x"}, rows=off_rows, diff="x")
def argsort(x, *, axis: int = -1, descending: bool = False):
    """Out, Indices = X sorted along ``axis`` and the original positions; the sort is stable."""
    indices = jnp.argsort(x, axis=axis, stable=True, descending=descending)
    return jnp.take_along_axis(x, indices, axis=axis), indices.astype(np.int64)


@argsort.grad
def _(x: Meta, indices, d_out, *, axis):
    moved = Meta(tuple(np.moveaxis(np.empty(x.shape, np.bool_), axis, -1).shape), x.dtype)
    grad = _scattered_last(moved, jnp.moveaxis(indices, axis, -1), jnp.moveaxis(d_out, axis, -1))
    return jnp.moveaxis(grad, -1, axis)


def _infer_where_index(op, var_of):
    condition = var_of(op.inputs["Condition"][0])
    return outputs_like(op, "Out", VarInfo((-1, len(condition.shape)), INT64, 0))


@op(kind="host", infer=_infer_where_index, diff="", lod=None)
def where_index(condition):
    """Out [count, rank] = the indices of Condition's true elements, in row-major order. A host op.

    Its rows are as many as the values say; they are a LoDArray, so that they may be given room.
    """
    return LoDArray(np.argwhere(np.asarray(data_of(condition))).astype(np.int64))


@where_index.with_room
def _(condition: Any):
    return rows_where(
        (jnp.asarray(data_of(condition)) != 0) & valid(condition), lambda *at: jnp.stack(at, 1).astype(np.int64)
    )


def valid(x: Any) -> Any:
    """Whether an element is one of a value's rows, not of its padding; broadcasts against the value."""
    return row_mask(x) if is_padded(x) else True


def rows_where(mask: Any, taken: Callable[..., Any]) -> LoDArray:
    """``taken`` of the positions where a mask holds, in row-major order, with room for all positions."""
    count = jnp.sum(mask, dtype=np.int32)
    rows = taken(*jnp.nonzero(mask, size=mask.size, fill_value=0))
    return LoDArray(fill_padding(rows, count, backward=False), (), count)


def distinct(x: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct values in order of first appearance, the place of each element among them, and their counts."""
    flat = np.asarray(data_of(x)).reshape(-1)
    values, first, inverse, counts = np.unique(flat, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return values[order], rank[inverse.reshape(-1)], counts[order]


def _infer_unique(op, var_of):
    x = var_of(op.inputs["X"][0])
    number = int(op.attrs["dtype"])
    found = outputs_like(op, "Out", VarInfo((-1,), x.dtype, 0))
    found |= outputs_like(op, "Index", VarInfo(tuple(x.shape), number, 0))
    return found | outputs_like(op, "Count", VarInfo((-1,), number, 0))


@op(
    out="Out Index Indices? Counts?", kind="host", infer=_infer_unique, diff="", lod=None,
    newer="return_index return_inverse return_counts axis is_sorted indices counts",
)  # fmt: skip
def unique(
    x, *, dtype: int, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
    axis: list[int] = (), is_sorted: bool = False,
):  # fmt: skip
    """Out = the distinct values of X in order of appearance; Index [N] = the index of each X among them. A host op.

    Paddle 2 sorts them (``is_sorted``), for flattened X or along ``axis``, and also returns first positions
    (Indices) and Counts.
    """
    del return_index, return_inverse, return_counts
    kind = to_numpy(dtype)
    if not is_sorted:
        values, index, _ = distinct(x)
        return LoDArray(values), index.astype(kind), None, None
    along = axis[0] if len(axis) else None
    values, first, inverse, counts = np.unique(np.asarray(x), True, True, True, axis=along)
    return values, inverse.reshape(-1).astype(kind), first.astype(kind), counts.astype(kind)


unique.with_room(roomy.distinct)


@unique.fits
def _(x, *, is_sorted):
    if not is_sorted:
        fitting.rank("X", x, 1)


@op(out="Out Index Count", kind="host", infer=_infer_unique, diff="", lod=None)
def unique_with_counts(x, *, dtype: int):
    """``unique`` with Count = the number of occurrences of each value. A host op."""
    values, index, counts = distinct(x)
    kind = to_numpy(dtype)
    return LoDArray(values), index.astype(kind), LoDArray(counts.astype(kind))


unique_with_counts.with_room(roomy.with_counts)
