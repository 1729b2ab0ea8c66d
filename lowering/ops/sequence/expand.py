"""Repeating, joining and reordering sequences."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from lowering.engine.checks import Demand
from lowering.ops.sequence import shapes
from lowering.program import OpSpec
from lowering.ragged import infer as sequence_infer
from lowering.ragged.rows import (
    bounds,
    expand_dims,
    lengths,
    new_rows,
    offsets,
    row_gradient,
    row_numbers,
    segment_sum,
    segments,
    take,
)
from lowering.registry import MASKED, op
from lowering.symbols import number
from lowering.values import Array, LoDArray, Meta, concrete, fill_padding


def _level(y: Meta, ref_level: int) -> int:
    if not -1 <= ref_level < max(len(y.lod), 1):
        raise ValueError(f"ref_level {ref_level} is no level of Y, whose LoD has {len(y.lod)}; pass -1 or less")
    return ref_level if ref_level >= 0 else len(y.lod) - 1


def _expanded_rows(y: Meta, level: int) -> int:
    """The static number of rows (or sequences of the next level) that a level of ``y`` spans."""
    return y.capacity if level == len(y.lod) - 1 else y.lod[level + 1].shape[0] - 1


def _repeat_rows(x: Array, y: Meta, level: int) -> LoDArray:
    """Row i of ``x`` once for each entry of sequence i of ``y``."""
    off = offsets(y, level)
    out = take(x, segments(off, row_numbers(_expanded_rows(y, level))))
    nrows = jnp.asarray(off[-1], jnp.int32) if y.padded else None
    return LoDArray(fill_padding(out, nrows, backward=False), (), nrows)


def _repeated_sequences(x: LoDArray | Meta, y: Meta, level: int) -> tuple[np.ndarray, np.ndarray]:
    """(source row of each output row, output offsets) where whole sequences of ``x`` are repeated."""
    off = concrete(offsets(x), "the LoD of sequence_expand's X")
    times = np.diff(concrete(offsets(y, level), "the LoD of sequence_expand's Y"))
    order = np.repeat(np.arange(len(off) - 1), times)
    sizes = np.diff(off)[order]
    out_off = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    rows = np.arange(out_off[-1]) - np.repeat(out_off[:-1], sizes) + np.repeat(off[:-1][order], sizes)
    return rows.astype(np.int32), out_off


def _sequences(value: LoDArray, level: int) -> Array:
    """How many sequences a level has; those of an inner level are the rows of the level around it."""
    if level > 0:
        return value.lod[level - 1][-1]
    return number(value.lod[0].shape[0] - 1) if value.nseq is None else value.nseq


def _rows(value: LoDArray) -> Array:
    return number(value.capacity) if value.nrows is None else value.nrows


def _as_many(found: Array, y: LoDArray, level: int) -> list[Demand]:
    """``found`` rows (or sequences) of X, one for each sequence of ``y``; gathers would repeat or drop the others."""
    many = _sequences(y, level)
    return [Demand("x", found, many, many + 1, words="as many rows, or sequences, as Y has sequences")]


@op(rows=MASKED, diff="x", infer=shapes.sequence_expand)
def sequence_expand(x: LoDArray, y: Meta, *, ref_level: int = -1):
    """Repeat sequence i of X (row i, without LoD) as often as sequence i of Y's ``ref_level`` has entries.

    Repetitions of sequences are separate sequences. ``ref_level`` -1 is Y's finest level.
    """
    level = _level(y, ref_level)
    if offsets(y, level).shape[0] <= 1:
        return x
    if not x.lod:
        return _repeat_rows(x.data, y, level)
    rows, off = _repeated_sequences(x, y, level)
    return LoDArray(take(x.data, rows), (off,))


@sequence_expand.check
def _(x: LoDArray, y: LoDArray, *, ref_level):
    level = _level(y, ref_level)
    if not y.lod or y.lod[level].shape[0] < 2:
        return []
    return _as_many(_sequences(x, 0) if x.lod else _rows(x), y, level)


@sequence_expand.grad
def _(x: Meta, y: Meta, d_out, *, ref_level=-1):
    level = _level(y, ref_level)
    off = offsets(y, level)
    if off.shape[0] <= 1:
        return x.like(d_out)
    if x.lod:
        rows, _ = _repeated_sequences(x, y, level)
        sums = jnp.zeros(x.shape, d_out.dtype).at[rows].add(d_out[: len(rows)], mode="drop")
    else:
        sums = segment_sum(d_out, segments(off, row_numbers(d_out.shape[0])), x.capacity)
    return row_gradient(x, sums)


@op(rows=MASKED, lod="y", diff="x", infer=shapes.sequence_expand_as)
def sequence_expand_as(x, y: Meta):
    """Repeat row i of X, whose LoD counts for nothing, as often as sequence i of Y has rows; Out has Y's LoD."""
    repeated = _repeat_rows(x, y, 0)
    return LoDArray(repeated.data, y.lod, repeated.nrows, y.nseq, y.longest)


@sequence_expand_as.check
def _(x: LoDArray, y: LoDArray):
    return _as_many(_rows(x), y, 0) if y.lod else []


@sequence_expand_as.grad
def _(x: Meta, y: Meta, d_out):
    seg = segments(offsets(y, 0), row_numbers(d_out.shape[0]))
    return row_gradient(x, segment_sum(d_out, seg, x.capacity))


