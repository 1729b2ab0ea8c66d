"""A stream of ragged batches compiles a bounded number of times, whatever its row totals are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fluidjax as fluid
from fluidjax.execution.rooms.buckets import bucket

WIDTH = 4
BATCHES, SEQUENCES, SHORTEST, LONGEST = 300, 32, 5, 100


def stream(rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.integers(SHORTEST, LONGEST + 1, SEQUENCES) for _ in range(BATCHES)]


def pooled(x: Any) -> Any:
    return fluid.layers.sequence_pool(fluid.layers.fc(x, WIDTH, act="tanh"), "sum")


def recurrent(x: Any) -> Any:
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        step = rnn.step_input(x)
        state = rnn.memory(shape=[WIDTH], value=0.0)
        new = fluid.layers.fc([step, state], WIDTH, act="tanh")
        rnn.update_memory(state, new)
        rnn.output(new)
    return fluid.layers.sequence_last_step(rnn())


def two_levels(x: Any) -> Any:
    sentences = fluid.layers.sequence_pool(fluid.layers.fc(x, WIDTH, act="tanh"), "sum")
    return fluid.layers.sequence_pool(sentences, "average")


def train(encode: Callable[[Any], Any], batches: list[fluid.LoDTensor], lod_level: int = 1) -> int:
    """Train one step on each batch; the number of compilations of the training program."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        x = fluid.data("x", [None, WIDTH], "float32", lod_level=lod_level)
        loss = fluid.layers.mean(fluid.layers.square(encode(x)))
        fluid.optimizer.SGD(learning_rate=1e-3).minimize(loss)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        for batch in batches:
            (value,) = executor.run(main, feed={"x": batch}, fetch_list=[loss])
            assert np.isfinite(value).all()
    return sum(p.compilations for p in main.__dict__["_prepared_cache"].values())


def tensor(rows: int, lengths: list[list[int]]) -> fluid.LoDTensor:
    return fluid.create_lod_tensor(np.ones((rows, WIDTH), np.float32), lengths, fluid.CPUPlace())


def test_one_level(rng: np.random.Generator) -> None:
    sizes = stream(rng)
    assert len({int(s.sum()) for s in sizes}) > 150
    assert train(pooled, [tensor(int(s.sum()), [s.tolist()]) for s in sizes]) <= 4


def test_dynamic_rnn(rng: np.random.Generator) -> None:
    """Its longest length is a part of the key, as a high-water mark."""
    sizes = stream(rng)
    assert train(recurrent, [tensor(int(s.sum()), [s.tolist()]) for s in sizes]) <= 6


def test_two_levels(rng: np.random.Generator) -> None:
    batches = []
    for _ in range(BATCHES):
        sentences = rng.integers(1, 9, SEQUENCES)
        words = rng.integers(1, 13, int(sentences.sum()))
        batches.append(tensor(int(words.sum()), [sentences.tolist(), words.tolist()]))
    assert train(two_levels, batches, lod_level=2) <= 12


def padded(x: Any) -> Any:
    rows, lengths = fluid.layers.sequence_pad(x, fluid.layers.fill_constant([1], "float32", 0.0))
    encoded = fluid.layers.fc(rows, WIDTH, num_flatten_dims=2, act="tanh")
    return fluid.layers.sequence_pool(fluid.layers.sequence_unpad(encoded, lengths), "max")


def test_padding_to_the_longest(rng: np.random.Generator) -> None:
    """Where what follows the sequences is cut off again, the batch is as wide as a bucket of lengths."""
    sizes = stream(rng)[:60]
    assert len({int(s.max()) for s in sizes}) > 4
    assert train(padded, [tensor(int(s.sum()), [s.tolist()]) for s in sizes]) <= 5


def padded_and_averaged(x: Any) -> Any:
    rows, _ = fluid.layers.sequence_pad(x, fluid.layers.fill_constant([1], "float32", 0.0))
    return fluid.layers.fc(rows, WIDTH, num_flatten_dims=2, act="tanh")


def test_padding_to_the_very_longest(rng: np.random.Generator) -> None:
    """The longest length is a shape that the mean depends on, so each one compiles; row totals do not."""
    batches = []
    for longest in (20, 30) * 10:
        sizes = [longest, *rng.integers(1, 20, 7).tolist()]
        batches.append(tensor(sum(sizes), [sizes]))
    assert len({b.shape()[0] for b in batches}) > 10
    # The first attempt finds out that the length matters; the capacity may grow once.
    assert train(padded_and_averaged, batches) <= 1 + 2 * 2


def test_padding_is_at_most_a_fifth_of_the_rows(rng: np.random.Generator) -> None:
    totals = np.array([int(s.sum()) for s in stream(rng)])
    capacities = np.array([bucket(int(t)) for t in totals])
    assert (capacities >= totals).all()
    assert capacities.sum() / totals.sum() - 1 <= 0.20
