"""Programs of any size: each function builds one for ``benchmarks.growth`` and returns (loss, feed, its true size)."""

from __future__ import annotations

from typing import Any

import numpy as np

Built = tuple[Any, dict[str, Any], float]


def layers(fluid: Any, size: int) -> Built:
    """Layers of 16 units trained by SGD on 8 rows, as many as make about ``size`` ops."""
    x = fluid.data("x", [None, 16], "float32")
    for _ in range(max(1, size // 10)):
        x = fluid.layers.fc(x, 16, act="tanh")
    loss = fluid.layers.mean(x)
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss, {"x": np.ones((8, 16), np.float32)}, float(len(fluid.default_main_program().global_block().ops))


def _perceptron(fluid: Any, batch: int, width: int) -> tuple[Any, dict[str, Any]]:
    x = fluid.data("x", [None, width], "float32")
    hidden = fluid.layers.fc(fluid.layers.fc(x, width, act="relu"), width, act="relu")
    loss = fluid.layers.mean(fluid.layers.square(hidden))
    fluid.optimizer.Adam(0.001).minimize(loss)
    return loss, {"x": np.ones((batch, width), np.float32)}


def batch(fluid: Any, size: int) -> Built:
    """Two layers of 256 units trained by Adam on ``size`` rows."""
    return (*_perceptron(fluid, size, 256), float(size))


def parameters(fluid: Any, size: int) -> Built:
    """Two layers of about ``size`` weights together, trained by Adam on 16 rows."""
    width = round((size / 2) ** 0.5)
    return (*_perceptron(fluid, 16, width), float(2 * width * (width + 1)))


def length(fluid: Any, size: int) -> Built:
    """An LSTM of 64 units trained by SGD on 8 sequences of ``size`` rows."""
    x = fluid.data("x", [None, 32], "float32", lod_level=1)
    state, _ = fluid.layers.dynamic_lstm(fluid.layers.fc(x, 256), 256, use_peepholes=False)
    loss = fluid.layers.mean(fluid.layers.sequence_pool(state, "last"))
    fluid.optimizer.SGD(0.1).minimize(loss)
    rows = np.ones((8 * size, 32), np.float32)
    return loss, {"x": fluid.create_lod_tensor(rows, [[size] * 8], fluid.CPUPlace())}, float(size)


def vocabulary(fluid: Any, size: int) -> Built:
    """Embeddings of 16 numbers of ``size`` words, 1,024 of which are looked up and trained by SGD in a step."""
    ids = fluid.data("ids", [None, 1], "int64")
    rows = fluid.embedding(ids, [size, 16], is_sparse=True)
    loss = fluid.layers.mean(fluid.layers.square(rows))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss, {"ids": np.random.default_rng(0).integers(0, size, (1024, 1))}, float(size)
