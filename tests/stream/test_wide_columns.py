"""Columns of what all sentences of a padded batch have: their first dim changes, that of the batch does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from tests.stream.test_wide import Feed, train
from tests.stream.test_wide_sizes import B, D, both, equal_to_exact_sizes, rows_of

pytestmark = pytest.mark.usefixtures("compiled_quickly")

CLASSES = 5
LENGTHS = (3, 5, 8, 7, 8, 2)


def labelled() -> Sequence[Any]:
    """A label and a weight for each place of the batch, as of Fluid's Transformer."""
    _, rows = rows_of()
    label, weight = fluid.data("label", [None, 1], "int64"), fluid.data("weight", [None, 1], "float64")
    scores = layers.fc(layers.reshape(rows, [-1, D]), CLASSES)
    wanted = layers.label_smooth(layers.one_hot(label, CLASSES), epsilon=0.1, dtype="float64")
    cost = layers.softmax_with_cross_entropy(scores, wanted, soft_label=True) * weight
    total = layers.reduce_sum(weight)
    total.stop_gradient = True
    return [layers.reduce_sum(cost) / total, scores, cost]


def hard() -> Sequence[Any]:
    """Labels that are numbers, met by sums on either side."""
    _, rows = rows_of()
    label, weight = fluid.data("label", [None, 1], "int64"), fluid.data("weight", [None, 1], "float64")
    flat = layers.reshape(rows, [-1, D])
    moved = layers.elementwise_add(layers.elementwise_mul(flat, weight, axis=0), layers.expand(weight, [1, D]))
    cost = layers.softmax_with_cross_entropy(layers.fc(moved + flat, CLASSES), label)
    return [layers.mean(cost), moved]


def masked() -> Sequence[Any]:
    """Some places of the batch, and what was there, as BERT is trained."""
    _, rows = rows_of()
    at, label = fluid.data("at", [None, 1], "int64"), fluid.data("label", [None, 1], "int64")
    found = layers.gather(layers.reshape(rows, [-1, D]), layers.cast(at, "int32"), overwrite=False)
    cost = layers.softmax_with_cross_entropy(layers.fc(found, CLASSES), label)
    return [layers.mean(cost), found]


def columns(rng: np.random.Generator, lengths: Sequence[int], batch: int = B) -> list[Feed]:
    return [
        {
            "x": rng.normal(size=(batch, n, D)),
            "label": rng.integers(0, CLASSES, (batch * n, 1)),
            "weight": rng.random((batch * n, 1)),
        }
        for n in lengths
    ]


def places(rng: np.random.Generator, lengths: Sequence[int]) -> list[Feed]:
    found: list[Feed] = []
    for n in lengths:
        count = int(rng.integers(1, 9))
        at, label = rng.integers(0, B * n, (count, 1)), rng.integers(0, CLASSES, (count, 1))
        found.append({"x": rng.normal(size=(B, n, D)), "at": at, "label": label})
    return found


@pytest.mark.parametrize("build", [labelled, hard], ids=lambda f: f.__name__)
def test_a_label_for_each_place(
    build: Callable[[], Sequence[Any]], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    equal_to_exact_sizes(monkeypatch, build, columns(rng, LENGTHS), 2)


def test_labels_of_some_places(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    equal_to_exact_sizes(monkeypatch, masked, places(rng, LENGTHS), 3)


def test_a_smaller_last_batch(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each number of sentences is compiled for, whatever their lengths."""
    feeds = [*columns(rng, (3, 5, 8)), *columns(rng, (6, 4), B - 1), *columns(rng, (7, 2)), *columns(rng, (8,), B - 1)]
    equal_to_exact_sizes(monkeypatch, labelled, feeds, 3)


def test_a_label_too_few_is_the_error_of_the_program(rng: np.random.Generator) -> None:
    feeds = columns(rng, (3, 5, 8, 6))
    wrong = {**feeds[-1], "label": feeds[-1]["label"][:-1]}
    train(labelled, feeds)
    with pytest.raises(Exception, match=r"elementwise_mul|softmax_with_cross_entropy"):
        train(labelled, [*feeds, wrong])


def test_columns_of_a_batch_that_changes_are_exact(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """All first dims change together: they are those of one batch."""
    feeds = [feed for n in (3, 5, 8) for feed in columns(rng, (n,), n)]
    both(monkeypatch, labelled, feeds)
