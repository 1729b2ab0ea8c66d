"""Beam search over ragged beams: one step of it, and the sentences at its end."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.block import Context
from lowering.dtypes import INT32
from lowering.errors import SlotError
from lowering.loop_values import element, known, known_int
from lowering.program import EMPTY, OpView, VarInfo
from lowering.registry import Value, op
from lowering.sequence import offsets_of, row_numbers, segments
from lowering.values import LoDArray, TensorArray, fill_padding


def _rows_of_level(lod: tuple[Any, ...], level: int) -> Any:
    """The offsets of a LoD level counted in rows."""
    off = jnp.asarray(lod[level])
    for below in lod[level + 1 :]:
        off = jnp.asarray(below)[off]
    return off.astype(jnp.int32)


def _search_shapes(op: OpView, var_of: Any) -> dict[str, VarInfo]:
    found = {}
    for slot, source in (("selected_ids", "pre_ids"), ("selected_scores", "pre_scores")):
        var = var_of(op.inputs[source][0])
        for name in op.outputs.get(slot) or ():
            found[name] = VarInfo((-1, 1), var.dtype if var else None, 0)
    found.update({n: VarInfo((-1,), INT32, 0) for n in op.outputs.get("parent_idx") or () if n != EMPTY})
    return found


_SLOTS = {"pre_ids": "pre_ids", "pre_scores": "pre_scores", "ids": "ids", "scores": "scores"}


@op(out="selected_ids selected_scores parent_idx?", slots=_SLOTS, kind="block", infer=_search_shapes)
def beam_search(
    pre_ids: Value,
    pre_scores: Value,
    scores: Value,
    ids: Value = None,
    *,
    level: int,
    beam_size: int,
    end_id: int,
    is_accumulated: bool = True,
    ctx,
):
    """For each source the ``beam_size`` best continuations of its beams.

    A row is a beam, its K candidates are ``ids`` (0 .. K-1 when absent) with ``scores`` (added up already when
    is_accumulated, else probabilities: pre_scores + log(scores)). A beam that has ended offers its end with its score
    alone. Equal scores: the later beam wins. When all candidates of a source are ends of ended beams it selects none.
    LoD of the results: sources to beams, beams to their selected candidates; parent_idx is each one's beam.
    """
    if not isinstance(scores, LoDArray) or len(scores.lod) <= level:
        raise SlotError(
            f"op beam_search (#{ctx.op.index}) needs scores {ctx.op.inputs['scores']} with LoD level {level}: sources"
            " to beams; expected a LoDTensor, received a tensor without it. Let scores take the LoD of pre_scores"
        )
    before = _flat(pre_ids, np.int64)
    candidates = _candidates(before, pre_scores, ids, scores, end_id, is_accumulated)
    high = _rows_of_level(scores.lod, level)
    chosen = _select(high, *candidates, before, beam_size, end_id)
    return _selected(ctx, scores, high, chosen, pre_ids.dtype, pre_scores.dtype)


def _flat(value: Any, dtype: Any = None) -> Any:
    data = jnp.asarray(value.data if isinstance(value, LoDArray) else value).reshape(-1)
    return data if dtype is None else data.astype(dtype)


def _candidates(
    before: Any, pre_scores: Any, ids: Any, scores: LoDArray, end_id: int, accumulated: bool
) -> tuple[Any, Any, Any]:
    """(ids, scores, whether it counts) of each beam's candidates, all [beams, K]."""
    table = scores.data.reshape(scores.capacity, -1)
    width = table.shape[1]
    previous = _flat(pre_scores, table.dtype)
    if ids is None:
        words = jnp.broadcast_to(jnp.arange(width, dtype=jnp.int64), table.shape)
    else:
        words = _flat(ids, jnp.int64).reshape(table.shape)
    total = table if accumulated else previous[:, None] + jnp.log(table)
    ended, first = (before == end_id)[:, None], (np.arange(width) == 0)[None, :]
    live = row_numbers(scores.capacity)[:, None] < scores.rows()
    words = jnp.where(ended, jnp.int64(end_id), words)
    total = jnp.where(ended, previous[:, None], total)
    return words, total, live & (~ended | first)


def _select(high: Any, words: Any, total: Any, counts: Any, before: Any, beam: int, end_id: int) -> tuple[Any, ...]:
    """(row, id, score, kept) of the selected candidates, [sources * beam], by source and falling score."""
    rows, width = total.shape
    row = jnp.repeat(row_numbers(rows), width, total_repeat_length=rows * width)
    source = segments(high, row)
    score, counts = total.reshape(-1), counts.reshape(-1)
    key = jnp.where(counts, -score, jnp.inf)
    order = jnp.lexsort((row_numbers(rows * width), -row, key, source)).astype(jnp.int32)
    sources = high.shape[0] - 1
    slot = row_numbers(sources * beam)
    owner, rank = slot // beam, slot % beam
    at = high[:-1][owner] * width + rank
    at = order[jnp.clip(at, 0, rows * width - 1)]
    kept = (source[at] == owner) & counts[at] & (rank < (high[1:] - high[:-1])[owner] * width)
    word, parent = words.reshape(-1)[at], row[at]
    goes_on = kept & ((word != end_id) | (before[parent] != end_id))
    running = jnp.any(goes_on.reshape(sources, beam), axis=1)
    return parent, word, score[at], kept & running[owner]


