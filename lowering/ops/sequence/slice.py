"""Slicing sequences, sliding windows of ids, and LoD changes."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from lowering.engine.checks import Demand
from lowering.engine.context import Context
from lowering.errors import NeedsExact
from lowering.ops.sequence import shapes
from lowering.ragged import infer as sequence_infer
from lowering.ragged.rows import (
    bounds,
    expand_dims,
    new_rows,
    offsets,
    offsets_of,
    per_row,
    row_gradient,
    row_numbers,
    shifted,
    take,
)
from lowering.registry import MASKED, op
from lowering.symbols import number
from lowering.values import Array, LoDArray, Meta


@op(rows=MASKED, lod=None, diff="x", infer=sequence_infer.like("X", level=0))
def sequence_slice(x: LoDArray, offset, length):
    """Rows [offset[i], offset[i] + length[i]) of sequence i of X."""
    off = offsets(x)
    cut = offsets_of(length.reshape(-1)).astype(np.int32)
    seg, start, _ = bounds(cut, x.capacity)
    first = off[:-1] + offset.reshape(-1).astype(np.int32)
    out = take(x.data, take(first, seg) + row_numbers(x.capacity) - start)
    return new_rows(out, (*x.lod[:-1], cut), x, longest=x.longest)


@sequence_slice.check
def _(x: LoDArray, offset, length):
    off, first, count = x.lod[-1], offset.reshape(-1), length.reshape(-1)
    return [Demand("offset", first), Demand("length", count, 0, off[1:] - off[:-1] - first + 1)]


@sequence_slice.grad
def _(x: Meta, offset, length, d_out):
    cut = offsets_of(length.reshape(-1)).astype(np.int32)
    seg, start, _ = bounds(offsets(x), x.capacity)
    local = row_numbers(x.capacity) - start - take(offset.reshape(-1).astype(np.int32), seg)
    inside = (local >= 0) & (local < take(length.reshape(-1).astype(np.int32), seg))
    grad = take(d_out, take(cut[:-1], seg) + local)
    return row_gradient(x, jnp.where(expand_dims(inside, grad.ndim), grad, 0))


def compact(x: LoDArray, keep: Array) -> LoDArray:
    """The rows of ``x`` where ``keep`` (bool [capacity]) holds, in sequences that are shorter by the others."""
    off = offsets(x)
    keep = keep & (row_numbers(x.capacity) < off[-1])
    kept = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(keep, dtype=jnp.int32)])
    target = jnp.where(keep, kept[:-1], number(x.capacity))
    out = jnp.zeros(x.shape, x.dtype).at[target].set(x.data, mode="drop")
    return new_rows(out, (*x.lod[:-1], take(kept, off)), x, longest=x.longest)


@op(rows=MASKED, lod=None, diff="", infer=sequence_infer.like("X"))
def sequence_erase(x: LoDArray, *, tokens: list[int]):
    """X without the ids listed in ``tokens``."""
    flat = x.data.reshape(x.capacity)
    erased = np.asarray(tokens, x.dtype)
    return compact(x, jnp.all(flat[:, None] != erased[None, :], axis=1))


@op(
    rows=MASKED,
    diff="",
    vendor="@ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@",
    infer=shapes.sequence_enumerate,
)
def sequence_enumerate(x: LoDArray, *, win_size: int, pad_value: int = 0):
    """Out[r, j] = X[r + j] within the sequence of row r, ``pad_value`` beyond its end."""
    _, _, end = bounds(offsets(x), x.capacity)
    flat, rows = x.data.reshape(x.capacity), row_numbers(x.capacity)
    fill = jnp.asarray(pad_value, x.dtype)
    windows = [jnp.where(rows + j < end, shifted(flat, j), fill) for j in range(win_size)]
    return per_row(x, jnp.stack(windows, axis=1))


@op(rows=MASKED, lod=None, diff="x", infer=shapes.lod_reset, inplace={"Out": "x"})
def lod_reset(x: LoDArray, y: LoDArray = None, *, ctx, target_lod: list[int] = [], append: bool = False):  # noqa: B006
    """X with a new LoD: that of Y, or the offsets stored in Y, or ``target_lod``.

    ``append`` adds the offsets as a new finest level instead of replacing the LoD.
    """
    if y is not None and y.lod:
        return LoDArray(x.data, y.lod, x.nrows, y.nseq, y.longest)
    if y is not None and y.padded:
        return _of_padded_offsets(x, y, ctx, append=append and bool(x.lod))
    level = _offsets_given(y, target_lod)
    if level.shape[0] == 0:
        raise ValueError("lod_reset needs Y or a target_lod that is not empty; received neither")
    if append and x.lod:
        return LoDArray(x.data, (*x.lod, level), x.nrows, x.nseq)
    return LoDArray(x.data, (level,), x.nrows)


def _of_padded_offsets(x: LoDArray, y: LoDArray, ctx: Context, *, append: bool) -> LoDArray:
    """X with the offsets that the valid rows of Y hold: those after them repeat the last one, as sequences that are
    empty, of which the value says that they are none.
    """
    if append:
        raise NeedsExact("an inner LoD level of which only the run knows how many sequences it has")
    given = y.data.reshape(-1).astype(np.int32)
    last = jnp.maximum(y.rows() - 1, 0)
    level = jnp.where(row_numbers(y.capacity) < y.rows(), given, take(given, last))
    ctx.runner.fed.follow(last, y.rows(), -1)
    return LoDArray(x.data, (level,), x.nrows if x.padded else jnp.int32(x.capacity), last)


def _offsets_given(y: LoDArray | None, target_lod: list[int]) -> Array:
    """The numbers that Y holds, else the attribute."""
    return np.asarray(target_lod, np.int32) if y is None else y.data.reshape(-1).astype(np.int32)


@lod_reset.check
def _(x: LoDArray, y: LoDArray = None, *, target_lod):
    rows = x.rows()
    if y is not None and y.lod:
        return [Demand("y", y.lod[-1][-1:], rows, rows + 1, words="a LoD that ends at the number of rows of X")]
    level = _offsets_given(y, target_lod)
    ends, last = np.arange(level.shape[0]), level.shape[0] - 1
    if y is not None and y.padded:
        level, last = jnp.where(ends < y.rows(), level, rows), y.rows() - 1
    low = jnp.where(ends >= last, rows, jnp.where(ends == 0, 0, jnp.roll(level, 1)))
    words = "offsets that start at 0, do not decrease and end at the number of rows of X"
    # As one row of numbers: they are no rows of X, whose padding would hide some.
    return [Demand("x" if y is None else "y", level[None], low, jnp.where(ends == 0, 1, rows + 1), words=words)]


@lod_reset.grad
def _(x: Meta, d_out):
    return row_gradient(x, d_out.reshape(x.shape))
