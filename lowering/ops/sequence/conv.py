"""Convolutions along sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering.ops import fitting
from lowering.ops.sequence import shapes
from lowering.ragged import infer as sequence_infer
from lowering.ragged.rows import bounds, expand_dims, grad_spec, offsets, per_row, row_gradient, row_numbers, shifted
from lowering.registry import MASKED, op
from lowering.values import Array, LoDArray


def _paddings(start: int, length: int) -> tuple[int, int]:
    """How many rows of trainable padding a context has before and after a sequence."""
    return max(0, -start), max(0, start + length - 1)


def _inside(off: Array, capacity: int, by: Any) -> Array:
    """bool [capacity, 1]: whether row r + by belongs to the sequence of row r."""
    _, start, end = bounds(off, capacity)
    rows = row_numbers(capacity) + by
    return ((rows >= start) & (rows < end))[:, None]


def _padding_rows(off: Array, capacity: int, by: int, up: int, count: int) -> Array:
    """[capacity, count], one-hot: the padding row that stands for row r + by; all zero inside the sequence."""
    _, start, end = bounds(off, capacity)
    rows = row_numbers(capacity) + np.int32(by)
    index = jnp.where(rows < start, rows - start + up, rows - end + up)
    outside = ((rows < start) | (rows >= end)) & (row_numbers(capacity) < off[-1])
    return (index[:, None] == row_numbers(count)[None, :]) & outside[:, None]


def context_columns(x: Array, off: Array, start: int, length: int, padding: Array | None = None) -> Array:
    """[capacity, length * width]: for each row its context, rows outside the sequence from ``padding`` or zero."""
    up, down = _paddings(start, length)
    columns = []
    for by in range(start, start + length):
        column = jnp.where(_inside(off, x.shape[0], by), shifted(x, by), 0)
        if padding is not None and up + down:
            chosen = _padding_rows(off, x.shape[0], by, up, up + down)
            column = column + jnp.dot(chosen.astype(x.dtype), padding)
        columns.append(column)
    return jnp.concatenate(columns, axis=1)


def context_gradient(d_columns: Array, off: Array, start: int, length: int) -> Array:
    """The gradient of ``x`` in ``context_columns``."""
    capacity = d_columns.shape[0]
    total = None
    for by, part in zip(range(start, start + length), jnp.split(d_columns, length, axis=1), strict=True):
        moved = shifted(jnp.where(_inside(off, capacity, by), part, 0), -by)
        total = moved if total is None else total + moved
    return total


def _padding_gradient(d_columns: Array, off: Array, start: int, length: int) -> Array:
    up, down = _paddings(start, length)
    capacity = d_columns.shape[0]
    parts = jnp.split(d_columns, length, axis=1)
    total = jnp.zeros((up + down, parts[0].shape[1]), d_columns.dtype)
    for by, part in zip(range(start, start + length), parts, strict=True):
        chosen = _padding_rows(off, capacity, by, up, up + down)
        total = total + jnp.dot(chosen.astype(part.dtype).T, part)
    return total


def check_context(contextLength: int, contextStride: int) -> None:
    """Raise ValueError unless contextStride is 1 and contextLength at least 1, as Fluid's op requires."""
    if contextStride != 1 or contextLength < 1:
        raise ValueError(
            f"sequence_conv takes contextStride 1 and contextLength >= 1, received {contextStride} and"
            f" {contextLength}; change the layer's filter_stride or filter_size"
        )


@op(rows=MASKED, infer=shapes.sequence_conv)
def sequence_conv(
    x: LoDArray,
    filter,
    padding_data=None,
    *,
    paddingTrainable: bool = False,
    contextLength: int,
    contextStart: int = 0,
    contextStride: int = 1,
):
    """Out[r] = concat(X[r + contextStart], ..., contextLength rows) Filter, zero outside the sequence.

    With ``paddingTrainable``, the rows before and after a sequence come from PaddingData.
    """
    check_context(contextLength, contextStride)
    padding = padding_data if paddingTrainable else None
    columns = context_columns(x.data, offsets(x), contextStart, contextLength, padding)
    return per_row(x, jnp.dot(columns, filter))


@sequence_conv.fits
def _(*, contextStride):
    fitting.one_of("contextStride", contextStride, (1,))


