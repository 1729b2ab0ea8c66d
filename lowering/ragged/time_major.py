"""Packed time-major order: the layout in which recurrences over ragged sequences do no superfluous work.

Sequences are sorted by decreasing length; the rows of step t of all sequences that reach it are adjacent, and the
steps follow each other. A recurrence is then a loop over windows of rows, with as many iterations as the longest
sequence has rows. The window narrows (to a half and a quarter of the batch) as sequences end: short ones cost little.

With alive(t) the number of sequences longer than t, step t begins at start(t) = alive(0) + ... + alive(t - 1), which is
also the sum over the sequences of min(t, length).

A window has a static width, at least alive(t), so it may extend into the rows of the next step; what
is written there is overwritten by later steps. Buffers therefore have one batch of spare rows. A backward loop must
write its steps consecutively too, the last one first: step t begins at total - start(t + 1) there, and ``back``
maps rows to that layout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering.ragged import alone
from lowering.ragged.alone import Alone, window, write
from lowering.ragged.rows import DENSE_PAIRS, bounds, lengths, row_numbers, step_before, stretch, take
from lowering.symbols import is_symbol, number
from lowering.values import Array, LoDArray, Meta, is_concrete

# Smaller batches run in one phase, and so do lighter steps, whose narrower windows would cost more than they save. A
# step's work is taken to be sequences times columns squared, as in a recurrent product.
_PHASED = 16
WORTH = 150_000
# Up to this many pairs of a row and a sequence, starts are computed as a sum over the sequences.


@dataclass(frozen=True)
class Packing:
    """The packed order of ``n`` sequences over ``capacity`` rows.

    Attributes:
        n, capacity: static counts.
        order: int32 [n], the sequence at each rank; ``rank`` is the inverse.
        sizes: int32 [n], decreasing lengths.
        source: int32 [capacity + n], the row at each packed position (0 where there is none).
        target: int32 [capacity], the packed position of each row; padding rows share that of row 0.
        back: int32 [capacity], the position of each row in a backward loop's buffer; padding rows point past all.
        first: bool [capacity], whether a row is where its sequence's recurrence starts.
        seg: int32 [capacity], the sequence of each row (clamped).
        end: int32 [capacity], one past the last row of each row's sequence; of padding rows, no more than their own.
    """

    n: int
    capacity: int
    order: Array
    rank: Array
    sizes: Array
    source: Array
    target: Array
    back: Array
    first: Array
    seg: Array
    end: Array
    reverse: bool

    def packed(self, x: Array) -> Array:
        """Rows in packed order, and ``n`` spare ones after them."""
        return take(x, self.source)

    def unpacked(self, buffer: Array) -> Array:
        """Packed rows back in their own order; padding rows are copies of row 0."""
        return take(buffer, self.target)

    def of_backward(self, buffer: Array) -> Array:
        """What a backward loop wrote, in row order; padding rows are zeros."""
        return take(buffer, self.back)

    def batched(self, buffer: Array) -> Array:
        """What a loop wrote, in the order of its steps."""
        return buffer

    def unbatched(self, values: Array) -> Array:
        """The inverse of ``batched``, of values that may have been cut to their valid rows."""
        missing = self.capacity + self.n - values.shape[0]
        if missing <= 0:
            return values
        return jnp.concatenate([values, jnp.zeros((missing,) + values.shape[1:], values.dtype)])

    def sorted(self, per_sequence: Array) -> Array:
        """Reorder [n, ...] by sequence to [n, ...] by rank, longest first."""
        return take(per_sequence, self.order)

    def unsorted(self, per_rank: Array) -> Array:
        """Reorder [n, ...] by rank to [n, ...] by sequence."""
        return take(per_rank, self.rank)

    def previous(self, x: Array, initial: Array | None) -> Array:
        """The row one step earlier, in row order; ``initial`` [n, ...] (default zeros) at the start of a sequence."""
        start = None if initial is None else take(initial, self.seg)
        return step_before(x, self.first, start, reverse=self.reverse)


# What ops get: one sequence needs no order of its own.
Order = Packing | Alone


def _ranks(sizes: Array) -> tuple[Array, Array]:
    """(order, rank) by decreasing length, stable."""
    n = sizes.shape[0]
    order: Array
    if is_concrete(sizes):
        order = np.argsort(-sizes, kind="stable").astype(np.int32)
        return order, np.argsort(order, kind="stable").astype(np.int32)
    if is_symbol(n) or n > 1024:
        order = jnp.argsort(-sizes, stable=True).astype(jnp.int32)
        return order, jnp.zeros(n, jnp.int32).at[order].set(row_numbers(n), unique_indices=True)
    # Counting instead of sorting: the rank is how many sequences are longer, or as long and earlier.
    here, there, mine = sizes[None, :], sizes[:, None], np.arange(n)
    ahead = (here > there) | ((here == there) & (mine[None, :] < mine[:, None]))
    rank = jnp.sum(ahead, axis=1, dtype=jnp.int32)
    order = jnp.sum(jnp.where(rank[None, :] == mine[:, None], mine[None, :], 0), axis=1, dtype=jnp.int32)
    return order, rank


def _step_starts(steps: Array, sizes: Array) -> Array:
    """The packed position where each of these steps begins: the sum over sequences of min(step, length)."""
    table: Array
    if is_concrete(steps) and is_concrete(sizes):
        counts = np.sum(sizes[None, :] > np.arange(int(sizes.max(initial=0)))[:, None], axis=1)
        table = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return table[np.minimum(steps, len(table) - 1)]
    pairs = steps.size * sizes.size
    if not is_symbol(pairs) and pairs <= DENSE_PAIRS:
        return jnp.sum(jnp.minimum(steps[:, None], sizes[None, :]), axis=1, dtype=jnp.int32)
    # Too many pairs for the sum: alive(t) is n less the sequences of length <= t, a cumulative histogram of the
    # lengths, and the starts are a cumulative sum of that.
    falling = jnp.zeros(steps.size + 2, jnp.int32).at[sizes].add(1, mode="clip")
    alive = sizes.size - jnp.cumsum(falling)
    table = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(alive, dtype=jnp.int32)])
    return take(table, steps)


def pack(x: LoDArray | Meta, off: Array, *, reverse: bool = False) -> Order:
    """The packed order of the sequences of ``x`` with offsets ``off``; ``reverse`` runs each from its last row."""
    if not is_symbol(off.shape[0]) and off.shape[0] == 2:
        return Alone(x.capacity, off[-1], reverse)
    seg, start, end = bounds(off, x.capacity)
    return _pack(lengths(off), seg, start, end, off[-1], reverse)


def pack_padded(shape: tuple[int, ...], sizes: Array) -> Order:
    """The packed order of a padded batch [n, width, ...] whose rows are numbered through, with ``sizes`` [n]."""
    n, width = shape[:2]
    sizes = jnp.minimum(sizes.reshape(-1).astype(jnp.int32), width)
    if not is_symbol(n) and n == 1:
        return Alone(width, sizes[0], False)
    seg = np.repeat(row_numbers(n), width)
    start = seg * np.int32(width)
    return _pack(sizes, seg, start, start + sizes[seg], jnp.sum(sizes, dtype=jnp.int32), False)


def _pack(sizes: Array, seg: Array, start: Array, end: Array, total: Array, reverse: bool) -> Packing:
    n, capacity = sizes.shape[0], seg.shape[0]
    xp: Any = np if is_concrete(sizes) else jnp
    order, rank = _ranks(sizes)
    rows = row_numbers(capacity)
    valid = rows < end
    steps = xp.where(valid, (end - 1 - rows) if reverse else (rows - start), 0)
    seg = xp.minimum(seg, n - 1)
    falling = sizes[order]
    mine = rank[seg]
    position = _step_starts(steps, falling) + mine
    back = total - _step_starts(steps + 1, falling) + mine
    target = xp.where(valid, position, position[:1])
    back = xp.where(valid, back, number(capacity + n - 1))
    source = _inverse(position, valid, capacity + n)
    return Packing(n, capacity, order, rank, falling, source, target, back, steps == 0, seg, end, reverse)


def _inverse(position: Array, valid: Array, count: int) -> Array:
    rows = row_numbers(position.shape[0])
    if is_concrete(position):
        source = np.zeros(count, np.int32)
        source[position[valid]] = rows[valid]
        return source
    outside = jnp.where(valid, position, number(count))
    return jnp.zeros(count, jnp.int32).at[outside].set(rows, mode="drop", unique_indices=True)


def _widths(n: int, carry: Any) -> list[int]:
    """The widths of a loop's windows from one phase to the next; ``carry`` is a pytree of [n, ...]."""
    columns = max((prod(c.shape[1:]) for c in jax.tree_util.tree_leaves(carry)), default=1)
    return [n] if is_symbol(n) or n < _PHASED or n * columns**2 < WORTH else [n, -(-n // 2), -(-n // 4)]


def _alive(sizes: Array, step: Array) -> Array:
    return jnp.sum(sizes > step, dtype=jnp.int32)


Step = Callable[[Any, Any, Array], tuple[Any, Any]]


def run_forward(p: Order, step: Step, carry: Any, reads: Any, *, overwrite: bool = False) -> Any:
    """Run a recurrence over the steps in order.

    Args:
        step: (carry, windows of ``reads``, alive) -> (carry, rows to write); ``alive`` counts the rows that are real.
        carry: pytree of [n, ...] in rank order.
        reads: pytree of packed buffers [capacity + n, ...].
        overwrite: ``reads`` is one buffer, whose rows are replaced by the first of the written rows.

    Returns:
        The written rows, packed [capacity + n, ...].
    """
    buffers = _buffers(p, step, carry, reads)
    if isinstance(p, Alone):
        return alone.forward(p, step, carry, reads, buffers)
    if overwrite:
        buffers = (reads, *buffers[1:])
    sizes = jnp.asarray(p.sizes)
    state = (jnp.int32(0), jnp.int32(0), _alive(sizes, jnp.int32(0)))
    widths = _widths(p.n, carry)
    for width, narrower in zip(widths, [*widths[1:], 0], strict=True):
        carry = jax.tree_util.tree_map(lambda c, w=width: c[:w], carry)

        def more(loop: Any, limit: int = narrower) -> Array:
            return loop[0][2] > limit

        def body(loop: Any, width: int = width) -> Any:
            (t, start, alive), carry, buffers = loop
            source = buffers[0] if overwrite else reads
            windows = jax.tree_util.tree_map(lambda b: window(b, start, width), source)
            carry, rows = step(carry, windows, alive)
            if overwrite:  # rows of the window past this step's still hold what the next step reads
                rows = (jnp.where(alive_rows(width, alive), rows[0], windows), *rows[1:])
            buffers = write(buffers, rows, start)
            return (t + 1, start + alive, _alive(sizes, t + 1)), carry, buffers

        state, carry, buffers = lax.while_loop(more, body, (state, carry, buffers))
    return buffers


def run_backward(p: Order, step: Step, carry: Any, reads: Any) -> tuple[Any, Any]:
    """Run a recurrence over the steps in reverse order.

    ``carry`` is a pytree of [n, ...]; it starts as zeros, since nothing follows the last step. Rows of a window from
    ``alive`` on must leave ``step`` as zeros, in the carry and in what is written: in an earlier step they belong to
    shorter sequences, whose last step that may be.

    Returns:
        (final carry in rank order, the written rows in the layout of ``Packing.back``).
    """
    buffers = _buffers(p, step, carry, reads)
    if isinstance(p, Alone):
        return alone.backward(p, step, carry, reads, buffers)
    sizes = jnp.asarray(p.sizes)
    total = jnp.sum(sizes, dtype=jnp.int32)
    last = jnp.max(sizes, initial=0) - 1
    alive = _alive(sizes, last)
    state = (last, total - alive, alive)
    for width in reversed(_widths(p.n, carry)):
        carry = jax.tree_util.tree_map(lambda c, w=width: _resized(c, w), carry)

        def more(loop: Any, width: int = width) -> Array:
            return (loop[0][0] >= 0) & (loop[0][2] <= width)

        def body(loop: Any, width: int = width) -> Any:
            (t, start, alive), carry, buffers = loop
            windows = jax.tree_util.tree_map(lambda b: window(b, start, width), reads)
            carry, rows = step(carry, windows, alive)
            buffers = write(buffers, rows, total - start - alive)
            before = _alive(sizes, t - 1)
            return (t - 1, start - before, before), carry, buffers

        state, carry, buffers = lax.while_loop(more, body, (state, carry, buffers))
    return carry, buffers


def _resized(c: Array, width: int) -> Array:
    return c[:width] if c.shape[0] >= width else stretch(c, 0, width)


def _buffers(p: Order, step: Step, carry: Any, reads: Any) -> Any:
    windows = jax.tree_util.tree_map(lambda b: jax.ShapeDtypeStruct((p.n,) + b.shape[1:], b.dtype), reads)
    _, rows = jax.eval_shape(step, carry, windows, jax.ShapeDtypeStruct((), jnp.int32))
    count = p.capacity if isinstance(p, Alone) else p.capacity + p.n
    return jax.tree_util.tree_map(lambda r: jnp.zeros((count,) + r.shape[1:], r.dtype), rows)


def alive_rows(width: int, alive: Array) -> Array:
    """bool [width, 1]: which rows of a window are real."""
    return (row_numbers(width) < alive)[:, None]


def materialized(x: Array) -> Array:
    """``x`` with its declared layout in memory: a loop multiplies twice as fast by a transposed weight then."""
    return lax.optimization_barrier(x)
