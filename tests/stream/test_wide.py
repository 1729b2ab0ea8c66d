"""Whole programs whose dense feeds have dims that change: a few compilations, and the numbers of exact shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.execution.rooms.dense import ChangingDims

pytestmark = pytest.mark.usefixtures("compiled_quickly")

B, D, WORDS, TAGS = 3, 4, 20, 5
Feed = Mapping[str, Any]


@dataclass
class Trained:
    """Fetches of each step, parameters, how often the program was compiled."""

    fetches: list[list[np.ndarray]]
    parameters: dict[str, np.ndarray]
    compilations: int


def train(build: Callable[[], Sequence[Any]], feeds: Sequence[Feed], optimizer: Any = None, seed: int = 7) -> Trained:
    """One step of the program of ``build``, which returns the loss and what else to fetch, on each feed."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    main.random_seed, startup.random_seed = seed, 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        wanted = list(build())
        (optimizer or fluid.optimizer.SGD(learning_rate=0.1)).minimize(wanted[0])
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        found = [executor.run(main, feed=dict(feed), fetch_list=wanted) for feed in feeds]
        values = {p.name: np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()}
    count = sum(p.compilations for p in main.__dict__["_prepared_cache"].values())
    return Trained([[np.array(v) for v in step] for step in found], values, count)


def compare(
    monkeypatch: pytest.MonkeyPatch, build: Callable[[], Sequence[Any]], feeds: Sequence[Feed], most: int
) -> None:
    """At most so many compilations, and fetches and parameters as with each shape as it is."""
    found = train(build, feeds)
    assert found.compilations <= most
    with monkeypatch.context() as patch:
        patch.setattr(ChangingDims, "see", lambda *_: None)
        exact = train(build, feeds)
    for mine, theirs in zip(found.fetches, exact.fetches, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert np.isfinite(a).all()
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)
    for name, value in found.parameters.items():
        np.testing.assert_allclose(value, exact.parameters[name], rtol=2e-4, atol=1e-5, err_msg=name)


