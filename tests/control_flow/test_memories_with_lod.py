"""A DynamicRNN whose memory starts with a LoD, over sequences whose lengths are known when the program runs."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers


def _lengths(x):
    """int64 [n, 1]: how many rows each sequence has."""
    return layers.cast(layers.sequence_pool(layers.reduce_sum(x, 1, keep_dim=True) * 0.0 + 1.0, "sum"), "int64")


def _whole(x):
    """x as the slice of all its rows: only the run knows the offsets."""
    lengths = _lengths(x)
    return layers.sequence_slice(x, lengths * 0, lengths)


def _tensor(rows: np.ndarray, lengths: list[int]):
    return fluid.create_lod_tensor(rows.astype("float32"), [lengths], fluid.CPUPlace())


def _summed(word, memory):
    return layers.elementwise_add(word, memory)  # has the LoD of the word, which is none


def _gated(word, memory):
    gates = layers.fc(layers.lod_reset(word, memory), 12, param_attr="w")
    return layers.dynamic_gru(gates, 4, h_0=memory, param_attr="u", bias_attr="b")


@pytest.mark.parametrize("step", [_summed, _gated])
def test_lengths_that_the_run_tells_give_what_fed_ones_give(step, rng) -> None:
    def results(rows):
        main, startup = fluid.Program(), fluid.Program()
        main.random_seed = startup.random_seed = 3
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            x, start = (fluid.data(name, [None, 4], lod_level=1) for name in ("x", "start"))
            x.stop_gradient = False
            words, rnn = rows(x), layers.DynamicRNN()
            with rnn.block():
                word, memory = rnn.step_input(words), rnn.memory(init=start, need_reorder=True)
                state = step(word, memory)
                rnn.output(state)
                rnn.update_memory(memory, state)
            out = rnn()
            fluid.backward.append_backward(layers.mean(layers.square(out)))
        exe = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(fluid.Scope()):
            exe.run(startup)
            return [exe.run(main, feed=feed, fetch_list=[out, "x@GRAD"], return_numpy=False) for feed in feeds]

    feeds = [
        {"x": _tensor(rng.normal(size=(sum(n), 4)), n), "start": _tensor(rng.normal(size=(3, 4)), [1, 1, 1])}
        for n in ([3, 1, 2], [2, 4, 1])
    ]
    for found, known in zip(results(_whole), results(lambda x: x), strict=True):
        for got, want in zip(found, known, strict=True):
            np.testing.assert_allclose(np.array(got), np.array(want), rtol=1e-5, atol=1e-6)
        assert found[0].recursive_sequence_lengths() == known[0].recursive_sequence_lengths()


def test_a_memory_without_the_lod_of_the_first_has_all_its_rows() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, start = (fluid.data(name, [None, 1], lod_level=1) for name in ("x", "start"))
        words, rnn = _whole(x), layers.DynamicRNN()
        with rnn.block():
            word, memory = rnn.step_input(words), rnn.memory(init=start, need_reorder=True)
            total = layers.elementwise_add(word, memory)
            rnn.output(total)
            rnn.update_memory(memory, total)
        out = rnn()
        feed = {
            "x": _tensor(np.ones((6, 1)), [3, 1, 2]),
            "start": _tensor(np.array([[10], [20], [30]]), [1, 1, 1]),
        }
        (sums,) = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[out], return_numpy=False)
    assert np.array(sums).ravel().tolist() == [11, 12, 13, 21, 31, 32]
