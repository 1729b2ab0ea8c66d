"""Metrics over sequences: edit distance, and precision and recall of chunks."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering.engine.checks import Demand
from lowering.ops import fitting
from lowering.ops.sequence import shapes
from lowering.ragged.rows import (
    bounds,
    lengths,
    offsets,
    per_sequence,
    row_numbers,
    segments,
    sequence_count,
    take,
    without_lod,
)
from lowering.registry import MASKED, op
from lowering.values import Array, LoDArray


class Rows(NamedTuple):
    """Ids of sequences, as flat rows: sequence i is ``ids[start[i] : start[i] + size[i]]``."""

    ids: Array
    start: Array
    size: Array


def _rows(x: LoDArray, length: Array | None) -> Rows:
    if length is None:
        off = offsets(x)
        return Rows(x.data.reshape(-1), jnp.asarray(off[:-1]), jnp.asarray(lengths(off)))
    n, width = x.shape[:2]
    sizes = jnp.minimum(length.reshape(-1).astype(jnp.int32), width)
    return Rows(x.data.reshape(-1), jnp.asarray(row_numbers(n) * np.int32(width)), sizes)


def levenshtein(hyps: Rows, refs: Rows) -> Array:
    """int64 [n]: the edit distance of each pair.

    One row of the table for all pairs at a time: pair i owns size + 1 columns of a flat axis. Insertions are a
    running minimum along it, kept within a pair by an offset that falls from pair to pair.
    """
    n, total = refs.size.shape[0], refs.ids.shape[0] + refs.size.shape[0]
    starts = refs.start + row_numbers(n)
    edges = jnp.concatenate([starts, jnp.full(1, total, jnp.int32)])
    seq = jnp.minimum(segments(edges, row_numbers(total)), n - 1)
    at = (row_numbers(total) - starts[seq]).astype(jnp.int64)
    ref = take(refs.ids, refs.start[seq] + at.astype(jnp.int32) - 1)
    apart = seq.astype(jnp.int64) * 2**32

    def body(state):
        i, above = state
        hyp = take(hyps.ids, hyps.start[seq] + i)
        changed = jnp.concatenate([above[:1], above[:-1]]) + (hyp != ref)
        best = jnp.where(at == 0, above + 1, jnp.minimum(above + 1, changed))
        row = lax.cummin(best - at - apart) + at + apart
        return i + 1, jnp.where(i < hyps.size[seq], row, above)

    rows = lax.while_loop(lambda s: s[0] < jnp.max(hyps.size, initial=0), body, (jnp.int32(0), at))[1]
    return take(rows, starts + refs.size)


@op(
    slots={"hyps_length": "HypsLength", "refs_length": "RefsLength"},
    out="SequenceNum Out",
    rows=MASKED,
    lod=None,
    diff="",
    infer=shapes.edit_distance,
)
def edit_distance(hyps: LoDArray, refs: LoDArray, hyps_length=None, refs_length=None, *, normalized: bool = False):
    """Out[i] = the minimum number of insertions, deletions and substitutions from sequence i of Hyps to that of Refs.

    ``normalized`` divides by the length in Refs. SequenceNum is the number of sequences.
    """
    reference = _rows(refs, refs_length)
    distance = levenshtein(_rows(hyps, hyps_length), reference).astype(jnp.float32)
    if normalized:
        distance = distance / reference.size.astype(jnp.float32)
    if hyps_length is not None:
        return jnp.full(1, distance.shape[0], jnp.int64), distance[:, None]
    count = sequence_count(hyps)
    rows = without_lod(per_sequence(hyps, distance[:, None]))
    return jnp.full(1, distance.shape[0] if count is None else count, jnp.int64), rows


@edit_distance.fits
def _(hyps, refs, hyps_length=None):
    for name, ids in (("Hyps", hyps), ("Refs", refs)):
        fitting.rank(name, ids, 2)
        if hyps_length is None:
            fitting.dim(name, ids, 1, 1)


class Tags(NamedTuple):
    """The numbers of a chunk scheme's tags; -1 for those that it has not."""

    begin: int
    inside: int
    end: int
    single: int


_SCHEMES = {
    "IOB": (2, Tags(0, 1, -1, -1)),
    "IOE": (2, Tags(-1, 0, 1, -1)),
    "IOBES": (4, Tags(0, 1, 2, 3)),
    "plain": (1, Tags(-1, -1, -1, -1)),
}


class Chunks(NamedTuple):
    """Per row: whether a chunk ends there, the row where that chunk begins, and its type."""

    end: Array
    begin: Array
    kind: Array


def _chunks(labels: Array, first: Array, last: Array, valid: Array, scheme: str, types: int) -> Chunks:
    count, tags = _SCHEMES[scheme]
    size = labels.dtype.type(count)  # negative labels: divided towards zero, as in C
    tag = jnp.where(valid, lax.rem(labels, size), -1)
    kind = jnp.where(valid, lax.div(labels, size), types).astype(jnp.int32)
    before = (_earlier(tag, first, -1), _earlier(kind, first, types))
    begins = _begins(*before, tag, kind, tags, types)
    ends_before = _ends(*before, tag, kind, tags, types)
    ends = jnp.concatenate([ends_before[1:], jnp.zeros(1, bool)]) & ~last
    ends = (ends | last) & (kind != types) & valid
    rows = jnp.arange(labels.shape[0], dtype=jnp.int32)
    begin = lax.cummax(jnp.where(begins, rows, -1))
    ended = lax.cummax(jnp.where(ends, rows, -1))
    open_ = begin > jnp.concatenate([jnp.full(1, -1, jnp.int32), ended[:-1]])
    return Chunks(ends & open_, begin, kind)


