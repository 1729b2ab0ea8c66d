"""Rows whose number the values decide: where, unique. They get room, so that not each number of them is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid

from .conftest import train

pytestmark = pytest.mark.usefixtures("compiled_quickly")

layers = fluid.layers
BATCH, STEPS, CLASSES = 30, 16, 40


def rows_above_zero(x: Any) -> Any:
    return layers.slice(layers.where(layers.greater_than(x, layers.zeros_like(x))), [1], [0], [1])


def by_coordinates(x: Any, h: Any, ids: Any) -> Any:
    at = rows_above_zero(x)
    rows = layers.gather_nd(h, at)
    scattered = layers.scatter_nd_add(h, at, rows)
    return layers.reduce_sum(layers.square(scattered)) + layers.reduce_sum(layers.fc(rows, 3, act="softmax"))


def by_numbers(x: Any, h: Any, ids: Any) -> Any:
    at = layers.reshape(rows_above_zero(x), [-1])
    rows = layers.gather(h, at) + layers.square(layers.index_select(h, at, 0))
    replaced = layers.scatter(h * 1.0, at, rows)
    return layers.reduce_sum(layers.square(replaced + layers.scatter(h * 2.0, at, rows, overwrite=False)))


def distinct(x: Any, h: Any, ids: Any) -> Any:
    """A table row is looked up once for each id, however often that occurs."""
    found, index = layers.unique(ids)
    table = layers.embedding(layers.reshape(found, [-1, 1]), [CLASSES, 4])
    return layers.reduce_sum(layers.square(layers.elementwise_mul(layers.gather(table, index, overwrite=False), h)))


def counted(x: Any, h: Any, ids: Any) -> Any:
    found, _, counts = layers.unique_with_counts(ids)
    table = layers.embedding(layers.reshape(found, [-1, 1]), [CLASSES, 4])
    weight = layers.reshape(layers.cast(counts, "float32"), [-1, 1])
    return layers.reduce_sum(layers.elementwise_mul(layers.square(table), weight, axis=0))


NETS = [by_coordinates, by_numbers, distinct, counted]


def batches(rng: np.random.Generator) -> list[dict[str, np.ndarray]]:
    """In the first no row is found, in the others more and more ids are."""
    values = rng.normal(size=(STEPS, BATCH, 1)).astype(np.float32)
    values[0] = -np.abs(values[0])
    return [{"x": v, "ids": rng.integers(0, 2 + 2 * step, BATCH) % CLASSES} for step, v in enumerate(values)]


@pytest.mark.parametrize("net", NETS, ids=lambda net: net.__name__)
def test_rows_that_are_found_have_room(net: Callable[[Any, Any, Any], Any], rng) -> None:
    def build() -> list[Any]:
        x, ids = fluid.data("x", [BATCH, 1], "float32"), fluid.data("ids", [BATCH], "int64")
        return [net(x, layers.fc(x, 4, act="tanh"), ids) * 0.02]

    feeds = batches(rng)
    trained = train(build, feeds)
    with fluid.interpret_mode():
        trained.assert_close(train(build, feeds))
    assert trained.compilations <= 6
