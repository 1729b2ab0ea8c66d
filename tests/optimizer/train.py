"""Training a small network with an embedding, and a NumPy model of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fluidjax as fluid

BATCHES, ROWS = 6, 5


class Data:
    """Feeds and initial values."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.x = rng.normal(size=(BATCHES, ROWS, 4)).astype(np.float32)
        self.ids = rng.integers(0, 10, (BATCHES, ROWS, 1))
        self.w = (rng.normal(size=(4, 3)) / 2).astype(np.float32)
        self.e = (rng.normal(size=(10, 4)) / 3).astype(np.float32)

    def feed(self, step: int) -> dict[str, np.ndarray]:
        return {"x": self.x[step], "ids": self.ids[step]}

    def gradients(self, step: int, w: np.ndarray, e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """d(loss)/dw and d(loss)/de."""
        x, ids = self.x[step], self.ids[step].ravel()
        h = x * e[ids]
        d_out = 2 * (h @ w) / (ROWS * 3)
        d_e = np.zeros_like(e)
        np.add.at(d_e, ids, (d_out @ w.T) * x)
        return h.T @ d_out, d_e


def network(data: Data, is_sparse: bool = False) -> Any:
    """mean(((x * e[ids]) @ w)^2)."""
    layers, start = fluid.layers, fluid.initializer.NumpyArrayInitializer
    x = fluid.data("x", [-1, 4])
    ids = fluid.data("ids", [-1, 1], "int64")
    w = layers.create_parameter([4, 3], "float32", attr=fluid.ParamAttr(name="w", initializer=start(data.w)))
    e = layers.embedding(
        ids, [10, 4], is_sparse=is_sparse, param_attr=fluid.ParamAttr(name="e", initializer=start(data.e))
    )
    return layers.mean(layers.square(layers.mul(layers.elementwise_mul(x, layers.reshape(e, [-1, 4])), w)))


class Run:
    """One training run in a scope of its own."""

    def __init__(self, data: Data, build: Callable[[], Any], is_sparse: bool = False) -> None:
        self.data, self.main, self.startup = data, fluid.Program(), fluid.Program()
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            self.loss = network(data, is_sparse)
            self.made = build(self.loss)
        self.exe, self.scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
        with fluid.scope_guard(self.scope):
            self.exe.run(self.startup)

    def step(self, step: int) -> float:
        with fluid.scope_guard(self.scope):
            (loss,) = self.exe.run(self.main, feed=self.data.feed(step), fetch_list=[self.loss])
        return float(np.asarray(loss).reshape(-1)[0])

    def __getitem__(self, name: str) -> np.ndarray:
        return np.array(self.scope.find_var(name).get_tensor())