def _earlier(x: Array, first: Array, start: int) -> Array:
    return jnp.where(first, start, jnp.concatenate([x[:1], x[:-1]]))


def _begins(tag0: Array, kind0: Array, tag: Array, kind: Array, tags: Tags, other: int) -> Array:
    after_close = (tag0 == tags.end) | (tag0 == tags.single)
    within = (tag == tags.inside) | (tag == tags.end)
    by_tag = (tag == tags.begin) | jnp.where(within, after_close, tag == tags.single)
    if tags.begin < 0 and tags.end < 0:
        by_tag = jnp.zeros(tag.shape, bool)
    return (kind != other) & ((kind0 == other) | (kind != kind0) | by_tag)


def _ends(tag0: Array, kind0: Array, tag: Array, kind: Array, tags: Tags, other: int) -> Array:
    opens = (tag == tags.begin) | (tag == tags.single)
    by_tag = ((tag0 == tags.begin) | (tag0 == tags.inside)) & opens
    by_tag = by_tag | (tag0 == tags.end) | (tag0 == tags.single)
    if tags.begin < 0 and tags.end < 0:
        by_tag = jnp.zeros(tag.shape, bool)
    return (kind0 != other) & ((kind == other) | (kind != kind0) | by_tag)


def _edges(label: LoDArray, length: Array | None) -> tuple[Array, Array, Array]:
    """bool [ids]: the first, the last, the valid ids of sequences: those of Label's LoD if it has one, else of rows."""
    if label.lod or length is None:
        _, start, end = bounds(offsets(label), label.data.size)
        step, length = row_numbers(label.data.size) - start, end - start
    else:
        step = lax.broadcasted_iota(jnp.int32, label.shape[:2], 1)
        length = length.reshape(-1, 1).astype(jnp.int32)
    first, last, valid = (jnp.reshape(flags, -1) for flags in (step == 0, step == length - 1, step < length))
    return first, last, valid


@op(
    slots={"f1": "F1-Score"},
    out="Precision Recall F1-Score NumInferChunks NumLabelChunks NumCorrectChunks",
    rows=MASKED,
    lod=None,
    diff="",
)
def chunk_eval(
    inference: LoDArray,
    label: LoDArray,
    seq_length=None,
    *,
    num_chunk_types: int,
    chunk_scheme: str = "IOB",
    excluded_chunk_types: list[int] = [],  # noqa: B006
):
    """Precision, recall and F1 score of the chunks in Inference against those in Label, with their counts.

    An id is chunk type * number of tags + tag, or num_chunk_types * number of tags outside chunks. A chunk is correct
    if its start, end and type agree. Schemes: IOB, IOE, IOBES, plain. Rows without LoD hold SeqLength ids each;
    SeqLength counts for nothing beside a LoD.
    """
    if chunk_scheme not in _SCHEMES:
        raise ValueError(f"chunk_scheme {chunk_scheme!r} is unknown; expected one of {sorted(_SCHEMES)}")
    edges = _edges(label, seq_length)
    found, wanted = (_chunks(x.data.reshape(-1), *edges, chunk_scheme, num_chunk_types) for x in (inference, label))
    excluded = np.asarray(excluded_chunk_types, np.int32)
    same = found.end & wanted.end & (found.begin == wanted.begin) & (found.kind == wanted.kind)
    counts = [
        jnp.sum(flags & jnp.all(kind[:, None] != excluded[None, :], axis=1), dtype=jnp.int64)
        for flags, kind in ((found.end, found.kind), (wanted.end, wanted.kind), (same, found.kind))
    ]
    inferred, labelled, correct = counts
    precision, recall = _share(correct, inferred), _share(correct, labelled)
    f1 = jnp.where(correct > 0, 2 * precision * recall / jnp.where(correct > 0, precision + recall, 1), 0)
    scores = [v.astype(jnp.float32).reshape(1) for v in (precision, recall, f1)]
    return (*scores, *(c.reshape(1) for c in counts))


@chunk_eval.check
def _(inference: LoDArray, label: LoDArray):
    if not label.lod:
        return []
    found, wanted = offsets(inference), offsets(label)
    if found is wanted:
        return []
    if found.shape != wanted.shape:
        raise ValueError(f"Inference has {found.shape[0] - 1} sequences, Label {wanted.shape[0] - 1}; expected as many")
    # As one row of numbers: they are no rows of Inference, whose padding would hide some.
    return [Demand("inference", found[None], wanted, wanted + 1, words="the sequences of Label")]


def _share(part: Array, whole: Array) -> Array:
    whole32 = jnp.maximum(whole, 1).astype(jnp.float32)
    return jnp.where(whole > 0, part.astype(jnp.float32) / whole32, 0)
