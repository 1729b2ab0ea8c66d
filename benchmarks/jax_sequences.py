"""Ragged models as hand-written JAX usually does them: padded to [batch, longest] and scanned under a mask.

Every batch is padded to the longest sequence of the stream (100), so that there is one compilation. Nothing else is
tuned: malloc is as it comes (the settings that ``fluidjax.execution.executables.allocator`` makes change nothing for these peers,
whose scratch memory is allocated by a thread of XLA; ``MALLOC_ARENA_MAX=1`` would make the recurrent ones a third
faster, and ours too where loops save much).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import data
from benchmarks.fluid_sequences import STREAM
from benchmarks.jax_models import Params, adam, apply, cross_entropy, dense, sgd, trainer

LONGEST = 100


def batches() -> list[Params]:
    """The stream, padded with word 0, and the lengths."""
    found = []
    for batch in data.sentences(STREAM):
        words = np.zeros((len(batch["words"]), LONGEST), np.int32)
        for row, ids in zip(words, batch["words"], strict=True):
            row[: len(ids)] = ids
        lengths = np.array([len(w) for w in batch["words"]], np.int32)
        found.append({"words": words, "lengths": lengths, "label": batch["label"]})
    return found


def mask_of(b: Params) -> jax.Array:
    """bool [batch, longest]: true at words."""
    return jnp.arange(LONGEST)[None] < b["lengths"][:, None]


def _table(rng: np.random.Generator) -> Params:
    return {"table": (rng.standard_normal((data.WORDS, 128)) * 0.05).astype(np.float32)}


def masked_max(states: jax.Array, mask: jax.Array) -> jax.Array:
    """Max over the words of each sentence; states [longest, batch, n]."""
    return jnp.where(mask.T[:, :, None], states, -jnp.inf).max(0)


def _lstm(hidden: int) -> Callable:
    rng = np.random.default_rng(0)
    params = _table(rng) | dense(rng, "x", 128, 4 * hidden) | dense(rng, "h", hidden, 4 * hidden)
    params |= dense(rng, "out", hidden, 2)

    def loss(p: Params, b: Params) -> jax.Array:
        gates, mask = apply(p, "x", p["table"][b["words"]]).swapaxes(0, 1), mask_of(b)

        def cell(carry: tuple, inputs: tuple) -> tuple:
            h, c = carry
            x, keep = inputs
            i, f, g, o = jnp.split(x + h @ p["h.w"], 4, axis=1)
            new_c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            new_h = jax.nn.sigmoid(o) * jnp.tanh(new_c)
            h, c = jnp.where(keep[:, None], new_h, h), jnp.where(keep[:, None], new_c, c)
            return (h, c), h

        zeros = jnp.zeros((gates.shape[1], hidden))
        _, states = jax.lax.scan(cell, (zeros, zeros), (gates, mask.T))
        return cross_entropy(apply(p, "out", masked_max(states, mask)), b["label"])

    return trainer(params, loss, adam(0.001), batches())


def lstm_127() -> Callable:
    """LSTM sentiment classifier, hidden size 127."""
    return _lstm(127)


def lstm_256() -> Callable:
    """LSTM sentiment classifier, hidden size 256."""
    return _lstm(256)


def gru_256() -> Callable:
    """GRU sentiment classifier, hidden size 256."""
    rng = np.random.default_rng(0)
    params = _table(rng) | dense(rng, "x", 128, 768) | dense(rng, "h", 256, 512) | dense(rng, "n", 256, 256)
    params |= dense(rng, "out", 256, 2)

    def loss(p: Params, b: Params) -> jax.Array:
        gates, mask = apply(p, "x", p["table"][b["words"]]).swapaxes(0, 1), mask_of(b)

        def cell(h: jax.Array, inputs: tuple) -> tuple:
            x, keep = inputs
            u, r = jnp.split(jax.nn.sigmoid(x[:, :512] + h @ p["h.w"]), 2, axis=1)
            new = jnp.tanh(x[:, 512:] + (r * h) @ p["n.w"])
            h = jnp.where(keep[:, None], (1 - u) * h + u * new, h)
            return h, h

        _, states = jax.lax.scan(cell, jnp.zeros((gates.shape[1], 256)), (gates, mask.T))
        return cross_entropy(apply(p, "out", masked_max(states, mask)), b["label"])

    return trainer(params, loss, adam(0.001), batches())


def sequence_pool() -> Callable:
    """Bag of words: average pooling and two layers."""
    rng = np.random.default_rng(0)
    params = _table(rng) | dense(rng, "a", 128, 128) | dense(rng, "out", 128, 2)

    def loss(p: Params, b: Params) -> jax.Array:
        kept = jnp.where(mask_of(b)[:, :, None], p["table"][b["words"]], 0)
        pooled = kept.sum(1) / b["lengths"][:, None]
        return cross_entropy(apply(p, "out", jnp.tanh(apply(p, "a", pooled))), b["label"])

    return trainer(params, loss, adam(0.001), batches())


def dynamic_rnn() -> Callable:
    """A tanh RNN classifier, hidden size 128."""
    rng = np.random.default_rng(0)
    params = _table(rng) | dense(rng, "x", 128, 128) | dense(rng, "h", 128, 128) | dense(rng, "out", 128, 2)

    def loss(p: Params, b: Params) -> jax.Array:
        rows, mask = apply(p, "x", p["table"][b["words"]]).swapaxes(0, 1), mask_of(b)

        def cell(h: jax.Array, inputs: tuple) -> tuple:
            x, keep = inputs
            return jnp.where(keep[:, None], jnp.tanh(x + h @ p["h.w"]), h), None

        last, _ = jax.lax.scan(cell, jnp.zeros((rows.shape[1], 128)), (rows, mask.T))
        return cross_entropy(apply(p, "out", last), b["label"])

    return trainer(params, loss, adam(0.001), batches())


def dynamic_rnn_attention() -> Callable:
    """A decoder that attends to the encoded words at each step, hidden size 64."""
    rng = np.random.default_rng(0)
    params = _table(rng) | dense(rng, "enc", 128, 64) | dense(rng, "key", 64, 64) | dense(rng, "query", 64, 64)
    params |= dense(rng, "score", 64, 1) | dense(rng, "cell", 128 + 64 + 64, 64) | dense(rng, "out", 64, 2)

    def loss(p: Params, b: Params) -> jax.Array:
        words, mask = p["table"][b["words"]], mask_of(b)
        encoded = jnp.tanh(apply(p, "enc", words))
        keys = encoded @ p["key.w"]

        def cell(h: jax.Array, inputs: tuple) -> tuple:
            word, keep = inputs
            score = jnp.tanh((h @ p["query.w"])[:, None] + keys) @ p["score.w"]
            weight = jax.nn.softmax(jnp.where(mask, score[..., 0], -jnp.inf), axis=1)
            context = jnp.einsum("bt,bth->bh", weight, encoded)
            new = jnp.tanh(apply(p, "cell", jnp.concatenate([word, context, h], 1)))
            return jnp.where(keep[:, None], new, h), None

        last, _ = jax.lax.scan(cell, encoded[:, 0], (words.swapaxes(0, 1), mask.T))
        return cross_entropy(apply(p, "out", last), b["label"])

    return trainer(params, loss, adam(0.001), batches())


def beam_search() -> Callable:
    """Decoding with a beam of 4 on arrays [batch, beam]; ended hypotheses repeat the end word."""
    rng = np.random.default_rng(0)
    params = _table(rng) | dense(rng, "first", 128, 128) | dense(rng, "cell", 256, 128)
    params |= dense(rng, "out", 128, data.TARGETS)
    params["targets"] = (rng.standard_normal((data.TARGETS, 128)) * 0.05).astype(np.float32)
    feeds = []
    for batch in data.sentences(data.BATCHES, batch=data.DECODED):
        words = np.zeros((data.DECODED, LONGEST), np.int32)
        for row, ids in zip(words, batch["words"], strict=True):
            row[: len(ids)] = ids
        feeds.append({"words": words, "lengths": np.array([len(w) for w in batch["words"]], np.int32)})

    def decode(p: Params, b: Params) -> jax.Array:
        kept = jnp.where(mask_of(b)[:, :, None], p["table"][b["words"]], 0)
        first = apply(p, "first", kept.sum(1) / b["lengths"][:, None])
        state = jnp.repeat(first[:, None], data.BEAM, 1)
        score = jnp.where(jnp.arange(data.BEAM) == 0, 0.0, -jnp.inf) * jnp.ones((data.DECODED, 1))
        word = jnp.zeros((data.DECODED, data.BEAM), jnp.int32)

        def one(carry: tuple, _: None) -> tuple:
            state, score, word = carry
            state = jnp.tanh(apply(p, "cell", jnp.concatenate([state, p["targets"][word]], 2)))
            logs = jax.nn.log_softmax(apply(p, "out", state))
            ended = jnp.where(jnp.arange(data.TARGETS) == 1, 0.0, -jnp.inf)
            total = score[..., None] + jnp.where((word == 1)[..., None], ended, logs)
            score, index = jax.lax.top_k(total.reshape(data.DECODED, -1), data.BEAM)
            parent, word = index // data.TARGETS, index % data.TARGETS
            return (jnp.take_along_axis(state, parent[..., None], 1), score, word), (word, parent)

        _, (words, parents) = jax.lax.scan(one, (state, score, word), None, length=data.LONGEST_OUTPUT)

        def back(at: jax.Array, step: tuple) -> tuple:
            words, parents = step
            return jnp.take_along_axis(parents, at, 1), jnp.take_along_axis(words, at, 1)

        start = jnp.tile(jnp.arange(data.BEAM), (data.DECODED, 1))
        return jax.lax.scan(back, start, (words, parents), reverse=True)[1]

    jitted, held = jax.jit(decode), jax.device_put(params)
    return lambda i: np.asarray(jitted(held, feeds[i % len(feeds)]))


def _while_rnn(steps: int, size: int) -> Callable:
    """The While RNN as a scan, differentiated by jax.grad."""
    params = dense(np.random.default_rng(0), "x", size, size)
    params |= {"h.w": dense(np.random.default_rng(1), "h", size, size)["h.w"]}

    def loss(p: Params, b: Params) -> jax.Array:
        def cell(h: jax.Array, x: jax.Array) -> tuple:
            return jnp.tanh(apply(p, "x", x) + h @ p["h.w"]), None

        return jax.lax.scan(cell, jnp.zeros((data.RNN_BATCH, size)), b["x"])[0].mean()

    return trainer(params, loss, sgd(0.01), data.rnn(steps, size))


MODELS = {
    f.__name__: f for f in (lstm_127, lstm_256, gru_256, sequence_pool, dynamic_rnn, dynamic_rnn_attention, beam_search)
}
MODELS |= {name: partial(_while_rnn, *sizes) for name, sizes in data.RNNS.items()}
