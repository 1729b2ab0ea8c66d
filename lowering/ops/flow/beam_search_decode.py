"""The sentences found by a beam search, backtracked through its steps on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from lowering.registry import Value, op
from lowering.values import LoDArray, TensorArray, data_of


@dataclass(frozen=True)
class Steps:
    """What the steps of a search selected, one row for each step; rows are filled up to one length.

    Attributes:
        words, scores: [steps, candidates].
        high: [steps, sources + 1], the beams of each source.
        low: [steps, beams + 1], the selected candidates of each beam; repeats its last entry.
    """

    words: np.ndarray
    scores: np.ndarray
    high: np.ndarray
    low: np.ndarray

    def ends(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(last step in which a source selected something, -1 for none; begin and end of that selection)."""
        last = np.full(self.high.shape[1] - 1, -1)
        begin, end = last + 1, last + 1
        for step in reversed(range(len(self.words))):
            places = self.low[step][self.high[step]]
            some = (last < 0) & (places[1:] > places[:-1])
            last[some], begin[some], end[some] = step, places[:-1][some], places[1:][some]
            if last.min(initial=0) >= 0:
                break
        return last, begin, end

    def trace(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Every candidate that a source selected last, by source: (source, step, its place in each step [steps, n])."""
        last, begin, end = self.ends()
        source = np.repeat(np.arange(len(last)), end - begin)
        start, own = last[source], np.arange(len(source)) - (np.cumsum(end - begin) - end)[source]
        places, at = np.zeros((len(self.words), len(source)), np.int64), np.zeros_like(own)
        starts = set(last.tolist())
        for step in reversed(range(len(places))):
            places[step] = at = np.where(start == step, own, at) if step in starts else at
            # A candidate comes from the beam whose place in the step before is the beam's number.
            at = self.low[step, 1:].searchsorted(at, side="right")
        return source, start, np.minimum(places, max(self.words.shape[1] - 1, 0))


def steps_of(ids: TensorArray, scores: TensorArray) -> Steps:
    """The written elements of the two arrays that a search fills."""
    words, values = _data(ids), _data(scores)
    if ids.stacked:
        levels, nseq = [np.asarray(level)[: len(words)] for level in ids.buffer.lod], ids.buffer.nseq
        nseq = None if nseq is None else np.asarray(nseq)[0]
    else:
        items = [v for v in ids.items or () if v is not None]
        levels, nseq = [_rows([np.asarray(v.lod[k]) for v in items], "edge") for k in (0, 1)], items[0].nseq
    high, low = levels
    return Steps(words, values, high if nseq is None else high[:, : int(nseq) + 1], low)


def _data(array: TensorArray) -> np.ndarray:
    """[elements, numbers]: the elements of an array, each flat."""
    if array.stacked:
        count = int(np.asarray(array.length))
        return np.asarray(data_of(array.buffer))[:count].reshape(count, -1)
    return _rows([np.asarray(data_of(v)).reshape(-1) for v in array.items or () if v is not None], "constant")


def _rows(values: list[np.ndarray], fill: Literal["edge", "constant"]) -> np.ndarray:
    """Rows of unequal lengths as a matrix, filled with zeros (constant) or with the last entry of each (edge)."""
    size = max(len(v) for v in values)
    return np.stack([np.pad(v, (0, size - len(v)), mode=fill) if len(v) < size else v for v in values])


@op(out="SentenceIds SentenceScores", kind="host", infer=lambda op, var_of: {})
def beam_search_decode(ids: Value, scores: Value, *, beam_size: int, end_id: int, ctx):
    """The sentences of each source, best first: every selected candidate backtracked through the steps.

    Ids and Scores are the arrays of the selections of beam_search. Results have two LoD levels: sources to sentences
    (beam_size or more, the last ones empty if fewer were found), sentences to words; SentenceScores holds the score of
    each word. Repeated end tokens are removed.
    """
    steps = steps_of(ids, scores)
    source, start, places = steps.trace()
    step, number = np.arange(len(places))[:, None], np.arange(len(source))
    best = np.lexsort((-steps.scores[start, places[start, number]], source)) if len(source) else number
    source, start, places = source[best], start[best], places[:, best]
    words = steps.words[step, places].T
    said = (step <= start).T & ((words != end_id) | (step == start).T)
    found = np.bincount(source, minlength=steps.high.shape[1] - 1)
    top = np.concatenate([[0], np.cumsum(np.maximum(found, beam_size))])
    lengths = np.zeros(top[-1], np.int64)
    lengths[top[source] + number - (np.cumsum(found) - found)[source]] = said.sum(axis=1)
    lod = (top.astype(np.int32), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    return LoDArray(words[said], lod), LoDArray(steps.scores[step, places].T[said], lod)