def masked(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths up to n, the first one n; and what to add to scores: 0, or a large negative number after them."""
    lengths = rng.integers(1, n + 1, B)
    lengths[0] = n
    return lengths, np.where(np.arange(n) < lengths[:, None], 0, -1e9).astype(np.float32)


# --- a history of any length is weighed by attention (DIN) --------------------------------------------------------


def history(sparse: bool = False) -> Sequence[Any]:
    items, target = fluid.data("items", [None, None], "int64"), fluid.data("target", [None, 1], "int64")
    bias, label = fluid.data("bias", [None, None, 1], "float32"), fluid.data("label", [None, 1], "float32")

    def embedded(ids: Any) -> Any:
        return fluid.embedding(ids, [WORDS, D], is_sparse=sparse, param_attr=fluid.ParamAttr(name="table"))

    rows = embedded(items)
    wanted = layers.elementwise_mul(layers.elementwise_add(layers.scale(rows, 0.0), embedded(target), axis=0), rows)
    hidden = layers.fc(layers.concat([rows, wanted, rows - wanted], axis=2), 6, num_flatten_dims=2, act="sigmoid")
    scores = layers.transpose(layers.fc(hidden, 1, num_flatten_dims=2) + bias, [0, 2, 1])
    weights = layers.softmax(layers.scale(scores, D**-0.5))
    read = layers.reshape(layers.matmul(weights, rows), [0, D])
    loss = layers.sigmoid_cross_entropy_with_logits(layers.fc(read, 1), label)
    return [layers.mean(loss), weights, read]


def histories(rng: np.random.Generator, lengths: Sequence[int]) -> list[Feed]:
    return [
        {
            "items": rng.integers(0, WORDS, (B, n)),
            "target": rng.integers(0, WORDS, (B, 1)),
            "bias": masked(rng, n)[1][..., None],
            "label": rng.integers(0, 2, (B, 1)).astype(np.float32),
        }
        for n in lengths
    ]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_histories(sparse: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = histories(rng, [3, 5, 8, 7, 8, 2])
    compare(monkeypatch, lambda: history(sparse), feeds, 2)


def test_a_stream_of_histories_compiles_a_few_times(rng: np.random.Generator) -> None:
    feeds = histories(rng, rng.integers(1, 101, 300).tolist())
    assert train(history, feeds).compilations <= 8


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_batch_larger_than_all_room_gets_more(dtype: str, rng: np.random.Generator) -> None:
    """Also in the second look at it: the first one only found that nothing was compiled for its room."""

    def summed() -> Sequence[Any]:
        x = fluid.data("x", [None, None, D], dtype)
        return [layers.mean(layers.fc(layers.reduce_sum(x, dim=1), 1))]

    feeds = [{"x": rng.normal(size=(B, n, D)).astype(dtype)} for n in (9, 7, 41, 42, 43, 44, 45)]
    assert train(summed, feeds).compilations <= 3


# --- an encoder and a decoder with attention, both lengths of their own ----------------------------------------------


def heads(x: Any, count: int = 2) -> Any:
    return layers.transpose(layers.reshape(x, [0, 0, count, D // count]), [0, 2, 1, 3])


def attend(queries: Any, keys: Any, bias: Any, drop: float) -> Any:
    q, k, v = (heads(layers.fc(x, D, num_flatten_dims=2)) for x in (queries, keys, keys))
    weights = layers.softmax(layers.elementwise_add(layers.matmul(q, k, transpose_y=True, alpha=0.7), bias))
    weights = layers.dropout(weights, drop, dropout_implementation="upscale_in_train")
    joined = layers.reshape(layers.transpose(layers.matmul(weights, v), [0, 2, 1, 3]), [0, 0, D])
    added = layers.elementwise_add(queries, layers.fc(joined, D, num_flatten_dims=2))
    return layers.layer_norm(added, begin_norm_axis=2)


def translation(drop: float = 0.0) -> Sequence[Any]:
    source, target = (fluid.data(name, [None, None, 1], "int64") for name in ("source", "target"))
    unseen, words = fluid.data("unseen", [None, 1, 1, None], "float32"), fluid.data("words", [None, None, 1], "int64")
    weight = fluid.data("weight", [None, None, 1], "float32")
    memory = layers.embedding(source, [WORDS, D])
    memory = attend(memory, memory, unseen, 0.0)
    state = attend(layers.embedding(target, [WORDS, D]), memory, unseen, drop)
    logits = layers.fc(layers.reshape(state, [-1, D]), WORDS)
    cost = layers.softmax_with_cross_entropy(logits, layers.reshape(words, [-1, 1]))
    cost = layers.elementwise_mul(cost, layers.reshape(weight, [-1, 1]))
    total = layers.elementwise_div(layers.reduce_sum(cost), layers.reduce_sum(weight))
    return [total, state, logits]


def translations(rng: np.random.Generator, lengths: Sequence[tuple[int, int]]) -> list[Feed]:
    return [
        {
            "source": rng.integers(0, WORDS, (B, s, 1)),
            "target": rng.integers(0, WORDS, (B, t, 1)),
            "words": rng.integers(0, WORDS, (B, t, 1)),
            "unseen": masked(rng, s)[1][:, None, None],
            "weight": (masked(rng, t)[1] == 0).astype(np.float32)[..., None],
        }
        for s, t in lengths
    ]


def test_translation(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is dropped is the same, too."""
    compare(monkeypatch, lambda: translation(0.3), translations(rng, [(3, 4), (5, 7), (8, 2)]), 2)


def test_a_stream_of_translations_compiles_a_few_times(rng: np.random.Generator) -> None:
    feeds = translations(rng, [tuple(pair) for pair in rng.integers(3, 41, (100, 2)).tolist()])
    assert train(translation, feeds).compilations <= 12


# --- padded taggers ------------------------------------------------------------------------------------------------


def tagger() -> Sequence[Any]:
    words, tags = fluid.data("words", [None, None], "int64"), fluid.data("tags", [None, None], "int64")
    lengths = fluid.data("lengths", [None], "int64")
    rows = fluid.embedding(words, [WORDS, D])
    emission = layers.fc(rows, TAGS, num_flatten_dims=2)
    attr = fluid.ParamAttr(name="crf")
    cost = layers.linear_chain_crf(emission, tags, param_attr=attr, length=lengths)
    path = layers.crf_decoding(emission, attr, length=lengths)
    return [layers.mean(cost), path, emission]


def test_padded_tagger(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = [
        {
            "words": rng.integers(0, WORDS, (B, n)),
            "tags": rng.integers(0, TAGS, (B, n)),
            "lengths": masked(rng, n)[0].astype(np.int64),
        }
        for n in (3, 5, 8, 6)
    ]
    compare(monkeypatch, tagger, feeds, 2)


# --- means, extrema and norms over a dim that changes --------------------------------------------------------------


def statistics() -> Sequence[Any]:
    x, w = fluid.data("x", [None, None, D], "float32"), fluid.data("w", [None, None, 1], "float32")
    rows = layers.fc(x, D, num_flatten_dims=2, act="tanh")
    parts = [
        layers.reduce_mean(rows, 1),
        layers.reduce_max(rows, 1),
        layers.reduce_min(rows, 1),
        layers.reduce_sum(layers.square(layers.elementwise_mul(rows, w)), 1),
        layers.reduce_mean(layers.exp(rows), [1, 2], keep_dim=False),
    ]
    parts[-1] = layers.unsqueeze(parts[-1], [1])
    first = layers.squeeze(layers.slice(rows, [1], [0], [1]), [1])
    both = layers.split(layers.stack([rows, rows], axis=1), 2, dim=1)[1]
    unit = layers.l2_normalize(rows, axis=-1)
    loss = layers.reduce_sum(layers.concat([*parts, first], axis=1))
    return [layers.mean(unit) + layers.mean(both) + loss, unit, both, parts[0]]


def test_statistics(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = [
        {"x": rng.normal(size=(B, n, D)).astype(np.float32), "w": rng.normal(size=(B, n, 1)).astype(np.float32)}
        for n in (3, 5, 8, 6)
    ]
    compare(monkeypatch, statistics, feeds, 2)


# --- sequences that become a dim ------------------------------------------------------------------------------------


def padded_attention() -> Sequence[Any]:
    rows = layers.fc(fluid.data("x", [None, D], "float32", lod_level=1), D, act="tanh")
    wide, lengths = layers.sequence_pad(rows, layers.fill_constant([1], "float32", 0.0))
    scores = layers.softmax(layers.matmul(wide, wide, transpose_y=True))
    scores = layers.dropout(scores, 0.3)
    read = layers.layer_norm(layers.concat([wide, layers.matmul(scores, wide)], axis=2), begin_norm_axis=2)
    back = layers.sequence_unpad(layers.fc(read, D, num_flatten_dims=2), lengths)
    return [layers.mean(layers.square(back)) + layers.mean(read), read]


def test_attention_over_padded_sequences(rng: np.random.Generator) -> None:
    """Compiled for rooms of the longest length, though what follows the sequences takes part."""
    lengths = [[3, 1, 2], [5, 2, 2], [7, 1, 1], [4, 4, 1], [6, 2, 3]]
    feeds = [
        {"x": fluid.create_lod_tensor(rng.normal(size=(sum(of), D)).astype(np.float32), [of], fluid.CPUPlace())}
        for of in lengths
    ]
    found = train(padded_attention, feeds)
    assert found.compilations <= 2
    for (loss, read), of in zip(found.fetches, lengths, strict=True):
        assert read.shape == (3, max(of), 2 * D)
        assert np.isfinite(loss).all()


# --- what cannot have room for more ---------------------------------------------------------------------------------


def counted() -> Sequence[Any]:
    """The size itself is read."""
    x = fluid.data("x", [None, None, D], "float32")
    rows = layers.fc(x, D, num_flatten_dims=2)
    size = layers.cast(layers.slice(layers.shape(rows), [0], [1], [2]), "float32")
    return [layers.mean(layers.elementwise_div(rows, size)), rows]


def convolved() -> Sequence[Any]:
    x = fluid.data("x", [None, None, D], "float32")
    rows = layers.unsqueeze(layers.fc(x, D, num_flatten_dims=2), [1])
    return [layers.mean(layers.conv2d(rows, 2, 3, padding=1))]


def looped() -> Sequence[Any]:
    x = fluid.data("x", [None, None, D], "float32")
    rows = layers.fc(x, D, num_flatten_dims=2)
    turn, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 2)
    total = layers.fill_constant([1], "float32", 0.0)
    turn, total = layers.while_loop(lambda i, t: i < end, lambda i, t: [i + 1, t + layers.mean(rows)], [turn, total])
    return [layers.mean(total), rows]


@pytest.mark.parametrize("build", [counted, convolved, looped], ids=lambda f: f.__name__)
def test_what_cannot_be_wide_is_exact(
    build: Callable[[], Sequence[Any]], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds = [{"x": rng.normal(size=(B, n, D)).astype(np.float32)} for n in (3, 5, 7)]
    compare(monkeypatch, build, feeds, 3)


def two() -> Sequence[Any]:
    x, y = (fluid.data(name, [None, None, D], "float32") for name in "xy")
    scores = layers.softmax(layers.matmul(layers.fc(x, D, num_flatten_dims=2), y, transpose_y=True))
    return [layers.mean(layers.matmul(scores, y)), scores]


def test_dims_that_agreed_by_chance_are_told_apart(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [(3, 3), (5, 5), (5, 7), (6, 3)]
    feeds = [{n: rng.normal(size=(B, k, D)).astype(np.float32) for n, k in zip("xy", of, strict=True)} for of in sizes]
    compare(monkeypatch, two, feeds, 3)


def test_an_empty_history_is_exact(rng: np.random.Generator) -> None:
    def summed() -> Sequence[Any]:
        x = fluid.data("x", [None, None, D], "float32")
        rows = layers.fc(x, D, num_flatten_dims=2)
        return [layers.mean(layers.reduce_sum(rows, 1)), rows]

    feeds = [{"x": rng.normal(size=(B, n, D)).astype(np.float32)} for n in (3, 5, 0, 4)]
    found = train(summed, feeds)
    assert [rows.shape for _, rows in found.fetches] == [(B, n, D) for n in (3, 5, 0, 4)]
    assert all(np.isfinite(loss).all() for loss, _ in found.fetches)


def test_selected_rows_are_fetched_as_they_are(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[Any]:
        main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
        with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
            ids = fluid.data("ids", [None, None], "int64")
            table = fluid.embedding(ids, [WORDS, D], is_sparse=True)
            fluid.backward.append_backward(layers.mean(layers.square(table)))
            executor = fluid.Executor(fluid.CPUPlace())
            executor.run(startup)
            name = main.all_parameters()[0].name + "@GRAD"
            feeds = [{"ids": np.arange(2 * n).reshape(2, n)} for n in (3, 5, 4)]
            return [executor.run(main, feed=f, fetch_list=[name], return_numpy=False)[0].rows() for f in feeds]

    assert [len(rows) for rows in run()] == [6, 10, 8]
