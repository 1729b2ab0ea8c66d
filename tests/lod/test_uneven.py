"""Ragged values of unequal capacity that meet, and rows whose number depends on data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid

from .conftest import ragged, train

pytestmark = pytest.mark.usefixtures("compiled_quickly")

layers = fluid.layers
WIDTH, STATE, CLASSES = 3, 5, 4


def padded_tagger() -> Sequence[Any]:
    """A StaticRNN over the steps of sequence_pad, whose rows meet the labels' after sequence_unpad."""
    x = fluid.data("x", [None, WIDTH], "float32", lod_level=1)
    label = fluid.data("label", [None, 1], "int64", lod_level=1)
    rows, length = layers.sequence_pad(x, layers.fill_constant([1], "float32", 0.0))
    steps = layers.transpose(rows, [1, 0, 2])
    rnn = layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(steps)
        state = rnn.memory(shape=[-1, STATE], batch_ref=steps, ref_batch_dim_idx=1)
        new = layers.fc([word, state], STATE, act="tanh")
        rnn.update_memory(state, new)
        rnn.step_output(new)
    hidden = layers.sequence_unpad(layers.transpose(rnn(), [1, 0, 2]), length)
    guess = layers.fc(hidden, CLASSES, act="softmax")
    return [layers.mean(layers.cross_entropy(guess, label)), guess]


def tagged(rng: np.random.Generator, lengths: Sequence[int]) -> dict[str, Any]:
    total = sum(lengths)
    rows = rng.normal(size=(total, WIDTH)).astype(np.float32)
    return {"x": ragged(rows, lengths), "label": ragged(rng.integers(0, CLASSES, (total, 1)), lengths)}


def test_padded_batches_meet_labels(rng, train_exact) -> None:
    """Totals at, below and above a capacity; the padded batch has room for more rows than the labels."""
    feeds = [tagged(rng, n) for n in ([4, 4, 4, 4], [7, 3, 2, 4], [7, 2, 1, 1], [7, 6, 3, 1], [4, 4, 1, 2])]
    trained = train(padded_tagger, feeds)
    trained.assert_close(train_exact(padded_tagger, feeds))
    assert trained.compilations <= 3


def test_uneven_rows_are_refused(rng) -> None:
    """One row too many is an error although both fit into the same room."""
    feed = tagged(rng, [7, 3, 2, 4])
    feed["label"] = ragged(np.zeros((15, 1), np.int64), [7, 3, 2, 3])
    with pytest.raises(fluid.core.EnforceNotMet, match="cross_entropy"):
        train(padded_tagger, [tagged(rng, [4, 4, 4, 4]), feed])


def product() -> Sequence[Any]:
    x, y = (fluid.data(name, [None, WIDTH], "float32", lod_level=1) for name in ("x", "label"))
    rows = layers.fc(x, WIDTH) * layers.fc(y, WIDTH, act="tanh")
    return [layers.mean(layers.square(rows)), rows]


def multiplied(rng: np.random.Generator, x: int, y: int) -> dict[str, Any]:
    rows = rng.normal(size=(x + y, WIDTH)).astype(np.float32)
    return {"x": ragged(rows[:x], [x]), "label": ragged(rows[x:], [y])}


@pytest.mark.parametrize("before", [[], [(14, 14)], [(14, 14), (13, 13)] * 3], ids=["first", "later", "settled"])
def test_rows_of_one_capacity_are_counted_too(rng, before) -> None:
    """14 rows and 13 have room for 16: no row is paired with padding."""
    feeds = [multiplied(rng, *sizes) for sizes in [*before, (14, 13)]]
    with pytest.raises(fluid.core.EnforceNotMet, match=r"float32\[14, 3\].*float32\[13, 3\]"):
        train(product, feeds)


def test_one_row_is_spread_over_the_others(rng, train_exact) -> None:
    feeds = [multiplied(rng, *sizes) for sizes in [(5, 5), (5, 1), (7, 7)]]
    train(product, feeds).assert_close(train_exact(product, feeds))