def _joined(xs: list[LoDArray] | list[Meta]) -> tuple[Array, list[Array]]:
    """(offsets of the joined sequences, for each input the output row of each of its rows)."""
    offs = [offsets(x) for x in xs]
    if len({off.shape for off in offs}) > 1:
        counts = [off.shape[0] - 1 for off in offs]
        raise ValueError(f"sequence_concat joins as many sequences from each input, received {counts} of them")
    total = sum(offs[1:], offs[0])
    targets, before = [], total[:-1]
    for x, off in zip(xs, offs, strict=True):
        seg, start, _ = bounds(off, x.capacity)
        shift = take(before, seg) - start
        # Padding rows go after everything.
        inside = row_numbers(x.capacity) < off[-1]
        targets.append(jnp.where(inside, row_numbers(x.capacity) + shift, np.int32(2**30)))
        before = before + lengths(off)
    return total, targets


@op(rows=MASKED, infer=shapes.sequence_concat)
def sequence_concat(x: list[LoDArray]):
    """Sequence i of Out is the concatenation of the i-th sequences of all X."""
    total, targets = _joined(x)
    capacity = sum(v.capacity for v in x)
    out = jnp.zeros((capacity,) + x[0].shape[1:], x[0].dtype)
    for value, target in zip(x, targets, strict=True):
        out = out.at[target].set(value.data, mode="drop", unique_indices=True)
    bounds_known = all(v.longest for v in x)
    longest = (*x[0].longest[:-1], sum(v.longest[-1] for v in x)) if bounds_known else ()
    exact = not any(v.padded for v in x)
    return new_rows(out, (*x[0].lod[:-1], total), x[0], exact=exact, longest=longest)


@sequence_concat.grad
def _(x: list[Meta], d_out):
    _, targets = _joined(x)
    return [row_gradient(v, take(d_out, target)) for v, target in zip(x, targets, strict=True)]


def _reshaped(data: Array, width: int) -> Array:
    """Rows of another width; a last row that is not full (padding alone can be) is filled with zeros."""
    count = -(-data.size // width)
    flat = data.reshape(-1)
    if count * width != data.size:
        flat = jnp.concatenate([flat, jnp.zeros(count * width - data.size, data.dtype)])
    return flat.reshape(count, width)


@op(rows=MASKED, infer=shapes.sequence_reshape)
def sequence_reshape(x: LoDArray, *, new_dim: int):
    """Reshape to rows of width ``new_dim``; sequence lengths are scaled by width(X) / new_dim."""
    off, width = offsets(x), x.shape[1]
    if isinstance(off, np.ndarray) and np.any(off * width % new_dim):
        raise ValueError(
            f"sequence_reshape cannot cut sequences of offsets {off.tolist()} and width {width} into rows of"
            f" {new_dim}: each sequence must hold a multiple of {new_dim} numbers; change new_dim"
        )
    scaled = off * np.int32(width) // np.int32(new_dim)
    return new_rows(_reshaped(x.data, new_dim), (*x.lod[:-1], scaled), x, exact=not x.padded)


@sequence_reshape.grad
def _(x: LoDArray, d_out):
    flat = d_out.reshape(-1)[: x.data.size]
    return row_gradient(x, flat.reshape(x.shape))


@op(out="Y", lod="x", rows=MASKED, infer=sequence_infer.like("X", "Y"))
def sequence_reverse(x: LoDArray):
    """Reverse the rows of each sequence of X; the op is its own gradient."""
    _, start, end = bounds(offsets(x), x.capacity)
    rows = row_numbers(x.capacity)
    # Padding rows stay where they are, so both invariants (copies, or zeros in a gradient) survive.
    source = jnp.where(rows < offsets(x)[-1], start + end - 1 - rows, rows)
    return x.with_data(take(x.data, source))


@sequence_reverse.grad_maker
def _(g):
    return [OpSpec("sequence_reverse", {"X": g.output_grad("Y")}, {"Y": g.input_grad("X")}, g.attrs)]


@op(rows=MASKED, diff="x updates", lod=None, infer=sequence_infer.like("X", level=0))
def sequence_scatter(x, ids: LoDArray, updates: LoDArray):
    """Out = X, and Out[i, id] += update for each (id, update) of sequence i."""
    seg = segments(offsets(ids), row_numbers(ids.capacity))
    # ``seg`` is the number of sequences on padding rows, which is outside and dropped.
    return x.at[seg, ids.data.reshape(-1)].add(updates.data.reshape(-1).astype(x.dtype), mode="drop")


@sequence_scatter.check
def _(x: Meta, ids: LoDArray):
    return [Demand("ids", ids.data, 0, x.shape[1])]


@sequence_scatter.grad
def _(ids: LoDArray, updates: Meta, d_out):
    seg = segments(offsets(ids), row_numbers(ids.capacity))
    picked = d_out[jnp.minimum(seg, d_out.shape[0] - 1), ids.data.reshape(-1)]
    valid = expand_dims(seg < offsets(ids).shape[0] - 1, len(updates.shape))
    grad = jnp.where(valid, picked.reshape(updates.shape), 0)
    return d_out, row_gradient(updates, grad)
