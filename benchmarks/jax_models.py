"""The same steps as hand-written JAX: one jitted step with donated state.

Time to first step is JAX's best here: parameters are drawn by NumPy and put on the device, so that the step is the only
thing that is compiled (``jax.random`` and ``jnp.asarray`` would compile a kernel for each shape).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import data

Params = dict[str, Any]
Loss = Callable[[Params, Any], jax.Array]


def dense(rng: np.random.Generator, name: str, rows: int, columns: int) -> Params:
    """Weight and bias of a layer."""
    bound = np.sqrt(6.0 / (rows + columns))
    return {
        name + ".w": rng.uniform(-bound, bound, (rows, columns)).astype(np.float32),
        name + ".b": np.zeros(columns, np.float32),
    }


def apply(p: Params, name: str, x: jax.Array) -> jax.Array:
    """x W + b."""
    return x @ p[name + ".w"] + p[name + ".b"]


def cross_entropy(logits: jax.Array, label: jax.Array) -> jax.Array:
    """Mean cross entropy of softmax(logits)."""
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), label.astype(jnp.int32), axis=1)
    return -picked.mean()


def sgd(lr: float) -> tuple[Callable, Callable]:
    """(initial state, update) of SGD."""
    return (lambda p: {}), lambda p, g, s: (jax.tree.map(lambda a, b: a - lr * b, p, g), s)


def momentum(lr: float, mu: float) -> tuple[Callable, Callable]:
    """(initial state, update) of SGD with momentum."""

    def update(p: Params, g: Params, s: Params) -> tuple[Params, Params]:
        s = jax.tree.map(lambda v, b: mu * v + b, s, g)
        return jax.tree.map(lambda a, v: a - lr * v, p, s), s

    return (lambda p: jax.tree.map(np.zeros_like, p)), update


def adam(lr: float) -> tuple[Callable, Callable]:
    """(initial state, update) of Adam."""

    def init(p: Params) -> Params:
        return {
            "m": jax.tree.map(np.zeros_like, p),
            "v": jax.tree.map(np.zeros_like, p),
            "b": np.array([0.9, 0.999], np.float32),
        }

    def update(p: Params, g: Params, s: Params) -> tuple[Params, Params]:
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, s["m"], g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, s["v"], g)
        rate = lr * jnp.sqrt(1 - s["b"][1]) / (1 - s["b"][0])
        p = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), p, m, v)
        return p, {"m": m, "v": v, "b": s["b"] * np.array([0.9, 0.999], np.float32)}

    return init, update


def trainer(params: Params, loss: Loss, optimizer: tuple[Callable, Callable], batches: list[Params]) -> Callable:
    """A step function over numpy batches: one jitted call with donated state; returns the loss as numpy."""
    init, update = optimizer

    def one(p: Params, s: Params, batch: Params) -> tuple[Params, Params, jax.Array]:
        value, grads = jax.value_and_grad(loss)(p, batch)
        p, s = update(p, grads, s)
        return p, s, value

    return stepper(one, params, init(params), batches)


def stepper(one: Callable, params: Params, state: Params, batches: list[Params]) -> Callable:
    """Drive a jitted step ``one(params, state, batch)``."""
    jitted = jax.jit(one, donate_argnums=(0, 1))
    held = [jax.device_put(params), jax.device_put(state)]

    def step(i: int) -> np.ndarray:
        held[0], held[1], value = jitted(held[0], held[1], batches[i % len(batches)])
        return np.asarray(value)

    return step


def fit_a_line() -> Callable:
    """Linear regression with SGD."""

    def loss(p: Params, b: Params) -> jax.Array:
        return jnp.mean((apply(p, "fc", b["x"]) - b["y"]) ** 2)

    return trainer(dense(np.random.default_rng(0), "fc", 13, 1), loss, sgd(0.01), data.fit_a_line())


def mlp() -> Callable:
    """784-200-200-10 with Adam."""
    rng = np.random.default_rng(0)
    params = dense(rng, "a", 784, 200) | dense(rng, "b", 200, 200) | dense(rng, "c", 200, 10)

    def loss(p: Params, b: Params) -> jax.Array:
        hidden = jax.nn.relu(apply(p, "b", jax.nn.relu(apply(p, "a", b["image"]))))
        return cross_entropy(apply(p, "c", hidden), b["label"])

    return trainer(params, loss, adam(0.001), data.mlp())


def kernel(rng: np.random.Generator, out: int, inner: int, size: int) -> np.ndarray:
    """A convolution kernel [out, in, size, size]."""
    return (rng.standard_normal((out, inner, size, size)) * np.sqrt(2.0 / (inner * size * size))).astype(np.float32)


def conv(x: jax.Array, w: jax.Array, stride: int = 1, pad: int = 0) -> jax.Array:
    """NCHW convolution."""
    return jax.lax.conv_general_dilated(x, w, (stride, stride), [(pad, pad)] * 2)


def max_pool(x: jax.Array) -> jax.Array:
    """2x2 max pooling with stride 2."""
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def lenet() -> Callable:
    """Two convolution-pool pairs with Adam."""
    rng = np.random.default_rng(0)
    params = dense(rng, "fc", 50 * 16, 10) | {"k1": kernel(rng, 20, 1, 5), "k2": kernel(rng, 50, 20, 5)}
    params |= {"b1": np.zeros((20, 1, 1), np.float32), "b2": np.zeros((50, 1, 1), np.float32)}

    def loss(p: Params, b: Params) -> jax.Array:
        hidden = max_pool(jax.nn.relu(conv(b["image"], p["k1"]) + p["b1"]))
        hidden = max_pool(jax.nn.relu(conv(hidden, p["k2"]) + p["b2"]))
        return cross_entropy(apply(p, "fc", hidden.reshape(hidden.shape[0], -1)), b["label"])

    return trainer(params, loss, adam(0.001), data.lenet())


class ResNet20:
    """ResNet-20 with batch normalisation; running statistics are part of the state."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.params: Params = {}
        self.state: Params = {}
        self._layer(rng, "stem", 16, 3, 3)
        width = 16
        for stage, filters in enumerate((16, 32, 64)):
            for block in range(3):
                name = f"{stage}.{block}"
                self._layer(rng, name + ".a", filters, width, 3)
                self._layer(rng, name + ".b", filters, filters, 3)
                if stage and not block:
                    self._layer(rng, name + ".s", filters, width, 1)
                width = filters
        self.params |= dense(rng, "fc", 64, 10)

    def _layer(self, rng: np.random.Generator, name: str, out: int, inner: int, size: int) -> None:
        ones, zeros = np.ones((out, 1, 1), np.float32), np.zeros((out, 1, 1), np.float32)
        self.params |= {name + ".k": kernel(rng, out, inner, size), name + ".g": ones, name + ".h": zeros}
        self.state |= {name + ".m": zeros, name + ".v": ones}

    @staticmethod
    def conv_bn(p: Params, s: Params, new: Params, name: str, x: jax.Array, stride: int = 1) -> jax.Array:
        """Convolution and batch normalisation; writes the new running statistics to ``new``."""
        k = p[name + ".k"]
        x = conv(x, k, stride, (k.shape[2] - 1) // 2)
        mean, var = x.mean((0, 2, 3), keepdims=True)[0], x.var((0, 2, 3), keepdims=True)[0]
        new[name + ".m"] = 0.9 * s[name + ".m"] + 0.1 * mean
        new[name + ".v"] = 0.9 * s[name + ".v"] + 0.1 * var
        return (x - mean) * jax.lax.rsqrt(var + 1e-5) * p[name + ".g"] + p[name + ".h"]

    def loss(self, p: Params, s: Params, b: Params) -> tuple[jax.Array, Params]:
        """(mean cross entropy, new running statistics)."""
        new: Params = {}
        x = jax.nn.relu(self.conv_bn(p, s, new, "stem", b["image"]))
        for stage in range(3):
            for block in range(3):
                name, stride = f"{stage}.{block}", 2 if stage and not block else 1
                short = self.conv_bn(p, s, new, name + ".s", x, 2) if stride == 2 else x
                y = jax.nn.relu(self.conv_bn(p, s, new, name + ".a", x, stride))
                x = jax.nn.relu(short + self.conv_bn(p, s, new, name + ".b", y))
        return cross_entropy(apply(p, "fc", x.mean((2, 3))), b["label"]), new


def resnet20() -> Callable:
    """ResNet-20 with Momentum."""
    net = ResNet20()
    init, update = momentum(0.1, 0.9)

    def one(p: Params, s: Params, batch: Params) -> tuple[Params, Params, jax.Array]:
        (value, bn), grads = jax.value_and_grad(net.loss, has_aux=True)(p, s["bn"], batch)
        p, velocity = update(p, grads, s["velocity"])
        return p, {"bn": bn, "velocity": velocity}, value

    return stepper(one, net.params, {"bn": net.state, "velocity": init(net.params)}, data.resnet20())


def _word2vec_params() -> Params:
    rng = np.random.default_rng(0)
    table = rng.uniform(-0.01, 0.01, (data.VOCABULARY, 32)).astype(np.float32)
    return dense(rng, "a", data.CONTEXT * 32, 256) | dense(rng, "b", 256, data.TARGETS) | {"table": table}


def _word2vec_loss(p: Params, embedded: jax.Array, b: Params) -> jax.Array:
    hidden = jax.nn.sigmoid(apply(p, "a", embedded.reshape(embedded.shape[0], -1)))
    return cross_entropy(apply(p, "b", hidden), b["target"])


def word2vec_dense() -> Callable:
    """N-gram language model, dense embedding gradient."""

    def loss(p: Params, b: Params) -> jax.Array:
        return _word2vec_loss(p, p["table"][b["words"]], b)

    return trainer(_word2vec_params(), loss, sgd(0.1), data.word2vec())


def word2vec_sparse() -> Callable:
    """N-gram language model; only the rows that were looked up are updated."""

    def one(p: Params, s: Params, b: Params) -> tuple[Params, Params, jax.Array]:
        rest = {k: v for k, v in p.items() if k != "table"}
        value, (grads, rows) = jax.value_and_grad(_word2vec_loss, (0, 1))(rest, p["table"][b["words"]], b)
        new = jax.tree.map(lambda a, g: a - 0.1 * g, rest, grads)
        return new | {"table": p["table"].at[b["words"]].add(-0.1 * rows)}, s, value

    return stepper(one, _word2vec_params(), {}, data.word2vec())


def _deepfm_params() -> Params:
    rng = np.random.default_rng(0)
    bound = np.sqrt(6.0 / data.FEATURES)
    params: Params = {}
    for name, width in (("one", 1), ("two", 10)):
        params[name] = rng.uniform(-bound, bound, (data.FEATURES, width)).astype(np.float32)
    params |= dense(rng, "a", data.FIELDS * 10, 128) | dense(rng, "b", 128, 128) | dense(rng, "c", 128, 128)
    return params | dense(rng, "out", 128, 1)


def _deepfm_loss(p: Params, rows: tuple[jax.Array, jax.Array], b: Params) -> jax.Array:
    first, second = (r * b["values"] for r in rows)
    paired = 0.5 * (second.sum(1) ** 2 - (second**2).sum(1)).sum(1, keepdims=True)
    hidden = second.reshape(second.shape[0], -1)
    for name in "abc":
        hidden = jax.nn.relu(apply(p, name, hidden))
    logit = first.sum(1) + paired + apply(p, "out", hidden)
    return jnp.mean(jnp.maximum(logit, 0) - logit * b["label"] + jnp.log1p(jnp.exp(-jnp.abs(logit))))


def deepfm_sgd() -> Callable:
    """DeepFM with SGD; only the rows that were looked up are updated."""

    def one(p: Params, s: Params, b: Params) -> tuple[Params, Params, jax.Array]:
        tables = {k: p[k] for k in ("one", "two")}
        rest = {k: v for k, v in p.items() if k not in tables}
        rows = (p["one"][b["features"]], p["two"][b["features"]])
        value, (grads, moved) = jax.value_and_grad(_deepfm_loss, (0, 1))(rest, rows, b)
        new = jax.tree.map(lambda a, g: a - 0.01 * g, rest, grads)
        for name, rows in zip(tables, moved, strict=True):
            new[name] = p[name].at[b["features"]].add(-0.01 * rows)
        return new, s, value

    return stepper(one, _deepfm_params(), {}, data.clicks())


def deepfm_adam() -> Callable:
    """DeepFM with Adam."""

    def loss(p: Params, b: Params) -> jax.Array:
        return _deepfm_loss(p, (p["one"][b["features"]], p["two"][b["features"]]), b)

    return trainer(_deepfm_params(), loss, adam(0.001), data.clicks())


_MODELS = (fit_a_line, mlp, lenet, resnet20, word2vec_dense, word2vec_sparse, deepfm_sgd, deepfm_adam)
MODELS = {f.__name__: f for f in _MODELS}