def _selected(ctx: Context, scores: LoDArray, high: Any, chosen: tuple[Any, ...], ids_dtype: Any, dtype: Any) -> Any:
    parent, word, score, kept = chosen
    slots = parent.shape[0]
    order = jnp.lexsort((row_numbers(slots), jnp.where(kept, parent, scores.capacity)))
    parent, word, score, kept = parent[order], word[order], score[order], kept[order]
    per_row = jnp.zeros(scores.capacity, jnp.int32).at[parent].add(kept.astype(jnp.int32))
    low, count = offsets_of(per_row), jnp.sum(kept, dtype=jnp.int32)
    exact, total = known(count) is not None and not scores.padded, known_int(count)
    lod = (high, low)
    if exact:
        lod = tuple(np.asarray(known(o), np.int32) for o in lod)
        keep = np.arange(total)
        values = [LoDArray(v[keep].reshape(-1, 1), lod) for v in (word.astype(ids_dtype), score.astype(dtype))]
        return (*values, parent[keep])

    def padded(value: Any) -> LoDArray:
        data = fill_padding(value.reshape(-1, 1), count, backward=False)
        return LoDArray(data, lod, count, scores.nseq)

    rows = LoDArray(fill_padding(parent, count, backward=False), (), count)
    return padded(word.astype(ids_dtype)), padded(score.astype(dtype)), rows


# --- the sentences ------------------------------------------------------------------------------------------------


def host_items(array: TensorArray) -> list[tuple[np.ndarray, list[np.ndarray]]]:
    """The written elements of an array as (flat data, LoD), padding cut off."""
    if array.stacked:
        whole = jax.tree_util.tree_map(np.asarray, array.buffer)
        items = [element(whole, k) for k in range(int(np.asarray(array.length)))]
    else:
        items = [v for v in array.items or () if v is not None]
    return [_host_item(v) for v in items]


def _host_item(value: Any) -> tuple[np.ndarray, list[np.ndarray]]:
    if not isinstance(value, LoDArray):
        return np.asarray(value).reshape(-1), []
    count, lod = None if value.nseq is None else int(value.nseq), []
    for level in value.lod:
        lod.append(np.asarray(level) if count is None else np.asarray(level)[: count + 1])
        count = int(lod[-1][-1])
    rows = value.capacity if value.nrows is None else int(value.nrows)
    return np.asarray(value.data)[:rows].reshape(-1), lod


def _chosen(items: list, others: list) -> list[tuple[list, ...]]:
    """What each step selected, as lists: (offsets of the sources' beams, of the beams' words, ids, scores, beam)."""
    found: list[tuple[list, ...]] = []
    for (ids, lod), (values, _) in zip(items, others, strict=True):
        beam = np.searchsorted(lod[1], np.arange(len(ids)), side="right") - 1
        found.append((lod[0].tolist(), lod[1].tolist(), ids.tolist(), values.tolist(), beam.tolist()))
    return found


def _follow(steps: list[tuple[list, ...]], source: int, end_id: int) -> list[tuple[list, list]]:
    """(ids, scores) of each sentence of a source, last word first, followed from the step it ended in."""
    sentences: list[tuple[list, list]] = []
    at: list[int] = []
    for beams, words, ids, values, beam_of in reversed(steps):
        if not at:
            at = [beam for beam in range(beams[source], beams[source + 1]) for _ in range(words[beam], words[beam + 1])]
            mine = range(words[beams[source]], words[beams[source + 1]])
            sentences = [([ids[k]], [values[k]]) for k in mine]
            continue
        for n, k in enumerate(at):
            if ids[k] != end_id or not sentences[n][0]:
                sentences[n][0].append(ids[k])
                sentences[n][1].append(values[k])
            at[n] = beam_of[k]
    return sentences


@op(out="SentenceIds SentenceScores", kind="host", infer=lambda op, var_of: {})
def beam_search_decode(ids: Value, scores: Value, *, beam_size: int, end_id: int, ctx):
    """The sentences of each source, best first: every selected candidate traced back through the steps.

    Ids and Scores are the arrays of what beam_search selected in each step. Results have two LoD levels: sources to
    sentences, sentences to words; SentenceScores holds the score of each word. Repeated ends are left out.
    """
    items, others = host_items(ids), host_items(scores)
    steps = _chosen(items, others)
    sources = len(steps[0][0]) - 1
    top, low, words, marks = [0], [0], [], []
    for source in range(sources):
        found = _follow(steps, source, end_id)
        found.sort(key=lambda s: -float(s[1][0]))
        for sentence, score in found + [([], [])] * (beam_size - len(found)):
            words.extend(reversed(sentence))
            marks.extend(reversed(score))
            low.append(len(words))
        top.append(len(low) - 1)
    lod = (np.asarray(top, np.int32), np.asarray(low, np.int32))
    dtypes = items[0][0].dtype, others[0][0].dtype
    return tuple(LoDArray(np.asarray(v, t), lod) for v, t in zip((words, marks), dtypes, strict=True))
