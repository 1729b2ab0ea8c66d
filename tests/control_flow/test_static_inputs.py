"""A DynamicRNN that looks at all rows of its input in each step: what its gradient needs of that is not saved."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from lowering.loops import saves as loop_saves
from tests.control_flow.running import build, ragged, run

WIDTH, LENGTHS = 3, [2, 4, 1]


def attention() -> list[Any]:
    x = fluid.data("x", [None, WIDTH], "float32", lod_level=1)
    x.stop_gradient = False
    rnn = layers.DynamicRNN()
    with rnn.block():
        word, rows = rnn.step_input(x), rnn.static_input(x)
        memory = rnn.memory(shape=[WIDTH], value=0.0)
        score = layers.elementwise_mul(rows, layers.sequence_expand(memory, rows))
        context = layers.sequence_pool(layers.tanh(layers.elementwise_add(score, rows)), "sum")
        hidden = layers.fc([word, context], WIDTH, act="tanh", param_attr="w", bias_attr=False)
        rnn.update_memory(memory, hidden)
        rnn.output(hidden)
    loss = layers.mean(layers.sequence_last_step(rnn()))
    return [loss, *fluid.gradients([loss], [x])]


def test_static_inputs_are_not_saved(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[dict[str, Any]] = []
    plain = loop_saves.Recorder.run

    def watched(self: loop_saves.Recorder, runner: Any, ops: Any, env: dict[str, Any]) -> dict[str, Any]:
        kept = plain(self, runner, ops, env)
        if self.plan is not None and self.facts.again:
            records.append({**self.constants, **kept})
        return kept

    monkeypatch.setattr(loop_saves.Recorder, "run", watched)
    main, startup, fetch = build(attention)
    x = rng.standard_normal((sum(LENGTHS), WIDTH)).astype(np.float32)
    w = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32)
    got = run(main, startup, {"x": ragged(x, LENGTHS)}, fetch, {"w": w})
    saved = records[-1]
    shrunken = [n for n, v in saved.items() if isinstance(v, loop_saves.Again)]
    assert len(shrunken) == 2  # the static input and the memory
    leaves = jax.tree_util.tree_leaves(list(saved.values()))
    assert len({id(leaf) for leaf in leaves}) == len(leaves)
    monkeypatch.undo()
    step_by_step = run(main, startup, {"x": ragged(x, LENGTHS)}, fetch, {"w": w}, interpret=True)
    for a, b in zip(got, step_by_step, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
