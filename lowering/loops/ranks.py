"""Rank tables and the two conversions between a LoD tensor and the array of its time steps.

Sequences are ranked by decreasing length, so those with an item t are the first ``alive(t)`` ones: element t + 1
continues a prefix of the rows of element t, and a memory of step t loses its last rows for step t + 1. Invariants:
``index`` is a permutation, stable for equal lengths, and ``sequences_of`` is the inverse of ``steps_of``. Each has two
versions: for offsets known during tracing, which gives exact elements, and traced, with elements of equal capacity.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.loops.arrays import as_stacked
from lowering.loops.carried import known, known_int
from lowering.ragged.reorder import sources
from lowering.ragged.rows import offsets_of, row_numbers, segments, take
from lowering.values import Array, LoDArray, RankTable, TensorArray, fill_padding


def rank_table(x: LoDArray, level: int) -> RankTable:
    """The sequences of one LoD level, longest first, equal lengths in their original order.

    Raises:
        ValueError: x has no such LoD level.
    """
    if level >= len(x.lod):
        raise ValueError(
            f"lod_rank_table wants LoD level {level}, but its input of shape {list(x.shape)} has {len(x.lod)} levels."
            " Feed it as a LoDTensor, or choose another level"
        )
    count = x.nseq if level == 0 else (x.lod[level - 1][-1] if x.padded else None)
    host, valid = known(x.lod[level]), None if count is None else known_int(count)
    above = x.lod[: level + 1]
    if host is not None and (count is None or valid is not None):
        return _host_table(x, host.astype(np.int32), valid, level)
    off = x.lod[level].astype(np.int32)
    lens = off[1:] - off[:-1]
    numbers = row_numbers(lens.shape[0])
    key = lens if count is None else jnp.where(numbers < count, lens, -1)
    # A stable counting sort: the rank of a sequence is the number of those before it: longer ones and, among equally
    # long ones, earlier ones. Sequences that only pad the batch come last.
    ahead = (key[:, None] > key[None, :]) | ((key[:, None] == key[None, :]) & (numbers[:, None] < numbers[None, :]))
    place = jnp.sum(ahead, axis=0, dtype=jnp.int32)
    index = jnp.zeros(lens.shape[0], jnp.int32).at[place].set(numbers)
    return RankTable(index, lens[index], off, above, count, x.capacity, static_longest(x, level))


def _host_table(x: LoDArray, off: np.ndarray, valid: int | None, level: int) -> RankTable:
    lens = np.diff(off)[:valid]
    index = np.argsort(-lens, kind="stable").astype(np.int32)
    above = tuple(np.asarray(known(o), np.int32) if known(o) is not None else o for o in x.lod[: level + 1])
    longest = int(lens.max()) if lens.size else 0
    return RankTable(index, lens[index], off, above, None, x.capacity, longest)


def static_longest(x: LoDArray, level: int) -> int:
    """A static bound of the longest sequence: the executor's, or the number of items that fit."""
    if level < len(x.longest):
        return x.longest[level]
    return x.lod[level + 1].shape[0] - 1 if level + 1 < len(x.lod) else x.capacity


def alive(table: RankTable, t: Any) -> Any:
    """How many sequences are longer than ``t`` (int32, or int32 [T] for several t)."""
    lens = table.lengths
    if known(lens) is not None and known(t) is not None:
        return np.sum(known(lens) > np.asarray(known(t))[..., None], axis=-1, dtype=np.int32)
    return jnp.sum(jnp.asarray(lens) > jnp.asarray(t)[..., None], axis=-1, dtype=jnp.int32)


def is_known(table: RankTable) -> bool:
    """Whether the lengths, and with them the order, are known during tracing."""
    return known(table.lengths) is not None


def steps_of(x: LoDArray, table: RankTable, *, backward: bool) -> TensorArray:
    """Element t: item t of each sequence longer than t, in rank order. Items are rows, or sequences of the level below.

    Args:
        x: the value; without a LoD it has the rows of the ranked one.
        backward: padding rows are zeros instead of copies of a valid row.
    """
    level = len(table.lod) - 1
    if is_known(table) and (len(x.lod) <= level + 1 or known(x.lod[level + 1]) is not None):
        return _known_steps(x, table, level)
    off = x.lod[level] if len(x.lod) > level else table.offsets
    longest = table.longest
    if len(x.lod) > level + 1:
        return _nested_steps(x, table, off, level, backward)
    t = row_numbers(longest)
    starts = jnp.asarray(off)[:-1][table.index]
    counts = alive(table, t)
    number = row_numbers(table.index.shape[0])
    row = jnp.where(number[None, :] < counts[:, None], starts[None, :] + t[:, None], starts[:1] + t[:, None])
    row = jnp.where(counts[:, None] > 0, row, 0)
    data = take(x.data, row)
    if backward:
        live = number[None, :] < counts[:, None]
        data = jnp.where(live.reshape(live.shape + (1,) * (data.ndim - 2)), data, jnp.zeros((), data.dtype))
    return TensorArray(None, LoDArray(data, (), counts), jnp.asarray(_longest_now(table), jnp.int32))


