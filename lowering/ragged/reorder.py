"""Reordering sequences: the destination of each row when sequences are selected, permuted, split or merged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from lowering.ragged.rows import offsets_of, row_numbers, segments, take
from lowering.symbols import number
from lowering.values import Array, LoDArray, fill_padding, is_concrete


def sources(starts: Array, counts: Array, capacity: int) -> tuple[Array, Array]:
    """Rows that stay together in runs: (offsets of the new order, source row of each of ``capacity`` new rows).

    Run s is ``counts[s]`` rows from row ``starts[s]``; rows after the last run repeat the first row of run 0.
    """
    off = offsets_of(counts)
    rows = row_numbers(capacity)
    if starts.shape[0] == 0:
        return off, np.zeros(capacity, np.int32)
    run = segments(off, rows)
    xp: Any = np if is_concrete(run) and is_concrete(starts) else jnp
    run_in = xp.minimum(run, number(starts.shape[0] - 1))
    source = xp.asarray(starts)[run_in] + (rows - xp.asarray(off)[run_in])
    return off, xp.where(run < starts.shape[0], source, xp.asarray(starts)[0]).astype(np.int32)


def pick(x: LoDArray, order: Array, count: Any, *, backward: bool) -> LoDArray:
    """The sequences ``order[0], order[1], ...`` of the top LoD level of x (its rows when it has none).

    Args:
        order: int32, sequence numbers; may be shorter than the sequences of x.
        count: how many entries of ``order`` are valid; None for all of them. The remaining entries become padding.
        backward: padding rows are zeros instead of copies of a valid row.
    """
    total = order.shape[0]
    if not x.lod:
        if count is None and x.nrows is None:
            return LoDArray(take(x.data, order))
        nrows = jnp.asarray(number(total)) if count is None else jnp.asarray(count, jnp.int32)
        return LoDArray(fill_padding(take(x.data, order), nrows, backward=backward), (), nrows)
    lod = []
    chosen, exact = order, count is None and x.nrows is None and x.nseq is None
    alive: Any = row_numbers(total) < number(total) if count is None else row_numbers(total) < count
    for k, off in enumerate(x.lod):
        off = off if is_concrete(chosen) else jnp.asarray(off)
        starts = off[:-1][chosen]
        counts = (off[1:] - off[:-1])[chosen] * alive
        inner = x.lod[k + 1].shape[0] - 1 if k + 1 < len(x.lod) else x.capacity
        if is_concrete(counts) and exact:
            inner = int(counts.sum())
        new, chosen = sources(starts, counts, inner)
        alive = row_numbers(inner) < new[-1]
        lod.append(new)
    data = take(x.data, chosen)
    if exact and is_concrete(lod[-1]):
        return LoDArray(data, tuple(lod), longest=x.longest)
    if exact and total == x.lod[0].shape[0] - 1:
        return replace(x, data=data, lod=tuple(lod))  # a permutation of all sequences keeps all rows
    nrows = jnp.asarray(lod[-1][-1], jnp.int32)
    nseq = jnp.asarray(total if count is None else count, jnp.int32)
    return LoDArray(fill_padding(data, nrows, backward=backward), tuple(lod), nrows, nseq, x.longest)


def partition(mask: Array, n: Any, which: bool) -> tuple[Array, Any]:
    """(numbers of the entries where ``mask`` is ``which``, first and in order; their count).

    Args:
        mask: bool [capacity].
        n: number of valid entries, None for all.
    """
    hit = mask if which else ~mask
    if n is not None:
        hit = hit & (row_numbers(mask.shape[0]) < n)
    if is_concrete(hit):
        found = np.flatnonzero(hit).astype(np.int32)
        return found, None
    rank = jnp.cumsum(hit, dtype=jnp.int32) - 1
    count = jnp.sum(hit, dtype=jnp.int32)
    place = jnp.where(hit, rank, number(mask.shape[0]))
    order = jnp.zeros(mask.shape[0], jnp.int32).at[place].set(row_numbers(mask.shape[0]), mode="drop")
    return order, count
