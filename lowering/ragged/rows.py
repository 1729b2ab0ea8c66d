"""Helpers shared by sequence ops: offsets, segment numbers, row gathers and padding.

Row numbers and offsets are int32. If offsets are known during tracing (NumPy arrays), the results stay NumPy.
The closed forms here compile in a fraction of the time that ``searchsorted`` and ``cumsum`` take on CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from lowering.engine.gradients.grad_maker import GradMaker
from lowering.errors import NeedsConcrete
from lowering.program import GRAD, OpSpec
from lowering.symbols import is_symbol, number
from lowering.values import Array, LoDArray, Meta, concrete, fill_padding, is_concrete

# Comparing every row with every offset is fastest up to this many pairs; a binary search above it.
DENSE_PAIRS = 1 << 24


def offsets(x: LoDArray | Meta, level: int = -1) -> Array:
    """The int32 offsets of one LoD level (default the finest); ValueError if ``x`` has none."""
    if not x.lod:
        raise ValueError(
            f"a sequence op got a tensor of shape {list(x.shape)} without LoD; expected at least one LoD level."
            " Feed it as a LoDTensor (create_lod_tensor), or give it a LoD with lod_reset"
        )
    off = x.lod[level]
    return off.astype(np.int32) if off.dtype != np.int32 else off


def lengths(off: Array) -> Array:
    """int32 [n]: the length of each sequence."""
    return off[1:] - off[:-1]


def row_numbers(count: Any) -> Any:
    """int32 [count]: 0, 1, 2 ..., on the host if the number is known."""
    return jnp.arange(count, dtype=np.int32) if is_symbol(count) else np.arange(count, dtype=np.int32)


def segments(off: Array, rows: Array) -> Array:
    """int32: the sequence that each row number belongs to; the number of sequences for rows past the last one."""
    if is_concrete(off) and is_concrete(rows):
        return np.searchsorted(off[1:], rows, side="right").astype(np.int32)
    pairs = off.shape[0] * rows.size
    if is_symbol(pairs) or pairs <= DENSE_PAIRS:
        return jnp.sum(off[1:, None] <= rows.reshape(1, -1), axis=0, dtype=jnp.int32).reshape(rows.shape)
    return jnp.searchsorted(jnp.asarray(off[1:]), rows, side="right").astype(jnp.int32)


def offsets_of(counts: Array) -> Array:
    """int32 [n + 1]: offsets of sequences with these lengths."""
    n = counts.shape[0]
    if is_concrete(counts):
        return np.concatenate([np.zeros(1, np.int32), np.cumsum(counts)]).astype(np.int32)
    counts = counts.astype(jnp.int32)
    if is_symbol(n) or n > 2048:
        return jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(counts)])
    before = np.arange(n)[None, :] < np.arange(n + 1)[:, None]
    return jnp.sum(jnp.where(before, counts[None, :], 0), axis=1, dtype=jnp.int32)


def longest(off: Array) -> Array:
    """The longest length; 0 if there is no sequence."""
    if off.shape[0] < 2:
        return np.int32(0)
    return lengths(off).max()


def static_longest(x: LoDArray, what: str) -> int:
    """The longest length as a Python int; NeedsConcrete if a trace does not know it."""
    if x.tight:
        return x.longest[-1]
    try:
        return int(longest(concrete(offsets(x), what)))
    except NeedsConcrete as needed:
        needed.longest = True
        raise


def take(x: Array, index: Array) -> Array:
    """Rows of ``x``; row numbers outside are clamped. An ``x`` without rows gives zeros."""
    if x.shape[0] == 0:
        return jnp.zeros(index.shape + x.shape[1:], x.dtype)
    return jnp.take(x, index, axis=0, mode="clip")


def expand_dims(flags: Array, ndim: int) -> Array:
    """Append axes until ``flags`` broadcasts against rows with ``ndim`` dims in all."""
    return flags.reshape(flags.shape + (1,) * (ndim - flags.ndim))


def segment_sum(x: Array, seg: Array, count: int) -> Array:
    """[count, ...]: the sum of the rows of each segment; rows with ``seg >= count`` are dropped."""
    zeros = jnp.zeros((count,) + x.shape[1:], x.dtype)
    return zeros.at[seg].add(x, mode="drop", indices_are_sorted=True)


def segment_max(x: Array, seg: Array, count: int, lowest: Any) -> Array:
    """[count, ...]: the maximum over the rows of each segment, ``lowest`` where a segment has none."""
    start = jnp.full((count,) + x.shape[1:], lowest, x.dtype)
    return start.at[seg].max(x, mode="drop", indices_are_sorted=True)


def lowest(dtype: Any) -> Any:
    """The smallest value of a dtype (minus infinity for floats)."""
    return -np.inf if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).min


def highest(dtype: Any) -> Any:
    """The largest value of a dtype (infinity for floats)."""
    return np.inf if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).max


def sequence_count(x: LoDArray) -> Array | None:
    """The number of valid sequences of the finest level; None if all are valid."""
    if not x.padded:
        return None
    return x.lod[-2][-1] if len(x.lod) > 1 else x.nseq


def per_sequence(x: LoDArray, data: Array, *, backward: bool = False) -> LoDArray:
    """A value with one row per sequence of the finest level of ``x``, which is dropped from its LoD."""
    count = sequence_count(x)
    nseq = x.nseq if len(x.lod) > 1 else None
    return LoDArray(fill_padding(data, count, backward=backward), tuple(x.lod[:-1]), count, nseq, x.longest[:-1])


def per_row(x: LoDArray, data: Array, *, backward: bool = False) -> LoDArray:
    """A value with the rows and the LoD of ``x``."""
    return x.with_data(fill_padding(data, x.nrows, backward=backward))


def without_lod(x: LoDArray) -> LoDArray:
    """The rows of ``x``, of which some may be padding, without its LoD."""
    return replace(x, lod=(), nseq=None, longest=(), tight=False)


def row_gradient(x: Any, data: Array) -> Any:
    """The gradient of ``x``: its rows, zero on padding; a plain array stays one."""
    if isinstance(x, Meta):
        return x.like(fill_padding(data, x.nrows, backward=True))
    return per_row(x, data, backward=True) if isinstance(x, LoDArray) else data


def new_rows(
    data: Array,
    lod: Sequence[Array],
    like: LoDArray,
    *,
    exact: bool = False,
    backward: bool = False,
    longest: tuple[int, ...] = (),
) -> LoDArray:
    """Rows under a new LoD, with as many top-level sequences as ``like``.

    ``exact``: every row is valid; otherwise the last offset is the number of valid rows, and the rest is padding.
    ``longest``: bounds of the longest sequences, if known.
    """
    last = lod[-1][-1]
    exact = exact or (is_concrete(last) and int(last) == data.shape[0])
    nrows = None if exact else jnp.asarray(last, jnp.int32)
    return LoDArray(fill_padding(data, nrows, backward=backward), tuple(lod), nrows, like.nseq, longest)


def shifted(x: Array, by: int) -> Array:
    """Row ``r`` of the result is row ``r + by`` of ``x``; zeros if there is none."""
    if by == 0:
        return x
    zeros = jnp.zeros((min(abs(by), x.shape[0]),) + x.shape[1:], x.dtype)
    if by > 0:
        return jnp.concatenate([x[by:], zeros])
    return jnp.concatenate([zeros, x[: x.shape[0] + by]]) if -by < x.shape[0] else zeros


def stretch(x: Array, start: int, count: int) -> Array:
    """Rows ``start`` to ``start + count - 1`` of ``x``; zeros where there is none.

    They are selected, not concatenated: XLA:CPU fuses both with what makes ``x``, but a concatenation decides element
    by element which part it reads, and LLVM takes that out of the innermost loop at its highest level only.
    """
    at = row_numbers(count) + np.int32(start)
    inside = expand_dims((at >= 0) & (at < number(x.shape[0])), x.ndim)
    xp: Any = np if is_concrete(inside) else jnp
    return jnp.where(inside, take(x, xp.clip(at, 0, number(max(x.shape[0] - 1, 0)))), jnp.zeros((), x.dtype))


def step_before(x: Array, first: Array, initial: Array | None, *, reverse: bool) -> Array:
    """The row one step earlier than each, or one later in ``reverse``; ``initial``, or zeros, where ``first``."""
    neighbour = stretch(x, 1 if reverse else -1, x.shape[0])
    start = jnp.zeros((), x.dtype) if initial is None else initial
    return jnp.where(expand_dims(first, x.ndim), start, neighbour)


def bounds(off: Array, capacity: int) -> tuple[Array, Array, Array]:
    """(sequence, first row, one past the last row) of each row; padding rows count as one empty sequence."""
    seg = segments(off, row_numbers(capacity))
    ends = np.concatenate if is_concrete(off) else jnp.concatenate
    closed = ends([off, off[-1:]])
    return seg, closed[seg], closed[seg + 1]


def grad_spec(g: GradMaker, reads: str, writes: str, type: str | None = None) -> list[OpSpec]:
    """The regular grad op with just these slots: for ops whose gradient reads depend on an attribute.

    Args:
        reads: names of input, output and output gradient slots.
        writes: input slots that get gradients.
    """
    inputs = {}
    for name in reads.split():
        if name.endswith(GRAD):
            inputs[name] = g.output_grad(name[: -len(GRAD)])
        else:
            inputs[name] = g.input(name) if name in g.op.inputs else g.output(name)
    outputs = {slot + GRAD: g.input_grad(slot) for slot in writes.split()}
    if not g.grad_to_var:
        return []
    return [OpSpec(type or g.op.type + "_grad", inputs, outputs, g.attrs)]
