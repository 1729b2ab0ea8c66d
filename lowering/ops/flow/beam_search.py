"""One step of a beam search over variable numbers of beams."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering.dtypes import INT32
from lowering.errors import SlotError
from lowering.loops.carried import known, known_int
from lowering.ops.tensor.top import largest
from lowering.program import EMPTY, OpView, VarInfo
from lowering.ragged.rows import row_numbers, segments, take
from lowering.registry import Value, op
from lowering.values import LoDArray


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
    """Select, for each source, the ``beam_size`` best continuations of its beams.

    A row is a beam, its K candidates are ``ids`` (0 .. K-1 if absent) with ``scores`` (accumulated if is_accumulated,
    else probabilities: pre_scores + log(scores)). A finished beam has a single candidate, its end with its score. Among
    equal scores, the later beam wins. If all candidates of a source end finished beams, none is selected.
    LoD of the results: sources to beams, beams to their selected candidates; parent_idx is the beam of each.
    """
    if not isinstance(scores, LoDArray) or len(scores.lod) <= level:
        raise SlotError(
            f"op beam_search (#{ctx.op.number}) needs scores {ctx.op.inputs['scores']} with LoD level {level}: sources"
            " to beams; expected a LoDTensor, received a tensor without it. Let scores take the LoD of pre_scores"
        )
    before = _flat(pre_ids, np.int64)
    total, counts = _candidates(before, pre_scores, scores, end_id, is_accumulated)
    high, width = _rows_of_level(scores.lod, level), total.shape[1]
    found, kept = _best(high, total, counts, beam_size, ctx.platform)

    def word_of(at: Any) -> Any:
        beam = lax.div(at, np.int32(width))
        word = at - beam * np.int32(width) if ids is None else take(_flat(ids), at)
        return jnp.where(take(before, beam) == end_id, np.int64(end_id), word.astype(np.int64))

    parent = lax.div(found, np.int32(width))
    goes_on = kept & ((word_of(found) != end_id) | (take(before, parent) != end_id))
    kept = (kept & jnp.any(goes_on, axis=1, keepdims=True)).reshape(-1)
    found, parent = found.reshape(-1), parent.reshape(-1)
    before_row = parent[:, None] < row_numbers(scores.capacity + 1)
    low = jnp.sum(kept[:, None] & before_row, axis=0, dtype=jnp.int32)
    slot = _in_order(parent, kept, low[-1])
    at = take(found, slot)
    word, score = word_of(at).astype(pre_ids.dtype), take(total.reshape(-1), at).astype(pre_scores.dtype)
    chosen = word, score, take(parent, slot)
    return _selected(scores, level, high, chosen, low)


def _flat(value: Any, dtype: Any = None) -> Any:
    data = jnp.asarray(value.data if isinstance(value, LoDArray) else value).reshape(-1)
    return data if dtype is None else data.astype(dtype)


def _candidates(before: Any, pre_scores: Any, scores: LoDArray, end_id: int, accumulated: bool) -> tuple[Any, Any]:
    """(score, whether it counts) of each beam's candidates, both [beams, K]: an ended beam has one, with its score."""
    table = scores.data.reshape(scores.capacity, -1)
    previous = _flat(pre_scores, table.dtype)[:, None]
    total = table if accumulated else previous + jnp.log(table)
    ended, first = (before == end_id)[:, None], np.arange(table.shape[1]) == 0
    live = row_numbers(scores.capacity)[:, None] < scores.rows()
    return jnp.where(ended, previous, total), live & (~ended | first)


def _best(high: Any, total: Any, counts: Any, beam: int, platform: str) -> tuple[Any, Any]:
    """Of each source the ``beam`` best candidates, falling: (numbers beam * K + candidate, whether there is one).

    The later beams stand first in what is sorted, so that among equal scores they win.
    """
    rows, width = total.shape
    lowest = np.finfo(total.dtype).min  # of candidates; minus infinity is for what is none
    total = jnp.where(total == 0, 0, total)  # sorting would tell -0 from 0
    score = jnp.where(counts, jnp.where(total > lowest, total, lowest), -np.inf)
    numbers = np.arange(rows * width, dtype=np.int32).reshape(rows, width)
    if width > beam:  # a source takes no more than ``beam`` candidates of one beam
        score, place = largest(score, beam, platform)
        numbers = numbers[:, :1] + place
    source, sources = segments(high, row_numbers(rows))[::-1], row_numbers(high.shape[0] - 1)
    theirs = jnp.where(source[None, :, None] == sources[:, None, None], score[None, ::-1], -np.inf)
    picked = min(beam, score.size)
    score, at = largest(theirs.reshape(len(sources), score.size), picked, platform)
    missing = ((0, 0), (0, beam - picked))
    return jnp.pad(take(numbers[::-1].reshape(-1), at), missing), jnp.pad(score > -np.inf, missing)


def _in_order(parent: Any, kept: Any, count: Any) -> Any:
    """Which slot comes at each place when the ``count`` kept ones are ordered by beam, then by slot.

    Places after the last repeat the first. Comparing all pairs is cheaper than a sort where beams are few.
    """
    slots = row_numbers(parent.shape[0])
    order = jnp.where(kept, parent * np.int32(len(slots)) + slots, np.iinfo(np.int32).max)
    place = jnp.sum(order[:, None] < order[None, :], axis=0, dtype=jnp.int32)
    wanted = jnp.where(slots < count, slots, 0)
    here = (place[:, None] == wanted[None, :]) & kept[:, None]
    return jnp.sum(jnp.where(here, slots[:, None], 0), axis=0, dtype=jnp.int32)


def _selected(
    scores: LoDArray, level: int, high: Any, chosen: tuple[Any, ...], low: Any
) -> tuple[LoDArray, LoDArray, Any]:
    """The selected ids, scores and beams: with known LoD where nothing is padded and the number is known."""
    count = low[-1]
    total = known_int(count)
    if total is not None and not scores.padded:
        lod = tuple(np.asarray(known(o), np.int32) for o in (high, low))
        word, score, parent = (v[:total] for v in chosen)
        return LoDArray(word[:, None], lod), LoDArray(score[:, None], lod), parent
    word, score, parent = chosen
    lod, sources = (high, low), jnp.asarray(scores.lod[level - 1])[-1] if level else scores.nseq
    words, marks = (LoDArray(v[:, None], lod, count, sources) for v in (word, score))
    return words, marks, LoDArray(parent, (), count)
