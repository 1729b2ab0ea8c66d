"""Batches of sequence_pad that are wider than their longest sequence: where that changes nothing, and only there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.framework import program_view
from lowering.wide.widen import widened

from .conftest import ragged, train

layers = fluid.layers
WIDTH = 4


def batch() -> tuple[Any, Any]:
    x = fluid.data("x", [None, WIDTH], "float32", lod_level=1)
    return layers.sequence_pad(x, layers.fill_constant([1], "float32", 0.5))


def position_by_position() -> Sequence[Any]:
    rows, length = batch()
    hidden = layers.fc(rows, WIDTH, num_flatten_dims=2, act="softmax") * layers.tanh(rows) + 1.0
    kept = layers.sequence_unpad(hidden, length)
    return [layers.mean(layers.square(kept)), kept]


def looked_up() -> Sequence[Any]:
    ids = fluid.data("ids", [None, 1], "int64", lod_level=1)
    rows, length = layers.sequence_pad(ids, layers.fill_constant([1], "int64", 2))
    kept = layers.sequence_unpad(layers.embedding(rows, [9, WIDTH]), length)
    return [layers.mean(layers.square(kept)), kept]


def averaged() -> Sequence[Any]:
    rows, _ = batch()
    hidden = layers.fc(rows, WIDTH, num_flatten_dims=2)
    return [layers.mean(layers.square(hidden))]


def fetched() -> Sequence[Any]:
    rows, length = batch()
    hidden = layers.fc(rows, WIDTH, num_flatten_dims=2)
    return [layers.mean(layers.sequence_unpad(hidden, length)), rows]


def over_the_positions() -> Sequence[Any]:
    rows, length = batch()
    hidden = layers.softmax(layers.fc(rows, WIDTH, num_flatten_dims=2), axis=1)
    return [layers.mean(layers.square(layers.sequence_unpad(hidden, length)))]


def counted() -> Sequence[Any]:
    rows, length = batch()
    hidden = layers.fc(rows, WIDTH, num_flatten_dims=2) * layers.cast(layers.shape(rows)[1], "float32")
    return [layers.mean(layers.square(layers.sequence_unpad(hidden, length)))]


def backwards() -> Sequence[Any]:
    """A recurrence that begins after the longest sequence."""
    rows, length = batch()
    steps = layers.reverse(layers.transpose(rows, [1, 0, 2]), axis=0)
    return [layers.mean(layers.square(layers.sequence_unpad(layers.transpose(steps, [1, 0, 2]), length))), steps]


FREE = [position_by_position, looked_up]
BOUND = [averaged, fetched, over_the_positions, counted, backwards]


def feeds(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Longest sequences of 3, 5 and 9, of which 8 is a bucket."""
    found = []
    for lengths in ([3, 1, 2], [5, 1, 1], [9, 1, 1]):
        rows, ids = rng.normal(size=(sum(lengths), WIDTH)).astype(np.float32), rng.integers(0, 9, (sum(lengths), 1))
        found.append({"x": ragged(rows, lengths), "ids": ragged(ids, lengths)})
    return found


@pytest.mark.parametrize("build", [*FREE, *BOUND[:4]], ids=lambda f: f.__name__)
def test_wider_equals_exact(build: Callable[[], Sequence[Any]], rng, train_exact) -> None:
    wanted = ("ids",) if build is looked_up else ("x",)
    batches = [{name: feed[name] for name in wanted} for feed in feeds(rng)]
    trained = train(build, batches)
    trained.assert_close(train_exact(build, batches))
    assert trained.compilations <= (2 if build in FREE else 4)


@pytest.mark.parametrize("build", [*FREE, *BOUND], ids=lambda f: f.__name__)
def test_what_may_be_wider(build: Callable[[], Sequence[Any]]) -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        fetches = [v.name for v in build()]
        if build is not backwards:
            fluid.optimizer.SGD(0.1).minimize(main.global_block().var(fetches[0]))
    assert bool(widened(program_view(main), fetches)) == (build in FREE)
