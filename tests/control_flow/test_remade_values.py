"""Values that a loop's gradient computes again instead of keeping them: where it pays and is right, to the same end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from lowering.loops import remake as loop_remake
from lowering.loops import saves as loop_saves
from lowering.loops.remake import Remade
from tests.control_flow.running import build, ragged, run

ROWS, WIDTH, STEPS = 128, 64, 3
LENGTHS = [60, 3, 65]


def _loop(body: Callable[[Any], Any], start: Any) -> Any:
    """``state = body(state)``, three times; the last one."""
    i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", STEPS)
    memory = layers.array_write(start, i)
    cond = layers.less_than(i, n)
    with layers.While(cond).block():
        state = body(layers.array_read(memory, i))
        layers.increment(i, in_place=True)
        layers.array_write(state, i, memory)
        layers.less_than(i, n, cond=cond)
    return layers.array_read(memory, n)


def _read_keys(keys: Any, state: Any) -> Any:
    """[1, WIDTH] from a value as large as the keys."""
    mixed = layers.tanh(layers.elementwise_add(keys, layers.expand(state, [ROWS, 1])))
    return layers.reduce_mean(layers.square(mixed), dim=0, keep_dim=True)


def _inputs() -> tuple[Any, Any]:
    keys, start = fluid.data("keys", [ROWS, WIDTH], "float32"), fluid.data("start", [1, WIDTH], "float32")
    keys.stop_gradient = start.stop_gradient = False
    return keys, start


def over_keys() -> list[Any]:
    keys, start = _inputs()
    loss = layers.reduce_sum(_loop(lambda state: _read_keys(keys, state), start))
    return [loss, *fluid.gradients([loss], [keys, start])]


def over_keys_in_a_static_rnn() -> list[Any]:
    keys, start = _inputs()
    rows = layers.reshape(layers.slice(keys, [0], [0], [STEPS]), [STEPS, 1, WIDTH])
    rnn = layers.StaticRNN()
    with rnn.step():
        row, before = rnn.step_input(rows), rnn.memory(init=start)
        state = _read_keys(keys, layers.elementwise_add(before, row))
        rnn.update_memory(before, state)
        rnn.step_output(state)
    loss = layers.reduce_sum(rnn())
    return [loss, *fluid.gradients([loss], [keys, start])]


def over_keys_that_change_later() -> list[Any]:
    keys, start = _inputs()
    copy = layers.assign(keys)
    last = _loop(lambda state: _read_keys(copy, state), start)
    layers.assign(layers.scale(copy, 5.0), output=copy)
    loss = layers.reduce_sum(last)
    return [loss, layers.reduce_sum(copy), *fluid.gradients([loss], [start])]


def over_keys_of_the_step() -> list[Any]:
    """What the loop adds to is as large as the sum, and another one in each step."""
    keys, start = _inputs()
    wide = layers.reshape(layers.matmul(keys, start, transpose_y=True), [ROWS, 1])

    def body(state: Any) -> Any:
        mine = layers.matmul(wide, state)
        return _read_keys(mine, state)

    loss = layers.reduce_sum(_loop(body, start))
    return [loss, *fluid.gradients([loss], [keys, start])]


def over_words() -> list[Any]:
    """Attention over the rows of each sequence in a DynamicRNN."""
    x = fluid.data("x", [None, WIDTH], "float32", lod_level=1)
    x.stop_gradient = False
    rnn = layers.DynamicRNN()
    with rnn.block():
        word, keys = rnn.step_input(x), rnn.static_input(x)
        memory = rnn.memory(shape=[WIDTH], value=0.1)
        query = layers.sequence_expand(layers.scale(memory, 2.0), keys)
        mixed = layers.tanh(layers.elementwise_add(keys, query))
        context = layers.sequence_pool(layers.square(mixed), "sum")
        hidden = layers.tanh(layers.elementwise_add(word, context))
        rnn.update_memory(memory, hidden)
        rnn.output(hidden)
    loss = layers.mean(layers.sequence_last_step(rnn()))
    return [loss, *fluid.gradients([loss], [x])]


def _feed(rng: np.random.Generator, network: Callable) -> dict[str, Any]:
    rows = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    if network is over_words:
        return {"x": ragged(rows, LENGTHS)}
    return {"keys": rows, "start": rows[:1] / 2}


def _run(network: Callable, feed: dict[str, Any], patch: pytest.MonkeyPatch) -> tuple[list[np.ndarray], dict[str, Any]]:
    """(what is fetched, what a step of the forward loop saves)."""
    records: list[dict[str, Any]] = []
    plain = loop_saves.Recorder.run

    def watched(self: loop_saves.Recorder, runner: Any, ops: Any, env: dict[str, Any]) -> dict[str, Any]:
        kept = plain(self, runner, ops, env)
        records.append({**self.constants, **kept})
        return kept

    with patch.context() as context:
        context.setattr(loop_saves.Recorder, "run", watched)
        main, startup, fetch = build(network)
        return run(main, startup, feed, fetch), records[-1]


def _floats(saved: dict[str, Any]) -> int:
    return max((leaf.size for leaf in jax.tree_util.tree_leaves(saved) if leaf.dtype == np.float32), default=0)


@pytest.mark.parametrize("network", [over_keys, over_keys_in_a_static_rnn, over_words])
def test_large_values_are_made_again(rng, monkeypatch: pytest.MonkeyPatch, network: Callable) -> None:
    feed = _feed(rng, network)
    got, saved = _run(network, feed, monkeypatch)
    assert any(isinstance(v, Remade) for v in saved.values())
    assert _floats(saved) <= len(LENGTHS) * WIDTH, "at most a state is saved"
    monkeypatch.setattr(loop_remake, "_WORTH", 1 << 40)
    kept, everything = _run(network, feed, monkeypatch)
    assert _floats(everything) >= ROWS * WIDTH
    for a, b in zip(got, kept, strict=True):
        # XLA fuses them with other ops than before, so the last bit may differ.
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("network", [over_keys_that_change_later, over_keys_of_the_step])
def test_values_whose_sources_do_not_stay_or_are_large_are_kept(
    rng, monkeypatch: pytest.MonkeyPatch, network: Callable
) -> None:
    feed = _feed(rng, network)
    got, saved = _run(network, feed, monkeypatch)
    assert not any(isinstance(v, Remade) for v in saved.values())
    main, startup, fetch = build(network)
    for a, b in zip(got, run(main, startup, feed, fetch, interpret=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_chains_start_where_least_is_saved(rng, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of keys and query, and its tanh, come from the state that an array holds."""
    _, saved = _run(over_keys, _feed(rng, over_keys), monkeypatch)
    made = next(v for v in saved.values() if isinstance(v, Remade))
    assert len(made.numbers) == 3
    assert not [v for v in saved.values() if getattr(v, "size", 0) > 1], "the state lies in the memory array"
