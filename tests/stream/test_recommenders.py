"""Networks of recommenders, graphs and videos over 30 batches that vary: a few compilations, and exact numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.execution.feeding.feed import Feeder
from lowering.errors import OpError
from tests.stream.test_wide import Trained, train

pytestmark = pytest.mark.usefixtures("compiled_quickly")

D, WORDS, MOST = 4, 20, 5
Feed = Mapping[str, Any]
Network = tuple[Callable[[], Sequence[Any]], Callable[[np.random.Generator, int], Feed]]


def ids(name: str) -> Any:
    return layers.data(name, [1], dtype="int64", lod_level=1)


def embedded(x: Any, table: str = "table") -> Any:
    return layers.embedding(x, [WORDS, D], param_attr=fluid.ParamAttr(name=table))


def ragged(rng: np.random.Generator, lengths: Sequence[int], width: int = 0) -> fluid.LoDTensor:
    """Word ids, or rows of numbers of a width."""
    rows = sum(lengths)
    data = rng.standard_normal((rows, width)).astype(np.float32) if width else rng.integers(0, WORDS, (rows, 1))
    return fluid.create_lod_tensor(data, [[int(n) for n in lengths]], fluid.CPUPlace())


def lengths(rng: np.random.Generator, batch: int) -> list[int]:
    return rng.integers(1, 20, batch).tolist()


# --- rows of one-row sequences are paired with what other sequences are pooled to ------------------------------------


def tags() -> Sequence[Any]:
    text, tag, other = ids("text"), ids("tag"), ids("other")
    pooled = fluid.nets.sequence_conv_pool(embedded(text), num_filters=6, filter_size=3, act="tanh", pool_type="max")
    wanted = layers.fc(pooled, D)
    right, wrong = layers.cos_sim(embedded(tag, "tags"), wanted), layers.cos_sim(embedded(other, "tags"), wanted)
    margin = layers.fill_constant_batch_size_like(right, [-1, 1], "float32", 0.1)
    return [layers.mean(layers.relu(margin - right + wrong)), layers.mean(right)]


def tags_fed(rng: np.random.Generator, batch: int) -> Feed:
    ones = [1] * batch
    return {"text": ragged(rng, lengths(rng, batch)), "tag": ragged(rng, ones), "other": ragged(rng, ones)}


def labelled() -> Sequence[Any]:
    rows, label = embedded(ids("text")), layers.data("label", [1], dtype="int64", lod_level=1)
    scores = layers.fc(layers.concat([layers.sequence_pool(rows, "sum"), embedded(label)], axis=1), WORDS)
    loss = layers.cross_entropy(layers.softmax(scores), label)
    return [layers.mean(loss), layers.accuracy(layers.softmax(scores), label)]


def labelled_fed(rng: np.random.Generator, batch: int) -> Feed:
    return {"text": ragged(rng, lengths(rng, batch)), "label": ragged(rng, [1] * batch)}


# --- each row becomes several, and these one again (NeXtVLAD) --------------------------------------------------------


def clusters() -> Sequence[Any]:
    count, groups, width = 3, 2, 6
    x = layers.data("frames", [width], lod_level=1)
    wide = layers.fc(x, groups * width)
    share = layers.reshape(layers.fc(wide, groups, act="sigmoid"), [-1, 1])
    found = layers.reshape(layers.batch_norm(layers.fc(wide, groups * count)), [-1, count])
    found = layers.elementwise_mul(layers.softmax(found), share, axis=0)
    total = layers.sequence_pool(layers.lod_reset(layers.reshape(found, [-1, groups * count]), y=x), "sum")
    parts = layers.reshape(found, [-1, groups, count]), layers.reshape(wide, [-1, groups, width])
    read = layers.reshape(layers.matmul(*parts, transpose_x=True), [-1, count * width])
    read = layers.sequence_pool(layers.lod_reset(read, y=x), "sum")
    score = layers.fc(layers.concat([layers.l2_normalize(read, 1), total], axis=1), 1)
    return [layers.mean(layers.square(score)), score]


def clusters_fed(rng: np.random.Generator, batch: int) -> Feed:
    return {"frames": ragged(rng, lengths(rng, batch), 6)}


# --- sessions as graphs: nodes are gathered where the session visited them (SR-GNN) ----------------------------------


def graphs(flat: bool) -> Network:
    b = 3

    def fed(name: str, shape: Sequence[int], dtype: str = "float32") -> Any:
        return layers.data(name, [b, *shape], dtype=dtype, append_batch_size=False)

    def build() -> Sequence[Any]:
        items, edges, mask = fed("items", [-1, 1], "int64"), fed("edges", [-1, -1]), fed("mask", [-1, 1])
        path = fed("path", [-1] if flat else [-1, 2], "int64")
        state = layers.reshape(embedded(items), [b, -1, D])
        message = layers.reshape(layers.matmul(edges, layers.fc(state, D, num_flatten_dims=2)), [-1, D])
        state, _, _ = layers.gru_unit(layers.fc(message, 3 * D), layers.reshape(state, [-1, D]), 3 * D)
        if flat:
            visited = layers.reshape(layers.gather(state, layers.reshape(path, [-1])), [b, -1, D])
        else:
            visited = layers.gather_nd(layers.reshape(state, [b, -1, D]), path)
        score = layers.fc(layers.reduce_mean(layers.elementwise_mul(visited, mask, axis=0), dim=1), 1)
        return [layers.mean(layers.square(score)), score, visited]

    def feed(rng: np.random.Generator, _: int) -> Feed:
        n, steps = rng.integers(2, 20, 2).tolist()
        places, graph = rng.integers(0, n, (b, steps)), np.arange(b)[:, None]
        return {
            "items": rng.integers(0, WORDS, (b, n, 1)),
            "edges": rng.random((b, n, n)).astype(np.float32) / np.float32(n),
            "mask": (rng.random((b, steps, 1)) > 0.3).astype(np.float32),
            "path": places + graph * n if flat else np.stack([0 * places + graph, places], axis=2),
        }

    return build, feed


# --- positions from the end ------------------------------------------------------------------------------------------


def last() -> Sequence[Any]:
    words = fluid.data("words", [None, None], "int64")
    rows = layers.fc(fluid.embedding(words, [WORDS, D]), D, num_flatten_dims=2, act="tanh")
    score = layers.fc(layers.concat([layers.reshape(rows[:, -1:], [0, D]), rows[:, -1], rows[:, 0]], axis=1), 1)
    return [layers.mean(layers.square(score)), score]


def next_words() -> Sequence[Any]:
    words = fluid.data("words", [None, None], "int64")
    rows = layers.fc(fluid.embedding(words[:, :-1], [WORDS, D]), WORDS, num_flatten_dims=2)
    loss = layers.softmax_with_cross_entropy(rows, layers.unsqueeze(words[:, 1:], [2]))
    return [layers.mean(loss), loss]


def behaviour() -> Sequence[Any]:
    """What a user did, and then the target, attend to each other."""
    words, target = fluid.data("words", [None, None], "int64"), fluid.data("target", [None, 1], "int64")
    rows = layers.concat(
        [fluid.embedding(v, [WORDS, D], param_attr=fluid.ParamAttr(name="t")) for v in (words, target)], 1
    )
    query = layers.expand_as(layers.fc(rows[:, -1:], D, num_flatten_dims=2), rows)
    weights = layers.softmax(layers.matmul(layers.fc(rows + query, D, num_flatten_dims=2), rows, transpose_y=True))
    score = layers.fc(layers.reduce_max(layers.matmul(weights, rows), dim=1), 1)
    return [layers.mean(layers.square(score)), score]


# --- the best, the last and the first of what varies, and windows over it (k-max and text CNNs) ---------------------


def best() -> Sequence[Any]:
    words = fluid.data("words", [None, None], "int64")
    rows = fluid.embedding(words, [WORDS, D])
    places = layers.argmax(rows, axis=1)
    columns = layers.transpose(rows, [0, 2, 1])
    largest, _ = layers.topk(columns, 2)
    order = layers.argsort(columns, axis=2)[1]
    sums = layers.cumsum(rows, axis=1)
    near = layers.pool2d(layers.unsqueeze(columns, [1]), [1, 2], "max", pool_padding=[0, 0])
    most = layers.pool2d(near, global_pooling=True, pool_type="avg")
    parts = [largest, rows[:, -2:], rows[:, :2], layers.reduce_max(sums, dim=1), layers.reduce_mean(near, dim=[1, 3])]
    read = layers.concat([layers.reshape(p, [0, n * D]) for p, n in zip(parts, (2, 2, 2, 1, 1), strict=True)], axis=1)
    score = layers.fc(read, 1) + layers.reshape(most, [0, 1])
    return [layers.mean(layers.square(score)), score, places, order, sums]


def words_fed(rng: np.random.Generator, batch: int) -> Feed:
    return {"words": rng.integers(0, WORDS, (batch, int(rng.integers(2, 25))))}


def behaviour_fed(rng: np.random.Generator, batch: int) -> Feed:
    return {**words_fed(rng, batch), "target": rng.integers(0, WORDS, (batch, 1))}


NETWORKS: dict[str, Network] = {
    "tags": (tags, tags_fed),
    "labelled": (labelled, labelled_fed),
    "clusters": (clusters, clusters_fed),
    "graphs": graphs(flat=True),
    "graphs_nd": graphs(flat=False),
    "last": (last, words_fed),
    "next_words": (next_words, words_fed),
    "behaviour": (behaviour, behaviour_fed),
    "best": (best, words_fed),
}


def exactly(monkeypatch: pytest.MonkeyPatch, build: Callable[[], Sequence[Any]], feeds: Sequence[Feed]) -> Trained:
    """What a program trains to on batches without any room for more."""
    values = Feeder.values
    with monkeypatch.context() as patch:
        patch.setattr(Feeder, "values", lambda self, names, feed, **_: values(self, names, feed, exact=True))
        return train(build, feeds)


def same(found: Trained, exact: Trained) -> None:
    for mine, theirs in zip(found.fetches, exact.fetches, strict=False):
        for a, b in zip(mine, theirs, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_few_compilations_and_exact_numbers(
    name: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, feed = NETWORKS[name]
    feeds = [feed(rng, 2 if i == 3 else 3) for i in range(30)]
    found = train(build, feeds)
    assert found.compilations <= MOST
    same(found, exactly(monkeypatch, build, feeds[:3]))


# --- what is fed turns out to be of another kind ---------------------------------------------------------------------


def test_labels_that_become_sequences_get_room(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> Sequence[Any]:
        rows = [layers.sequence_pool(embedded(ids(name)), "sum") for name in ("text", "label")]
        return [layers.mean(layers.square(layers.fc(layers.concat(rows, axis=1), 1)))]

    feeds = [labelled_fed(rng, 3), *({n: ragged(rng, lengths(rng, 3)) for n in ("text", "label")} for _ in range(20))]
    found = train(build, feeds)
    assert found.compilations <= MOST
    same(found, exactly(monkeypatch, build, feeds[:3]))


def test_rows_paired_with_those_of_inner_sequences(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents of one sentence each, at first: a label of each sentence goes with rows that have room for more."""

    def build() -> Sequence[Any]:
        words = layers.data("words", [1], dtype="int64", lod_level=2)
        sentences = layers.sequence_pool(embedded(words), "sum")
        return [layers.mean(layers.square(layers.sum([sentences, embedded(ids("label"))])))]

    def feed(counts: Sequence[int]) -> Feed:
        inner = rng.integers(1, 6, sum(counts)).tolist()
        words = fluid.create_lod_tensor(
            rng.integers(0, WORDS, (sum(inner), 1)), [list(counts), inner], fluid.CPUPlace()
        )
        return {"words": words, "label": ragged(rng, counts)}

    feeds = [feed([1, 1, 1]), *(feed(rng.integers(1, 5, 3).tolist()) for _ in range(20))]
    found = train(build, feeds)
    assert found.compilations <= MOST
    same(found, exactly(monkeypatch, build, feeds[:3]))


