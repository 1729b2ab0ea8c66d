"""Beam search: one step against a plain search, and whole sentences."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import fluidjax as fluid
from lowering import LoDArray, Runner, get_op
from lowering.loops.carried import stack
from lowering.program import BlockView, OpView, ProgramView
from lowering.values import TensorArray
from tests.control_flow.running import build, run

layers = fluid.layers


def search(pre_ids, pre_scores, ids, scores, sources, beam: int, end: int):
    """(score, beam it came from, id) of what each source selects, by beam; of equal scores the later beams' win."""
    chosen = []
    for begin, stop in zip(sources[:-1], sources[1:], strict=True):
        found = []
        for row in range(begin, stop):
            if pre_ids[row] == end:
                found.append((pre_scores[row], row, end))
            else:
                found += [(s, row, int(i)) for i, s in zip(ids[row], scores[row], strict=True)]
        best = sorted(found, key=lambda f: (-f[0], -f[1]))[:beam]
        if not all(word == end and pre_ids[row] == end for _, row, word in best):
            chosen += sorted(best, key=lambda f: (f[1], -f[0]))
    return chosen


def step(feed, beam, end, trace: bool):
    """One beam_search op on values by slot."""
    slots = {name: [name] for name in feed}
    outs = {name: [name] for name in ("selected_ids", "selected_scores", "parent_idx")}
    attrs = {"level": 0, "beam_size": beam, "end_id": end, "is_accumulated": True}
    program = ProgramView((BlockView(0, -1, (OpView("beam_search", slots, outs, attrs),), {}),))

    def call(values):
        env = dict(values)
        Runner(program).run_block(0, env)
        return {name: env[name] for name in outs}

    with jax.enable_x64(True):
        return jax.jit(call)(feed) if trace else call(feed)


@pytest.mark.parametrize("trace", [False, True])
def test_a_step_selects_what_a_plain_search_selects(rng, trace: bool) -> None:
    """Three sources: one goes on, one has a beam that ended, one has ended altogether."""
    sources, end, beam = np.array([0, 2, 4, 6], np.int32), 1, 2
    rows = np.arange(7, dtype=np.int32)
    pre_ids = np.array([5, 6, 1, 7, 1, 1])
    pre_scores = rng.normal(size=6)
    ids = np.stack([rng.permutation(9)[:3] for _ in range(6)])
    scores = rng.normal(size=(6, 3))
    lod = (sources, rows)
    feed = {
        "pre_ids": LoDArray(pre_ids[:, None], lod),
        "pre_scores": LoDArray(pre_scores[:, None], lod),
        "ids": LoDArray(ids, lod),
        "scores": LoDArray(scores, lod),
    }
    check(step(feed, beam, end, trace), search(pre_ids, pre_scores, ids, scores, sources, beam, end), 6)


def check(got, want, rows: int) -> None:
    """The results of a step against (score, beam, id) of what a plain search selects among ``rows`` beams."""
    count = len(want) if got["selected_ids"].nrows is None else int(got["selected_ids"].nrows)
    assert count == len(want)
    parents = got["parent_idx"].data if isinstance(got["parent_idx"], LoDArray) else got["parent_idx"]
    picked = zip(
        np.asarray(got["selected_scores"].data)[:count, 0],
        np.asarray(parents)[:count],
        np.asarray(got["selected_ids"].data)[:count, 0],
        strict=True,
    )
    assert [(float(s), int(p), int(w)) for s, p, w in picked] == [(float(s), p, w) for s, p, w in want]
    low = np.asarray(got["selected_ids"].lod[1])
    assert low.tolist()[: rows + 1] == [0, *np.cumsum([sum(p == r for _, p, _ in want) for r in range(rows)]).tolist()]
    assert (low[rows:] == count).all()


@pytest.mark.parametrize("case", range(8))
def test_steps_with_equal_scores_and_sources_of_any_size(rng, case: int) -> None:
    """More beams in a source than the beam size, fewer candidates than it, none at all; padded rows at the end."""
    beam, end, width, room = (2, 1, 3, 12) if case % 2 else (5, 1, 2, 12)
    sources = np.concatenate([[0], np.cumsum(rng.permutation([0, 1, 4, 3]))]).astype(np.int32)
    rows = int(sources[-1])
    pre_ids, ids = rng.integers(1, 5, rows), rng.integers(1, 9, (rows, width))
    pre_scores = rng.choice([0.0, -1.0, -np.inf], rows).astype("float32")
    scores = rng.choice([-0.0, 0.0, -1.0, -2.0, -np.inf], (rows, width)).astype("float32")
    padded = (sources, np.minimum(np.arange(room + 1, dtype=np.int32), np.int32(rows)))

    def value(data: np.ndarray) -> LoDArray:
        return LoDArray(np.concatenate([data, np.repeat(data[:1], room - rows, 0)]), padded, np.int32(rows))

    feed = {"pre_ids": value(pre_ids[:, None]), "pre_scores": value(pre_scores[:, None])}
    if case > 5:  # every word of a small vocabulary
        ids = np.broadcast_to(np.arange(width), (rows, width))
    feed |= {"scores": value(scores)} | ({} if case > 5 else {"ids": value(ids)})
    got = step(feed, beam, end, trace=True)
    check(got, search(pre_ids, pre_scores, ids, scores, sources.tolist(), beam, end), rows)
    data = np.asarray(got["selected_ids"].data)
    assert (data[int(got["selected_ids"].nrows) :] == data[:1]).all()


