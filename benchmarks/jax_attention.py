"""The Transformer as hand-written JAX."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import data
from benchmarks.jax_models import Params, adam, apply, cross_entropy, dense, trainer


def _normal(name: str) -> Params:
    return {name + ".g": np.ones(data.WIDTH, np.float32), name + ".h": np.zeros(data.WIDTH, np.float32)}


def _attention(rng: np.random.Generator, name: str) -> Params:
    params = _normal(name)
    for part in "qkvo":
        params |= dense(rng, f"{name}.{part}", data.WIDTH, data.WIDTH)
    return params


def _params() -> Params:
    rng = np.random.default_rng(0)
    params = dense(rng, "out", data.WIDTH, data.WORDS)
    for side in ("source", "target"):
        for what, rows in (("words", data.WORDS), ("places", data.LENGTH)):
            params[f"{side}.{what}"] = (rng.standard_normal((rows, data.WIDTH)) * 0.05).astype(np.float32)
    for layer in range(data.LAYERS):
        for name in (f"encode{layer}", f"decode{layer}"):
            params |= _attention(rng, name + ".self") | _normal(name + ".forward")
            params |= dense(rng, name + ".a", data.WIDTH, 4 * data.WIDTH)
            params |= dense(rng, name + ".b", 4 * data.WIDTH, data.WIDTH)
        params |= _attention(rng, f"decode{layer}.cross")
    return params


def _normalised(p: Params, name: str, x: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * p[name + ".g"] + p[name + ".h"]


def _attended(p: Params, name: str, queries: jax.Array, keys: jax.Array, mask: jax.Array | float) -> jax.Array:
    def heads(part: str, rows: jax.Array) -> jax.Array:
        return apply(p, f"{name}.{part}", rows).reshape(*rows.shape[:2], data.HEADS, -1)

    scale = (data.WIDTH // data.HEADS) ** -0.5
    scores = jnp.einsum("bqhd,bkhd->bhqk", heads("q", queries), heads("k", keys)) * scale + mask
    read = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), heads("v", keys))
    return _normalised(p, name, queries + apply(p, name + ".o", read.reshape(queries.shape)))


def _fed_forward(p: Params, name: str, rows: jax.Array) -> jax.Array:
    hidden = apply(p, name + ".b", jax.nn.relu(apply(p, name + ".a", rows)))
    return _normalised(p, name + ".forward", rows + hidden)


def transformer() -> Callable:
    """An encoder and a decoder of two layers, width 128 and 4 heads, with Adam."""
    later = np.triu(np.full((data.LENGTH, data.LENGTH), -1e9, np.float32), 1)

    def loss(p: Params, b: Params) -> jax.Array:
        memory, state = (p[side + ".words"][b[side]] + p[side + ".places"] for side in ("source", "target"))
        for layer in range(data.LAYERS):
            name = f"encode{layer}"
            memory = _fed_forward(p, name, _attended(p, name + ".self", memory, memory, 0.0))
        for layer in range(data.LAYERS):
            name = f"decode{layer}"
            state = _attended(p, name + ".self", state, state, later)
            state = _fed_forward(p, name, _attended(p, name + ".cross", state, memory, 0.0))
        return cross_entropy(apply(p, "out", state).reshape(-1, data.WORDS), b["words"].reshape(-1, 1))

    return trainer(_params(), loss, adam(0.001), data.pairs())


MODELS = {"transformer": transformer}
