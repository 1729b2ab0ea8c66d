"""Beam search: one step against a plain search, and whole sentences."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import fluidjax as fluid
from lowering import LoDArray, Runner
from lowering.program import BlockView, OpView, ProgramView
from tests.control_flow.running import build, run

layers = fluid.layers


def search(pre_ids, pre_scores, ids, scores, sources, beam: int, end: int):
    """(id, score, beam it came from) for each source, best first, then by beam; ended sources select nothing."""
    chosen = []
    for begin, stop in zip(sources[:-1], sources[1:], strict=True):
        found = []
        for row in range(begin, stop):
            if pre_ids[row] == end:
                found.append((pre_scores[row], row, end))
            else:
                found += [(s, row, int(i)) for i, s in zip(ids[row], scores[row], strict=True)]
        best = sorted(found, key=lambda f: -f[0])[:beam]
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
    got = step(feed, beam, end, trace)
    want = search(pre_ids, pre_scores, ids, scores, sources, beam, end)
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
    assert low.tolist() == [0, *np.cumsum([sum(p == r for _, p, _ in want) for r in range(6)]).tolist()]


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