def follow(steps, source: int, end: int) -> list[tuple[float, list[int], list[float]]]:
    """(last score, words, scores) of every candidate that a source selected last, best first."""
    while steps and steps[-1][3][steps[-1][2][source]] == steps[-1][3][steps[-1][2][source + 1]]:
        steps = steps[:-1]
    if not steps:
        return []
    found = []
    high, low = steps[-1][2:]
    for last in range(low[high[source]], low[high[source + 1]]):
        words, marks, at = [], [], last
        for ids, scores, _, offsets in reversed(steps):
            if not words or ids[at] != end:
                words.insert(0, int(ids[at]))
                marks.insert(0, float(scores[at]))
            at = int(np.searchsorted(offsets, at, side="right")) - 1
        found.append((marks[-1], words, marks))
    return sorted(found, key=lambda f: -f[0])


def selections(rng, sources: int, beam: int, count: int, end: int):
    """What ``count`` steps might select: (ids, scores, offsets of the sources' beams, of the beams' candidates)."""
    beams, steps = [1] * sources, []
    for step in range(count):
        high = np.concatenate([[0], np.cumsum(beams)])
        sizes = [int(rng.integers(1, beam + 1)) if n and (step == 0 or rng.random() < 0.8) else 0 for n in beams]
        of_beam = [rng.multinomial(size, np.full(n, 1 / n)) for size, n in zip(sizes, beams, strict=True) if n]
        low = np.cumsum(np.concatenate([[0], *of_beam])).astype(np.int32)
        ids, scores = rng.integers(end, end + 4, low[-1]), rng.choice([0.5, 1, 2, 3], low[-1]).astype("float32")
        steps.append((ids, scores, high.astype(np.int32), low))
        beams = sizes
    return steps


def arrays_of(steps, stacked: bool) -> tuple[TensorArray, TensorArray]:
    """The arrays of ids and scores; stacked ones have room for two more steps and rows."""
    lods = [(high, low) for _, _, high, low in steps]
    values = [[LoDArray(step[k][:, None], lod) for step, lod in zip(steps, lods, strict=True)] for k in (0, 1)]
    if not stacked:
        return TensorArray(tuple(values[0])), TensorArray(tuple(values[1]))
    room = max(len(lod[1]) for lod in lods) + 2
    count = jax.ShapeDtypeStruct((), np.dtype(np.int32))
    offsets = [jax.ShapeDtypeStruct((n,), np.dtype(np.int32)) for n in (len(lods[0][0]), room)]

    def stack_of(items: list[LoDArray]) -> TensorArray:
        rows = max(v.capacity for v in items) + 2
        item = LoDArray(jax.ShapeDtypeStruct((rows, 1), items[0].dtype), tuple(offsets), count)
        return stack(items, len(items) + 2, item)

    with jax.enable_x64(True):
        return stack_of(values[0]), stack_of(values[1])


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("case", range(6))
def test_sentences_are_those_followed_one_by_one(rng, stacked: bool, case: int) -> None:
    """Sources end in different steps; ends within a sentence are left out; missing sentences are empty."""
    sources, beam, end = 1 + case % 4, 3, 1
    steps = selections(rng, sources, beam, 1 + case, end)
    ids, scores = arrays_of(steps, stacked)
    words, marks = get_op("beam_search_decode").fn(ids, scores, beam_size=beam, end_id=end, ctx=None)
    found = [follow(steps, source, end) for source in range(sources)]
    found = [f + [(0.0, [], [])] * (beam - len(f)) for f in found]
    sentences = [s for f in found for s in f]
    assert words.data.tolist() == [w for s in sentences for w in s[1]]
    assert marks.data.tolist() == [m for s in sentences for m in s[2]]
    for value in (words, marks):
        assert value.lod[0].tolist() == [0, *np.cumsum([len(f) for f in found]).tolist()]
        assert value.lod[1].tolist() == [0, *np.cumsum([len(s[1]) for s in sentences]).tolist()]


def test_beam_search_decoder_decodes_each_batch_entry_alike(rng) -> None:
    """Entries that start alike end alike; tokens are of the vocabulary, and there are at most max_step_num + 1."""
    words, end = 4, 0

    def network():
        cell = layers.GRUCell(words, name="cell")
        batch = fluid.data("batch", [None, words], "float32")
        table = fluid.ParamAttr(name="table")
        decoder = layers.BeamSearchDecoder(
            cell, 1, end, words, embedding_fn=lambda ids: fluid.embedding(ids, [words, words], param_attr=table)
        )
        states = cell.get_initial_states(batch)
        outputs, _, lengths = layers.dynamic_decode(decoder, states, max_step_num=3, return_length=True)
        return [outputs, lengths]

    main, startup, fetch = build(network)
    values = {"table": rng.normal(size=(words, words)).astype("float32")}
    got, lengths = run(main, startup, {"batch": np.zeros((2, words), "float32")}, fetch, values)
    assert got.shape[0] == 2 and got.shape[2] == words and got.shape[1] <= 4
    np.testing.assert_array_equal(got[0], got[1])
    assert ((got >= 0) & (got < words)).all()
    assert lengths.shape == (2, words)