def _longest_now(table: RankTable) -> Array:
    return table.lengths[0] if table.lengths.shape[0] else np.int32(0)


def _known_steps(x: LoDArray, table: RankTable, level: int) -> TensorArray:
    index, lens = np.asarray(known(table.index)), np.asarray(known(table.lengths))
    off = np.asarray(known(table.offsets))
    items = []
    for t in range(int(lens[0]) if lens.size else 0):
        item = (off[index[lens > t]] + t).astype(np.int32)
        lod = []
        for k in range(level + 1, len(x.lod)):
            below = np.asarray(known(x.lod[k]))
            counts = (below[1:] - below[:-1])[item]
            new, item = sources(below[:-1][item], counts, int(counts.sum()))
            lod.append(new)
        data = take(x.data, item)
        items.append(LoDArray(data, tuple(lod)) if lod else data)
    return TensorArray(tuple(items))


def _nested_steps(x: LoDArray, table: RankTable, off: Array, level: int, backward: bool) -> TensorArray:
    numbers = row_numbers(table.index.shape[0])
    starts = jnp.asarray(off)[:-1][table.index]

    def one(t: Array) -> LoDArray:
        count = alive(table, t)
        live = numbers < count
        item, lod = jnp.where(live, starts + t, starts[0]), []
        for k in range(level + 1, len(x.lod)):
            below = jnp.asarray(x.lod[k])
            item = jnp.clip(item, 0, below.shape[0] - 2)
            counts = (below[1:] - below[:-1])[item]
            new, item = sources(below[:-1][item], counts * live, _room(x, k))
            live = row_numbers(_room(x, k)) < new[-1]
            lod.append(new)
        nrows = lod[-1][-1]
        data = fill_padding(take(x.data, item), nrows, backward=backward)
        return LoDArray(data, tuple(lod), nrows, count, x.longest[level + 1 :])

    buffer = jax.vmap(one)(jnp.arange(table.longest, dtype=jnp.int32))
    return TensorArray(None, buffer, jnp.asarray(_longest_now(table), jnp.int32))


def rows_of(array: TensorArray, table: RankTable) -> int:
    """The initial row capacity for all steps: that of the ranked value, or of one step for ragged items."""
    if array.stacked and _has_lod(array.buffer):
        return max(table.capacity, array.buffer.data.shape[1])
    return table.capacity


def most_rows(array: TensorArray, table: RankTable) -> int:
    """The rows that all steps hold at most: a row for each ranked item, or ragged items as long as steps can be."""
    return array.buffer.data.shape[0] * array.buffer.data.shape[1] if _has_lod(array.buffer) else table.capacity


def sequences_of(array: TensorArray, table: RankTable, room: int, *, backward: bool) -> Any:
    """The inverse of ``steps_of``: the items of each sequence one after another, sequences in their first order.

    Args:
        room: the row capacity of the result, if it is not known from the elements; rows past it are lost.
    """
    if not array.stacked and is_known(table):
        return _known_sequences(array, table)
    if not array.stacked:
        array = as_stacked(array, next(v for v in array.items or () if v is not None), table.longest)
    level = len(table.lod) - 1
    buffer = array.buffer
    position = jnp.zeros(table.index.shape[0], jnp.int32).at[table.index].set(row_numbers(table.index.shape[0]))
    items = room if not _has_lod(buffer) else table.longest * table.index.shape[0]
    off = jnp.asarray(table.offsets)
    row = row_numbers(items)
    seq = jnp.minimum(segments(off, row), table.index.shape[0] - 1)
    inside = row < off[-1]
    step = jnp.clip(jnp.where(inside, row - off[seq], 0), 0, array.capacity - 1)
    place = jnp.where(inside, position[seq], 0)
    if _has_lod(buffer):
        return _nested_sequences(buffer, table, (step, place, inside), room, backward)
    data = (buffer.data if isinstance(buffer, LoDArray) else buffer)[step, place]
    exact = table.nseq is None and _covers(table, room)
    nrows = None if exact else off[-1]
    return LoDArray(fill_padding(data, nrows, backward=backward), table.lod[: level + 1], nrows, table.nseq)


