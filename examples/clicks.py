"""Says which advertisements are clicked at, by embeddings of sparse features; started like ``digits``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import fluidjax as fluid  # noqa: E402
from examples.job import Batch, fixed, train  # noqa: E402
from fluidjax import layers  # noqa: E402

ROWS, WIDTH = 40, 8


def network() -> Any:
    user, item = fluid.data("user", [None, 1], "int64"), fluid.data("item", [None, 1], "int64")
    click = fluid.data("click", [None, 1], "float32")
    table = fixed("table", ROWS, WIDTH)
    found = [layers.embedding(ids, [ROWS, WIDTH], is_sparse=True, param_attr=table) for ids in (user, item)]
    deep = layers.concat([layers.reshape(f, [-1, WIDTH]) for f in found], axis=1)
    hidden = layers.fc(deep, 16, act="relu", param_attr=fixed("w0", 2 * WIDTH, 16), bias_attr=fixed("b0", 16))
    score = layers.fc(hidden, 1, param_attr=fixed("w1", 16, 1), bias_attr=fixed("b1", 1))
    return layers.mean(layers.sigmoid_cross_entropy_with_logits(score, click))


def clicks(count: int = 60, size: int = 64) -> Iterator[Batch]:
    """Every second user clicks at what is shown, the others do not."""
    draw = np.random.RandomState(0)
    for _ in range(count):
        user, item = draw.randint(0, ROWS, (2, size, 1))
        yield {"user": user, "item": item, "click": (user % 2).astype("float32")}


if __name__ == "__main__":
    train(network, fluid.optimizer.Adam(0.05, lazy_mode=True), clicks())
