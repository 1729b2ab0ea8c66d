"""Dims that are declared to be of any size have room for more from the first batch on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.execution.executables import background
from fluidjax.execution.feeding.batches import Batch
from fluidjax.execution.rooms.buckets import SMALLEST, first_places, operations_of_row
from fluidjax.execution.rooms.dense import ChangingDims, Dense
from fluidjax.framework import program_view
from tests.stream.test_wide import B, D, Feed, Trained, histories, history, train

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.fixture(autouse=True)
def beside() -> Iterator[None]:
    fluid.set_flags({"FLAGS_background_compilation": True})
    yield
    background.wait()
    fluid.set_flags({"FLAGS_background_compilation": False})


def compare(
    monkeypatch: pytest.MonkeyPatch, build: Callable[[], Sequence[Any]], feeds: Sequence[Feed], count: int
) -> None:
    """So many compilations, and the numbers of each shape as it is."""
    found = train(build, feeds, seed=0)
    assert found.compilations == count
    with monkeypatch.context() as patch:
        patch.setattr(ChangingDims, "expect", lambda *_: None)
        patch.setattr(ChangingDims, "see", lambda *_: None)
        assert_close(found, train(build, feeds, seed=0))


def assert_close(found: Trained, exact: Trained) -> None:
    for mine, theirs in zip(found.fetches, exact.fetches, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)
    for name, value in found.parameters.items():
        np.testing.assert_allclose(value, exact.parameters[name], rtol=2e-4, atol=1e-5, err_msg=name)


def test_the_first_batch_has_room_for_the_next(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(monkeypatch, history, histories(rng, [3, 5, 8, 7, 2]), 1)


def test_the_first_batch_has_room_for_far_larger_ones_where_that_is_cheap(rng: np.random.Generator) -> None:
    assert train(history, histories(rng, [3, 40, 90, 7]), seed=0).compilations == 1


def test_a_wide_image_leaves_room_for_a_high_one(rng: np.random.Generator) -> None:
    def build() -> Sequence[Any]:
        return [layers.mean(layers.square(layers.conv2d(fluid.data("x", [None, 1, None, None]), 1, 3)))]

    feeds = [{"x": rng.normal(size=(1, 1, *size)).astype(np.float32)} for size in ((150, 300), (370, 200))]
    assert train(build, feeds, seed=0).compilations == 1


@pytest.mark.parametrize(("size", "found"), [((50, 100), [100, 100]), ((50, 101), [0, 101])])
def test_dims_far_from_each_other_are_no_sides_of_an_image(size: tuple[int, int], found: Sequence[int]) -> None:
    batch = Batch(["x"], [Dense(np.zeros((2, *size)), {1: 7, 2: 8}, rows=False)], dict(zip((7, 8), size, strict=True)))
    assert [batch.side(label) for label in (7, 8)] == found


def test_expensive_places_are_few() -> None:
    """128 at most, as many as keep a run short, and never less than the smallest bucket."""
    assert [first_places(each) for each in (0, 1_000_000, 40_000_000, 10**12)] == [128, 128, 32, SMALLEST]


def test_what_an_optimizer_keeps_beside_the_weights_costs_no_row_anything() -> None:
    found = []
    for optimizer in (fluid.optimizer.SGD(0.1), fluid.optimizer.Adam(0.1)):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()):
            rows = layers.embedding(fluid.data("ids", [None, 1], "int64"), [1000, 8])
            optimizer.minimize(layers.mean(layers.fc(rows, 4)))
        found.append(operations_of_row(program_view(main)))
    assert found == [6 * 8 * 4] * 2


def test_a_seeded_program_has_none_before_it_needs_it(rng: np.random.Generator) -> None:
    """It compiles by sizes alone, and nothing beside its runs: a room too large would stay."""
    assert train(history, histories(rng, [8, 8, 8])).compilations == 1
    assert train(history, histories(rng, [3, 5, 8, 7, 2])).compilations == 2


def scaled() -> Sequence[Any]:
    """The second dim meets a parameter of its size, whatever is declared of it."""
    x, w = fluid.data("x", [None, None, None], "float32"), layers.create_parameter([D], "float32", name="w")
    weighed = layers.elementwise_mul(x, w)
    return [layers.mean(layers.reduce_sum(weighed, 1)), weighed]


def multiplied() -> Sequence[Any]:
    """The second dim is a parameter's, in a product that runs with the true size alone."""
    x, w = fluid.data("x", [None, None, None], "float32"), layers.create_parameter([D, 2], "float32", name="w")
    product = layers.mul(x, w, x_num_col_dims=2)
    return [layers.mean(layers.reduce_sum(product, 1)), product]


@pytest.mark.parametrize(("build", "count"), [(scaled, 1), (multiplied, 2)], ids=["paired", "refused"])
def test_a_dim_that_stays_is_taken_for_what_it_is(
    build: Callable[[], Sequence[Any]], count: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If an op refuses room in it, the first batch is compiled as it is; what does change has room then, too."""
    feeds = [{"x": rng.normal(size=(B, n, D)).astype(np.float32)} for n in (3, 5, 8, 2)]
    compare(monkeypatch, build, feeds, count)


def masked() -> Sequence[Any]:
    """One row of a mask for all rows of scores, or one for each."""
    x, mask = fluid.data("x", [None, None, D], "float32"), fluid.data("mask", [None, None, None], "float32")
    weights = layers.softmax(layers.elementwise_add(layers.matmul(x, x, transpose_y=True), mask))
    return [layers.mean(layers.fc(layers.matmul(weights, x), 2, num_flatten_dims=2)), weights]


@pytest.mark.parametrize("each", [False, True])
def test_a_single_place_is_paired_with_any_number(
    each: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds = [
        {
            "x": rng.normal(size=(B, n, D)).astype(np.float32),
            "mask": rng.normal(size=(B, n if each else 1, n)).astype(np.float32),
        }
        for n in (4, 6, 8, 3)
    ]
    compare(monkeypatch, masked, feeds, 1)


def test_dims_that_agreed_in_the_first_batch_are_told_apart(rng: np.random.Generator) -> None:
    dims = ChangingDims(ahead=True)
    dims.expect("x", [-1, -1, -1, 4], (2, 5, 5, 4))
    assert list(dims.of("x", 4)) == [1, 2] and len(set(dims.of("x", 4).values())) == 1
    dims.begin()
    dims.see("x", (2, 5, 5, 4), (2, 5, 7, 4))
    assert sorted(dims.sizes({"x": (2, 5, 7, 4)}).values()) == [5, 7]