@sequence_conv.grad(wrt="x padding_data filter")
def _(
    x: LoDArray,
    filter,
    d_out,
    padding_data=None,
    *,
    paddingTrainable=False,
    contextLength: int,
    contextStart=0,
):
    off = offsets(x)
    padding = padding_data if paddingTrainable else None
    columns = context_columns(x.data, off, contextStart, contextLength, padding)
    d_columns = jnp.dot(d_out, filter.T)
    d_x = context_gradient(d_columns, off, contextStart, contextLength)
    d_padding = None if padding is None else _padding_gradient(d_columns, off, contextStart, contextLength)
    return row_gradient(x, d_x), d_padding, jnp.dot(columns.T, d_out)


@sequence_conv.grad_maker
def _(g):
    trainable = bool(g.attrs.get("paddingTrainable"))
    extra = " PaddingData" if trainable and g.input("PaddingData") else ""
    return grad_spec(g, "X Filter Out@GRAD" + extra, "X Filter" + extra)


@op(rows=MASKED, infer=sequence_infer.like("X"))
def row_conv(x: LoDArray, filter):
    """Out[r] = sum over w of Filter[w] * X[r + w] within the sequence (X may be a padded batch [n, t, d] too).

    The terms are added in a loop: XLA on CPUs makes two kernels of each, and compiles them longer, where it sees all.
    """
    return per_row(x, _weighted(x, filter, _moved(x, x.data, filter.shape[0]), 1))


def _moved(x: LoDArray, data: Array, most: int) -> Callable[[Array], Array]:
    """``by`` -> ``data`` at step r + by, if that belongs to the sequence of step r of X, else 0; |by| <= most."""
    axis = 0 if x.lod else 1
    wide = jnp.pad(data, [(most, most) if d == axis else (0, 0) for d in range(data.ndim)])

    def moved(by: Array) -> Array:
        part = lax.dynamic_slice_in_dim(wide, by + most, data.shape[axis], axis)
        return jnp.where(_inside(offsets(x), x.capacity, by), part, 0) if x.lod else part

    return moved


def _weighted(x: LoDArray, filter: Array, moved: Callable[[Array], Array], sign: int) -> Array:
    """The sum over w of Filter[w] * moved(sign * w)."""
    term = lambda by, total: total + moved(sign * by) * lax.dynamic_index_in_dim(filter, by, keepdims=False)  # noqa: E731
    return lax.fori_loop(0, filter.shape[0], term, jnp.zeros_like(x.data))


@row_conv.grad
def _(x: LoDArray, filter, d_out):
    count, axes = filter.shape[0], tuple(range(d_out.ndim - 1))
    after, before = _moved(x, x.data, count), _moved(x, d_out, count)
    d_filter = lax.map(lambda by: jnp.sum(after(by) * d_out, axis=axes), row_numbers(count))
    return row_gradient(x, _weighted(x, filter, before, -1)), d_filter


@op(rows=MASKED)
def add_position_encoding(x: LoDArray, *, alpha: float = 1.0, beta: float = 1.0):
    """Out = alpha X + beta PE; PE[t] = (sin(t / 10000^(k / (h - 1))), cos(same)) for k < h = width / 2.

    t counts the rows of a sequence, or the second axis of a padded batch [n, t, width].
    """
    width = x.shape[-1]
    if width % 2:
        raise ValueError(f"add_position_encoding takes rows of even width, received {width}; pad the width")
    half = width // 2
    exponents = np.arange(half) / max(half - 1, 1) if half > 1 else np.ones(1)
    scale = 10000.0**exponents
    if x.lod:
        steps = row_numbers(x.capacity) - bounds(offsets(x), x.capacity)[1]
    else:
        steps = row_numbers(x.shape[1])
    angle = jnp.asarray(steps, jnp.float64)[:, None] / scale[None, :]
    encoding = jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=1).astype(x.dtype)
    encoding = encoding if x.lod else expand_dims(encoding[None], 3)
    return per_row(x, x.data * jnp.asarray(alpha, x.dtype) + encoding * jnp.asarray(beta, x.dtype))


@add_position_encoding.grad
def _(d_out: LoDArray, *, alpha=1.0):
    return d_out.with_data(d_out.data * jnp.asarray(alpha, d_out.dtype))
