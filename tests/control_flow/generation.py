"""A small transformer that continues prompts by beam search, with caches that become longer in each step."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

import fluidjax as fluid
from fluidjax import layers

WORDS, WIDTH, HEADS, LAYERS, BEAMS, END, STEPS = 50, 16, 2, 2, 2, 1, 60
Caches = list[dict[str, Any]]


def _fc(x: Any, size: int, name: str, act: str | None = None) -> Any:
    return layers.fc(x, size, num_flatten_dims=2, param_attr=f"{name}.w", bias_attr=f"{name}.b", act=act)


def _heads(x: Any) -> Any:
    return layers.transpose(layers.reshape(x, [0, 0, HEADS, WIDTH // HEADS]), [0, 2, 1, 3])


def _attention(x: Any, bias: Any, cache: dict[str, Any], parents: Any, name: str) -> Any:
    q, k, v = (_fc(x, WIDTH, name + part) for part in "qkv")
    joined = []
    for new, part in ((k, "k"), (v, "v")):
        old = layers.reshape(layers.gather(cache[part], parents), [0, 0, WIDTH])
        joined.append(layers.concat([old, new], axis=1))
        layers.assign(joined[-1], cache[part])
    scores = layers.matmul(layers.scale(_heads(q), (WIDTH // HEADS) ** -0.5), _heads(joined[0]), transpose_y=True)
    mixed = layers.matmul(layers.softmax(scores + bias), _heads(joined[1]))
    return _fc(layers.reshape(layers.transpose(mixed, [0, 2, 1, 3]), [0, 0, WIDTH]), WIDTH, name + "o")


def _norm(x: Any, name: str) -> Any:
    return layers.layer_norm(x, begin_norm_axis=2, param_attr=f"{name}.s", bias_attr=f"{name}.t")


def _decoded(words: Any, places: Any, mask: Any, caches: Caches, parents: Any) -> Any:
    x = layers.embedding(words, [WORDS, WIDTH], param_attr="word")
    x = x + layers.embedding(places, [200, WIDTH], param_attr="pos")
    bias = layers.unsqueeze(layers.scale(mask, 1e4, bias=-1.0, bias_after_scale=False), [1])
    for i, cache in enumerate(caches):
        x = _norm(x + _attention(x, bias, cache, parents, f"l{i}"), f"n{i}")
        x = _norm(x + _fc(_fc(x, 2 * WIDTH, f"f{i}", "gelu"), WIDTH, f"g{i}"), f"m{i}")
    return x


def _data(name: str, shape: list[int], dtype: str) -> Any:
    return layers.data(name, shape, dtype=dtype, append_batch_size=False)


def _likelier(x: Any, step: Any, end: Any) -> Any:
    """Log probabilities of the next word; the end becomes likely after ``end`` steps."""
    word = fluid.default_main_program().global_block().var("word")
    logits = layers.matmul(layers.reshape(x, [-1, WIDTH]), word, transpose_y=True)
    ends = layers.assign((np.arange(WORDS) == END).astype("float32"))
    more = layers.elementwise_mul(ends, 5.0 * (layers.cast(step, "float32") - end))
    return layers.log(layers.softmax(layers.elementwise_add(logits, more, axis=1)))


def generator(limit: Any = None) -> list[Any]:
    """[words [rows, 1 + steps], scores [rows, 1], steps [1]] of a generation.

    Args:
        limit: makes the variable with the largest number of steps; None: a constant.
    """
    words, places = _data("words", [-1, -1, 1], "int64"), _data("places", [-1, -1, 1], "int64")
    mask, last_mask = _data("mask", [-1, -1, -1], "float32"), _data("last_mask", [-1, 1, -1], "float32")
    parents, first = _data("parents", [-1], "int64"), _data("first", [-1, 1], "int64")
    next_place, score = _data("next_place", [-1, 1, 1], "int64"), _data("score", [-1, 1], "float32")
    base, end = _data("base", [-1, 1], "int64"), _data("end", [1], "float32")
    empty = (words, [-1, 0, WIDTH], "float32", 0)
    caches = [{part: layers.fill_constant_batch_size_like(*empty) for part in "kv"} for _ in range(LAYERS)]
    _decoded(words, places, mask, caches, parents)

    step = layers.fill_constant([1], "int64", 0)
    most = layers.fill_constant([1], "int64", STEPS) if limit is None else limit()
    many = layers.fill_constant([1], "int64", WORDS)
    word, found, seen, parents = (layers.assign(v) for v in (first, first, last_mask, parents))
    place, score = layers.assign(next_place), layers.assign(score)
    goes_on = layers.less_than(step, most)
    with layers.While(goes_on).block():
        one = layers.fill_constant_batch_size_like(word, [-1, 1, 1], "float32", 1.0)
        wider = layers.concat([layers.gather(seen, parents), one], axis=2)
        layers.assign(wider, seen)
        x = _decoded(layers.reshape(word, [-1, 1, 1]), place, wider, caches, parents)
        ended = layers.cast(layers.equal(word, _ends(word)), "float32")
        only = layers.assign(np.where(np.arange(WORDS) == END, 0, -1e9).astype("float32").reshape(1, WORDS))
        likely = _likelier(x, step, end) * (1 - ended) + layers.matmul(ended, only)
        best, at = layers.topk(layers.reshape(likely + score, [-1, BEAMS * WORDS]), BEAMS)
        beam, token = layers.elementwise_floordiv(at, many), layers.elementwise_mod(at, many)
        layers.assign(layers.reshape(layers.elementwise_add(beam, base, axis=0), [-1]), parents)
        layers.assign(layers.reshape(token, [-1, 1]), word)
        layers.assign(layers.reshape(best, [-1, 1]), score)
        layers.assign(layers.concat([layers.gather(found, parents), word], axis=1), found)
        layers.assign(place + 1, place)
        layers.increment(step)
        alive = layers.reduce_sum(layers.cast(layers.not_equal(word, _ends(word)), "float32"))
        some = layers.greater_than(alive, layers.fill_constant([1], "float32", 0.5))
        layers.logical_and(layers.less_than(step, most), some, out=goes_on)
    return [found, score, step]


def _ends(word: Any) -> Any:
    return layers.fill_constant_batch_size_like(word, [-1, 1], "int64", END)


def prompts(sources: int, length: int, end: int) -> dict[str, np.ndarray]:
    """A feed of ``sources`` prompts, at most so long; the generation takes a few steps more than ``end``."""
    rng = np.random.RandomState(1000 * sources + length)
    lengths = rng.randint(max(1, length // 2), length + 1, sources)
    lengths[0] = length
    words = rng.randint(2, WORDS, (sources, length, 1)).astype("int64")
    places = np.tile(np.arange(length).reshape(1, length, 1), (sources, 1, 1)).astype("int64")
    used = (np.arange(length)[None] < lengths[:, None]).astype("float32")
    of_sources = {"words": words, "places": places, "mask": used[:, None, :] * used[:, :, None]}
    of_sources |= {"last_mask": used[:, None, :], "next_place": lengths.reshape(sources, 1, 1).astype("int64")}
    return {
        **{name: np.repeat(value, BEAMS, 0) for name, value in of_sources.items()},
        "parents": np.arange(sources * BEAMS).astype("int64"),
        "first": np.full((sources * BEAMS, 1), 2, "int64"),
        "score": np.tile(np.array([[0.0], [-1e9]], "float32"), (sources, 1)),
        "base": (np.arange(sources) * BEAMS).reshape(sources, 1).astype("int64"),
        "end": np.array([end], "float32"),
    }


def parameter(name: str, shape: Any) -> np.ndarray:
    """The value of a parameter, which follows from its name."""
    rng = np.random.RandomState(zlib.crc32(name.encode()) % 2**31)
    return rng.normal(0, 0.5, shape).astype("float32") * np.float32(0.7 if name == "word" else 1)
