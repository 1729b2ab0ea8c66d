"""Programs that read the size of a dim that changes: it stays a number of the run, and what has that size is wide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.execution.rooms.dense import ChangingDims
from tests.stream.test_wide import Feed, Trained, train

pytestmark = pytest.mark.usefixtures("compiled_quickly")

B, D = 3, 4
LENGTHS = (3, 5, 8, 7, 8, 2)


def equal_to_exact_sizes(
    monkeypatch: pytest.MonkeyPatch, build: Callable[[], Sequence[Any]], feeds: Sequence[Feed], most: int
) -> None:
    """At most so many compilations, fewer than sizes, and all numbers as with each size as it is."""
    found, exact = both(monkeypatch, build, feeds)
    assert found.compilations <= most < exact.compilations


def both(
    monkeypatch: pytest.MonkeyPatch, build: Callable[[], Sequence[Any]], feeds: Sequence[Feed]
) -> tuple[Trained, Trained]:
    """What is trained with room, and with each size as it is: the same numbers in float64."""
    found = train(build, feeds)
    with monkeypatch.context() as patch:
        patch.setattr(ChangingDims, "see", lambda *_: None)
        patch.setattr(ChangingDims, "expect", lambda *_: None)
        exact = train(build, feeds)
    for mine, theirs in zip(found.fetches, exact.fetches, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    for name, value in found.parameters.items():
        np.testing.assert_allclose(value, exact.parameters[name], rtol=1e-9, atol=1e-9, err_msg=name)
    return found, exact


def size(x: Any, dim: int = 1) -> Any:
    """The size of a dim, as the program computes it."""
    return layers.slice(layers.shape(x), [0], [dim], [dim + 1])


def rows_of(name: str = "x") -> tuple[Any, Any]:
    """A feed [B, n, D], and rows computed from it."""
    x = fluid.data(name, [None, None, D], "float64")
    return x, layers.fc(x, D, num_flatten_dims=2, act="tanh")


def masked() -> Sequence[Any]:
    """Attention over what a mask as wide as the rows leaves."""
    x, rows = rows_of()
    mask = layers.sequence_mask(fluid.data("length", [None], "int64"), maxlen=layers.shape(x)[1], dtype="float64")
    scores = layers.fc(rows, 1, num_flatten_dims=2)
    scores = layers.transpose(scores, [0, 2, 1]) + layers.unsqueeze((mask - 1.0) * 1e9, [1])
    read = layers.matmul(layers.softmax(scores), rows)
    return [layers.mean(layers.square(read)), mask, read]


def filled() -> Sequence[Any]:
    """A constant, and numbers in a row, in the sizes of two dims."""
    x, rows = rows_of()
    fill = layers.fill_constant([layers.shape(x)[0], layers.shape(x)[1], D], "float64", 0.5)
    places = layers.cast(layers.range(0, size(x), 1, "int64"), "float64")
    places = layers.unsqueeze(layers.unsqueeze(places, [0]), [2])
    moved = layers.elementwise_add(rows + fill, layers.expand(places, [B, 1, D]))
    return [layers.mean(layers.square(moved)), moved, places]


def tiled() -> Sequence[Any]:
    """One row as often as a dim is large."""
    x, rows = rows_of()
    one = layers.reshape(layers.fc(layers.reduce_sum(x, 1), D), [-1, 1, D])
    many = layers.expand(one, [1, size(x), 1])
    return [layers.mean(layers.square(rows * many)), many]


def table() -> Sequence[Any]:
    """The first rows of a table of places."""
    x, rows = rows_of()
    whole = layers.create_parameter([40, D], "float64")
    first = layers.slice(whole, axes=[0], starts=[0], ends=size(x))
    moved = layers.elementwise_add(rows, layers.unsqueeze(first, [0]))
    return [layers.mean(layers.square(moved)), first]


def divided() -> Sequence[Any]:
    """A sum divided by the size."""
    x, rows = rows_of()
    return [layers.mean(layers.reduce_sum(rows, 1) / layers.cast(size(x), "float64")), size(x)]


def reshaped() -> Sequence[Any]:
    """Heads are parted by the size."""
    x, rows = rows_of()
    heads = layers.reshape(rows, [layers.shape(x)[0], layers.shape(x)[1], 2, D // 2])
    return [layers.mean(layers.square(layers.transpose(heads, [0, 2, 1, 3]))), heads]


def grown() -> Sequence[Any]:
    """A dim with one place more than another."""
    x, rows = rows_of()
    fill = layers.fill_constant([B, size(x) + 1, D], "float64", 2.0)
    first = layers.fill_constant([B, 1, D], "float64", 3.0)
    return [layers.mean(layers.square(layers.concat([first, rows], 1) * fill)), fill]


def paired() -> Sequence[Any]:
    """Each place of one with each of another."""
    (x, rows), (y, others) = rows_of("x"), rows_of("y")
    fill = layers.fill_constant([B, layers.shape(x)[1], layers.shape(y)[1]], "float64", 0.25)
    both = layers.shape(x) + layers.shape(y)
    return [layers.mean(layers.matmul(rows, others, transpose_y=True) * fill), fill, both]


def feeds_of(rng: np.random.Generator, lengths: Sequence[int], *names: str) -> list[Feed]:
    """Rows of x, and of others, which are up to two longer; and of "length", one for each sequence."""
    found: list[Feed] = []
    for n in lengths:
        feed = {"x": rng.normal(size=(B, n, D))}
        for name in names:
            known = name == "length"
            feed[name] = np.array([n, 1, 2]) if known else rng.normal(size=(B, n + n % 3, D))
        found.append(feed)
    return found


@pytest.mark.parametrize("build", [masked, filled, tiled, table, divided, reshaped, grown], ids=lambda f: f.__name__)
def test_what_has_the_size_of_a_dim_is_wide(
    build: Callable[[], Sequence[Any]], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds = feeds_of(rng, LENGTHS, *(["length"] if build is masked else []))
    equal_to_exact_sizes(monkeypatch, build, feeds, 2)


def test_sizes_of_two_dims(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    equal_to_exact_sizes(monkeypatch, paired, feeds_of(rng, LENGTHS, "y"), 3)


# --- what needs the size itself -------------------------------------------------------------------------------------


def backwards() -> Sequence[Any]:
    """Numbers that fall from the size on."""
    x, rows = rows_of()
    places = layers.cast(layers.range(size(x), 0, -1, "int32"), "float64")
    return [layers.mean(layers.elementwise_mul(rows, places, axis=1)), places]


def halved() -> Sequence[Any]:
    """A size that is computed from the size in another way than by sums and products."""
    x, rows = rows_of()
    half = layers.cast(layers.cast(size(x), "float32") / 2.0, "int32") + 1
    return [layers.mean(layers.square(rows)), layers.fill_constant([half, D], "float64", 2.0)]


def turned() -> Sequence[Any]:
    """A loop with as many turns."""
    x, rows = rows_of()
    turn, total = layers.fill_constant([1], "int32", 0), layers.fill_constant([1], "float64", 0.0)
    end = size(x)
    layers.while_loop(lambda i, t: i < end, lambda i, t: [i + 1, layers.assign(t + 0.5, t)], [turn, total])
    return [layers.mean(layers.square(rows)), total]


def multiplied() -> Sequence[Any]:
    """As many rows as two dims have places together."""
    (x, rows), (y, others) = rows_of("x"), rows_of("y")
    fill = layers.fill_constant([size(x) * size(y)], "float64", 0.5)
    return [layers.mean(rows) + layers.mean(others), fill]


def shared() -> Sequence[Any]:
    """What has no room is reshaped to the size."""
    x, rows = rows_of()
    many = layers.reshape(layers.create_parameter([24, D], "float64"), [size(x), -1])
    return [layers.mean(layers.square(rows)) + layers.mean(layers.square(many)), many]


@pytest.mark.parametrize("build", [backwards, halved, turned, shared], ids=lambda f: f.__name__)
def test_what_needs_the_size_is_compiled_for_each(
    build: Callable[[], Sequence[Any]], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, exact = both(monkeypatch, build, feeds_of(rng, (3, 8, 4)))
    assert found.compilations == exact.compilations == 3


def test_a_product_of_sizes_is_compiled_for_each(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    both(monkeypatch, multiplied, feeds_of(rng, (3, 5, 8), "y"))
