"""Dims that an op pairs, whose sizes come from different places: fed, of the longest sequence, computed, or known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from lowering.engine.context import Context
from tests.stream.test_wide import Feed, train
from tests.stream.test_wide_sizes import LENGTHS, B, D, both, equal_to_exact_sizes, rows_of, size

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def padded(name: str) -> Any:
    """Sequences of rows, as a batch as wide as the longest."""
    x = layers.data(name, [D], dtype="float64", lod_level=1)
    return layers.sequence_pad(layers.fc(x, D, act="tanh"), layers.fill_constant([1], "float64", 0.0))[0]


def evolving() -> Sequence[Any]:
    """Interest (DIEN): sequences beside what is fed as wide, steps over both, and each place with the next."""
    rows, target = padded("x"), fluid.data("target", [None, None, D], "float64")
    mask = fluid.data("mask", [None, None, 1], "float64")
    scores = layers.fc(layers.concat([rows, target, rows - target, rows * target], 2), 1, num_flatten_dims=2) + mask
    weights = layers.transpose(layers.softmax(layers.transpose(scores, [0, 2, 1])), [0, 2, 1])
    read = layers.transpose(layers.elementwise_mul(rows, weights), [1, 0, 2])
    network = layers.StaticRNN()
    with network.step():
        row = network.step_input(read)
        before = network.memory(shape=[-1, D], batch_ref=row)
        after = layers.tanh(layers.fc(before, D) + row)
        network.update_memory(before, after)
        network.step_output(after)
    last = layers.transpose(network(), [1, 0, 2])[:, -1, :]
    n = size(rows)
    beside = layers.reduce_sum(rows[:, 0 : n - 1, :] * rows[:, layers.fill_constant([1], "int32", 1) : n, :], [1, 2])
    return [layers.mean(layers.square(last)) + layers.mean(beside), weights, last]


def interests(rng: np.random.Generator, longest: Sequence[int], more: int = 0) -> list[Feed]:
    """Sequences of which the last is the longest, and what is fed beside, by ``more`` places wider."""
    found: list[Feed] = []
    for n in longest:
        lengths = [*rng.integers(1, n + 1, B - 1).tolist(), n]
        rows = fluid.create_lod_tensor(rng.normal(size=(sum(lengths), D)), [lengths], fluid.CPUPlace())
        mask = np.where(np.arange(n + more) < np.array(lengths)[:, None], 0.0, -1e9)[..., None]
        found.append({"x": rows, "target": rng.normal(size=(B, n + more, D)), "mask": mask})
    return found


def test_sequences_beside_what_is_fed(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = interests(rng, [4, 4, 4, 5, 8, 7, 3])
    found = train(evolving, feeds)
    assert found.compilations <= 2
    with monkeypatch.context() as patch:
        patch.setattr(Context, "label", lambda *_: None)
        both(patch, evolving, feeds)
        exact = train(evolving, feeds)
    for mine, theirs in zip(found.fetches, exact.fetches, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    for name, value in found.parameters.items():
        np.testing.assert_allclose(value, exact.parameters[name], rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("before", [[], [4], [4, 6, 5]], ids=["at once", "known size", "with room"])
def test_what_is_fed_beside_is_wider(before: list[int], rng: np.random.Generator) -> None:
    with pytest.raises(fluid.core.EnforceNotMet, match="concat"):
        train(evolving, [*interests(rng, before), *interests(rng, [5], more=1)])


# --- one dim of two sizes -------------------------------------------------------------------------------------------


def crossed() -> Sequence[Any]:
    """Each place of one with each of another, side by side."""
    (x, rows), (y, others) = rows_of("x"), rows_of("y")
    many = layers.expand(layers.unsqueeze(rows, [2]), [1, 1, size(y), 1])
    more = layers.expand(layers.unsqueeze(others, [1]), [1, size(x), 1, 1])
    scores = layers.fc(layers.concat([many, more], 3), 1, num_flatten_dims=3)
    return [layers.mean(layers.square(scores)), layers.squeeze(scores, [3])]


def merged() -> Sequence[Any]:
    """All places of all sequences as rows, by the product of two sizes, and back."""
    x, rows = rows_of()
    count = layers.shape(rows)
    flat = layers.fc(layers.reshape(rows, [count[0] * count[1], D]), D, act="tanh")
    back = layers.reshape(flat, [count[0], count[1], D])
    return [layers.mean(layers.square(back * rows)), back]


def numbered() -> Sequence[Any]:
    """A sum divided by the number of all elements."""
    _, rows = rows_of()
    return [layers.reduce_sum(layers.square(rows)) / layers.cast(layers.size(rows), "float64"), layers.size(rows)]


@pytest.mark.parametrize("build", [merged, numbered], ids=lambda f: f.__name__)
def test_products_of_sizes(
    build: Callable[[], Sequence[Any]], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    equal_to_exact_sizes(monkeypatch, build, [{"x": rng.normal(size=(B, n, D))} for n in LENGTHS], 2)


def test_pairs_of_places(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = [{"x": rng.normal(size=(B, n, D)), "y": rng.normal(size=(B, n + n % 3, D))} for n in LENGTHS]
    equal_to_exact_sizes(monkeypatch, crossed, feeds, 3)