def sliced_product() -> Sequence[Any]:
    x = fluid.data("x", [None, 2], "float32", lod_level=1)
    start, count = (fluid.data(name, [None, 1], "int64") for name in ("start", "count"))
    dense = fluid.data("dense", [None, 2], "float32")
    rows = layers.sequence_slice(layers.fc(x, 2), start, count)
    return [layers.reduce_sum(layers.square(rows * dense)), rows]


def sliced(rng: np.random.Generator, counts: Sequence[int], dense: int) -> dict[str, Any]:
    return {
        "x": ragged(rng.normal(size=(6, 2)).astype(np.float32), [3, 3]),
        "start": np.array([[0], [1]]),
        "count": np.array(counts).reshape(-1, 1),
        "dense": rng.normal(size=(dense, 2)).astype(np.float32),
    }


def test_rows_counted_by_data_meet_dense_ones(rng, train_exact) -> None:
    """sequence_slice leaves 4 and 3 of 6 rows: how many, only a run knows."""
    feeds = [sliced(rng, [2, 2], 4), sliced(rng, [1, 2], 3), sliced(rng, [2, 2], 4)]
    trained = train(sliced_product, feeds)
    assert [step[1].shape for step in trained.fetches] == [(4, 2), (3, 2), (4, 2)]
    trained.assert_close(train_exact(sliced_product, feeds))


def test_rows_that_do_not_fit_are_named(rng) -> None:
    """Four rows and six: 1.8.5 refuses them too. As many as there is room for are no special case."""
    with pytest.raises(fluid.core.EnforceNotMet, match=r"op elementwise_mul .*\n.*test_uneven.py") as caught:
        train(sliced_product, [sliced(rng, [2, 2], 6)])
    assert "float32[4, 2]" in str(caught.value) and "float32[6, 2]" in str(caught.value)


def branch_with_exact_rows() -> Sequence[Any]:
    """Rows counted by data inside a loop, where nothing can be cut out."""
    x = fluid.data("x", [None, 2], "float32", lod_level=1)
    start, count = (fluid.data(name, [None, 1], "int64") for name in ("start", "count"))
    dense = fluid.data("dense", [None, 2], "float32")
    total = layers.fill_constant([1], "float32", 0.0)
    i, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 2)
    more = layers.less_than(i, end)
    loop = layers.While(more)
    with loop.block():
        rows = layers.sequence_slice(x, start, count) * dense
        layers.assign(total + layers.reduce_sum(rows), total)
        layers.increment(i)
        layers.less_than(i, end, cond=more)
    return [layers.mean(layers.fc(layers.reshape(total, [1, 1]), 1)), total]


def test_rows_counted_by_data_in_a_loop(rng) -> None:
    feed = sliced(rng, [2, 2], 4)
    (step,) = train(branch_with_exact_rows, [feed]).fetches
    x, dense = np.array(feed["x"]), feed["dense"]
    np.testing.assert_allclose(step[1], [2 * (x[[0, 1, 4, 5]] * dense).sum()], atol=1e-5)


def picked_rows() -> Sequence[Any]:
    """Rows of a ragged value by number: which numbers there are, only the step knows."""
    x = fluid.data("x", [None, WIDTH], "float32", lod_level=1)
    label = fluid.data("label", [None, 1], "int64", lod_level=1)
    picked = layers.gather(layers.fc(x, CLASSES, act="softmax"), label)
    return [layers.mean(layers.square(picked)), picked]


def test_rows_are_picked_among_the_valid_ones(rng, train_exact) -> None:
    feeds = [tagged(rng, n) for n in ([4, 4, 3], [7, 3, 3], [5, 2, 1])]
    trained = train(picked_rows, feeds)
    trained.assert_close(train_exact(picked_rows, feeds))
    feeds[1]["label"] = ragged(np.full((3, 1), 13), [1, 1, 1])
    with pytest.raises(fluid.core.EnforceNotMet, match="op gather .* the value 13 of 'label'"):
        train(picked_rows, feeds[:2])