def _covers(table: RankTable, room: int) -> bool:
    """Whether the offsets are known to end at the capacity: no padding rows."""
    host = known(table.offsets)
    return host is not None and int(host[-1]) == room


def _has_lod(buffer: Any) -> bool:
    return isinstance(buffer, LoDArray) and bool(buffer.lod)


def _nested_sequences(
    buffer: LoDArray, table: RankTable, items: tuple[Array, Array, Array], room: int, backward: bool
) -> LoDArray:
    """Items are sequences themselves: gather their runs of rows out of the flattened buffer."""
    step, place, inside = items
    steps, rows = buffer.data.shape[:2]
    below = buffer.lod[0]
    counts = (below[step, place + 1] - below[step, place]) * inside
    lod = [*table.lod]
    start, base = below[step, place], step
    for k in range(len(buffer.lod)):
        width = _width(buffer, k, rows)
        off, flat = sources(start + base * width, counts, steps * width if k + 1 < len(buffer.lod) else room)
        lod.append(off)
        if k + 1 == len(buffer.lod):
            data = take(buffer.data.reshape(steps * rows, *buffer.data.shape[2:]), flat)
            nrows = off[-1]
            return LoDArray(fill_padding(data, nrows, backward=backward), tuple(lod), nrows, table.nseq)
        base, item = flat // width, flat % width
        nxt = buffer.lod[k + 1]
        valid = row_numbers(flat.shape[0]) < off[-1]
        start, counts = nxt[base, item], (nxt[base, item + 1] - nxt[base, item]) * valid
    raise AssertionError("a nested element has at least one LoD level")


def _room(x: LoDArray, k: int) -> int:
    """The number of items that fit below LoD level k."""
    return x.lod[k + 1].shape[0] - 1 if k + 1 < len(x.lod) else x.capacity


def _width(buffer: LoDArray, k: int, rows: int) -> int:
    """The number of items of one element that fit below LoD level k."""
    return buffer.lod[k + 1].shape[1] - 1 if k + 1 < len(buffer.lod) else rows


def _known_sequences(array: TensorArray, table: RankTable) -> Any:
    index, lens = np.asarray(known(table.index)), np.asarray(known(table.lengths))
    items = list(array.items or ())
    if not items:
        raise ValueError("array_to_lod_tensor got an empty array; write at least one element before")
    template = next(v for v in items if v is not None)
    nested = isinstance(template, LoDArray) and template.lod
    datas = [_data(v, template) for v in items]
    starts = np.concatenate([[0], np.cumsum([d.shape[0] for d in datas])])[:-1]
    order = np.argsort(index, kind="stable")
    pairs = [(t, int(p)) for p in order for t in range(int(lens[p]))]
    data = jnp.concatenate(datas)
    lod = [np.asarray(known(o), np.int32) for o in table.lod]
    if not nested:
        rows = np.asarray([starts[t] + p for t, p in pairs], np.int32)
        return LoDArray(take(data, rows), tuple(lod))
    item = np.asarray([p for _, p in pairs], np.int64)
    step = np.asarray([t for t, _ in pairs], np.int64)
    return _known_nested(items, data, starts, step, item, lod)


def _known_nested(items: list, data: Array, starts: Any, step: Any, item: Any, lod: list) -> LoDArray:
    depth = len(items[0].lod)
    for k in range(depth):
        below = [np.asarray(known(v.lod[k])) for v in items]
        begin = np.asarray([below[t][i] for t, i in zip(step, item, strict=True)], np.int64)
        counts = np.asarray([below[t][i + 1] - below[t][i] for t, i in zip(step, item, strict=True)], np.int64)
        lod.append(offsets_of(counts.astype(np.int32)))
        step = np.repeat(step, counts)
        inner = np.concatenate([np.arange(c) for c in counts]) if counts.size else counts
        item = np.repeat(begin, counts) + inner
    rows = (np.asarray(starts)[step] + item).astype(np.int32)
    return LoDArray(take(data, rows), tuple(lod))


def _data(value: Any, template: Any) -> Array:
    if value is None:
        raise ValueError("array_to_lod_tensor got an array with a missing element; write every step")
    return value.data if isinstance(value, LoDArray) else value
