"""Small networks with their batches, and a way to run them that shows what a recording holds."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

import fluidjax as fluid
from fluidjax import layers, optimizer

STEPS = 6
LENGTHS = [[3, 1, 4, 2, 2], [1, 5, 2, 1, 3], [2, 2, 2, 2, 6], [4, 1, 1, 1, 1], [3, 3, 3, 3, 3], [1, 2, 3, 4, 5]]


def _numbers(step: int) -> np.random.RandomState:
    return np.random.RandomState(100 + step)


def mlp_network() -> tuple[Any, Any]:
    """The loss of ``mlp``, and its batches."""
    x, y = fluid.data("x", [None, 12], "float32"), fluid.data("y", [None, 1], "int64")
    h = layers.fc(x, 16, act="tanh", param_attr="w0", bias_attr="b0")
    p = layers.fc(h, 5, act="softmax", param_attr="w1", bias_attr="b1")

    def feed(step: int, n: int = 8) -> dict[str, Any]:
        x = _numbers(step).uniform(-1, 1, (n, 12)).astype("float32")
        return {"x": x, "y": np.abs(x[:, :1] * 9).astype("int64") % 5}

    return layers.mean(layers.cross_entropy(p, y)), feed


def mlp() -> tuple[Any, Any, list[Any]]:
    x, y = fluid.data("x", [None, 12], "float32"), fluid.data("y", [None, 1], "int64")
    h = layers.fc(x, 16, act="tanh", param_attr="w0", bias_attr="b0")
    p = layers.fc(h, 5, act="softmax", param_attr="w1", bias_attr="b1")
    ce = layers.cross_entropy(p, y)
    loss, acc = layers.mean(ce), layers.accuracy(p, y)
    optimizer.SGD(0.5).minimize(loss)

    def feed(step: int, n: int = 8) -> dict[str, Any]:
        x = _numbers(step).uniform(-1, 1, (n, 12)).astype("float32")
        return {"x": x, "y": np.abs(x[:, :1] * 9).astype("int64") % 5}

    return loss, feed, [ce, acc, p]


def conv_bn() -> tuple[Any, Any, list[Any]]:
    x, y = fluid.data("x", [None, 2, 6, 6], "float32"), fluid.data("y", [None, 1], "float32")
    conv = layers.conv2d(x, 4, 3, padding=1, param_attr="cw", bias_attr=False)
    names = {"moving_mean_name": "bn_mean", "moving_variance_name": "bn_var"}
    c = layers.batch_norm(conv, act="relu", param_attr="bn_s", bias_attr="bn_b", **names)
    pooled = layers.pool2d(c, global_pooling=True, pool_type="avg")
    p = layers.fc(pooled, 1, param_attr="w1", bias_attr="b1")
    loss = layers.mean(layers.square_error_cost(p, y))
    optimizer.Momentum(0.1, 0.9).minimize(loss)

    def feed(step: int, n: int = 8) -> dict[str, Any]:
        x = _numbers(step).uniform(-1, 1, (n, 2, 6, 6)).astype("float32")
        return {"x": x, "y": x[:, 0, 0, :1]}

    return loss, feed, [p]


def own_rates() -> tuple[Any, Any, list[Any]]:
    """One weight matrix, with decay, that each device trains at the learning rate that it is fed."""
    x, rate = fluid.data("x", [None, 3], "float32"), layers.create_global_var([1], 0.5, "float32", True, name="rate")
    loss = layers.mean(layers.square(layers.fc(x, 2, param_attr="w0", bias_attr=False)))
    optimizer.SGD(rate, regularization=fluid.regularizer.L2Decay(0.1)).minimize(loss)

    def feed(step: int, n: int = 8) -> dict[str, Any]:
        rates = np.array([0.5, 0.25], "float32")[:: 1 if step % 2 else -1]
        return {"x": _numbers(step).uniform(-1, 1, (n, 3)).astype("float32"), "rate": rates}

    return loss, feed, ["w0"]


def lstm() -> tuple[Any, Any, list[Any]]:
    w, y = fluid.data("w", [None, 1], "int64", lod_level=1), fluid.data("y", [None, 1], "float32")
    f = layers.fc(layers.embedding(w, [20, 8], param_attr="emb"), 24, param_attr="fw", bias_attr="fb")
    h, _ = layers.dynamic_lstm(f, 24, use_peepholes=False, param_attr="lw", bias_attr="lb")
    s = layers.sequence_pool(h, "sum")
    p = layers.fc(s, 1, param_attr="w1", bias_attr="b1")
    loss = layers.mean(layers.square_error_cost(p, y))
    optimizer.SGD(0.2).minimize(loss)

    def feed(step: int, n: int | None = None) -> dict[str, Any]:
        lengths = LENGTHS[step % 6][:n]
        words = _numbers(step).randint(0, 20, (sum(lengths), 1)).astype("int64")
        y = _numbers(step).uniform(-1, 1, (len(lengths), 1)).astype("float32")
        return {"w": fluid.create_lod_tensor(words, [lengths], fluid.CPUPlace()), "y": y}

    return loss, feed, [s, h]


def emb_sparse(opt: Any = None) -> tuple[Any, Any, list[Any]]:
    a, y = fluid.data("a", [None, 1], "int64"), fluid.data("y", [None, 1], "float32")
    e = layers.embedding(a, [30, 6], is_sparse=True, param_attr="emb")
    p = layers.fc(e, 1, param_attr="w1", bias_attr="b1")
    loss = layers.mean(layers.square_error_cost(p, y))
    (opt or optimizer.SGD(0.5)).minimize(loss)

    def feed(step: int, n: int = 8) -> dict[str, Any]:
        a = _numbers(step).randint(0, 30, (n, 1)).astype("int64")
        return {"a": a, "y": (a % 5 / 5.0).astype("float32")}

    return loss, feed, [p]


def emb_adam() -> tuple[Any, Any, list[Any]]:
    return emb_sparse(optimizer.Adam(0.05, lazy_mode=True))


NETS = {"mlp": mlp, "conv_bn": conv_bn, "lstm": lstm, "emb_sparse": emb_sparse, "emb_adam": emb_adam}


def start(program: fluid.Program, scope: fluid.Scope) -> list[str]:
    """Give the parameters values that follow from their names; their names."""
    names = sorted(p.name for p in program.global_block().all_parameters())
    for name in names:
        if not name.startswith("bn_"):
            numbers = np.random.RandomState(zlib.crc32(name.encode()) & 0x7FFFFFFF)
            tensor = scope.find_var(name).get_tensor()
            value = (numbers.uniform(-1, 1, tensor.shape()) * 0.2).astype("float32")
            tensor.set(value, fluid.CPUPlace())
    return names


def looked_up(step: int, rank: int) -> dict[str, np.ndarray]:
    """Ids of which the second process has more than the first, and than there was room for, in the third step."""
    count = (5 + 3 * step + rank) if (step, rank) != (2, 1) else 1500
    ids = np.random.RandomState(10 * step + rank).randint(0, 40, (count, 1)).astype("int64")
    return {"ids": ids, "y": (ids % 7).astype("float32")}