def test_nothing_left_of_a_dim_is_what_it_is_without_room(rng: np.random.Generator) -> None:
    """A slice that cuts all there is of a dim does so whatever room it has."""

    def build() -> Sequence[Any]:
        words = fluid.data("words", [None, None], "float32")
        return [layers.reduce_sum(layers.fc(layers.reshape(words[:, :1], [-1, 1]), 1)), words[:, 1:]]

    feeds = [{"words": rng.standard_normal((3, n)).astype(np.float32)} for n in (4, 7, 5, 1, 6)]
    found = train(build, feeds)
    for feed, (_, rest) in zip(feeds, found.fetches, strict=True):
        np.testing.assert_array_equal(rest, feed["words"][:, 1:])


def test_fewer_than_the_last_ones_are_as_many_as_there_are(rng: np.random.Generator) -> None:
    def build() -> Sequence[Any]:
        words = fluid.data("words", [None, None], "float32")
        return [layers.reduce_sum(layers.fc(layers.reshape(words, [-1, 1]), 1)), words[:, -3:], words[:, 1:4]]

    feeds = [{"words": rng.standard_normal((3, n)).astype(np.float32)} for n in (4, 7, 5, 2, 6, 1, 9)]
    found = train(build, feeds)
    for feed, (_, last, inner) in zip(feeds, found.fetches, strict=True):
        np.testing.assert_array_equal(last, feed["words"][:, -3:])
        np.testing.assert_array_equal(inner, feed["words"][:, 1:4])


def test_too_few_for_the_best_ones_is_an_error(rng: np.random.Generator) -> None:
    """Spare room is not among them."""

    def build() -> Sequence[Any]:
        words = fluid.data("words", [None, None], "float32")
        return [layers.reduce_sum(layers.fc(layers.topk(words, 3)[0], 1))]

    feeds = [{"words": rng.standard_normal((3, n)).astype(np.float32)} for n in (4, 7, 5, 2)]
    assert train(build, feeds[:3]).compilations < 3
    with pytest.raises(OpError, match="k=3"):
        train(build, feeds)


@pytest.mark.parametrize("name", ["graphs", "graphs_nd"])
def test_places_beyond_what_is_used_are_refused(name: str, rng: np.random.Generator) -> None:
    """A number that spare room would hold is as wrong as without it."""
    build, feed = NETWORKS[name]
    feeds = [feed(rng, 3) for _ in range(4)]
    places = np.array(feeds[-1]["path"])
    places.reshape(-1)[-1] = feeds[-1]["items"].shape[1] * (3 if name == "graphs" else 1)
    with pytest.raises(ValueError, match="gather"):
        train(build, [*feeds, {**feeds[-1], "path": places}])
