"""What is compared with a number derived from it is computed once, however XLA fuses what reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with fluid.scope_guard(fluid.Scope()), fluid.program_guard(fluid.Program(), fluid.Program()):
        yield


SHAPE = (33, 5)  # with this many rows a * b + 0.3 is contracted in some loops only: a quarter of the maxima were missed


def fed(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {name: rng.standard_normal(SHAPE).astype("float32") for name in "ab"}


def product(lod_level: int = 0) -> Any:
    """A sum with a product in it, which XLA may round in one go or in two."""
    a, b = (fluid.data(name, [None, SHAPE[1]] if lod_level else SHAPE, lod_level=lod_level) for name in "ab")
    a.stop_gradient = b.stop_gradient = False
    return a * b + 0.3


@pytest.mark.parametrize("dim", [None, -1])
@pytest.mark.parametrize("reduce", [layers.reduce_max, layers.reduce_min])
def test_each_extremum_takes_its_gradient(
    rng: np.random.Generator, reduce: Callable[..., Any], dim: int | None
) -> None:
    x = product()
    gradient = fluid.gradients([layers.reduce_sum(reduce(x, dim=dim))], [x])[0]
    exe = fluid.Executor(fluid.CPUPlace())
    for _ in range(8):
        (got,) = exe.run(feed=fed(rng), fetch_list=[gradient])
        np.testing.assert_array_equal(got.sum(dim), np.ones_like(got.sum(dim)))


def test_the_largest_rows_of_sequences_take_their_gradients(rng: np.random.Generator) -> None:
    x = product(lod_level=1)
    gradient = fluid.gradients([layers.reduce_sum(layers.sequence_pool(x, "max"))], [x])[0]
    place = fluid.CPUPlace()
    for _ in range(4):
        feed = {k: fluid.create_lod_tensor(v, [[10, 20, 3]], place) for k, v in fed(rng).items()}
        (got,) = fluid.Executor(place).run(feed=feed, fetch_list=[gradient], return_numpy=False)
        rows = np.add.reduceat(np.array(got), [0, 10, 30])
        np.testing.assert_array_equal(rows, np.ones((3, SHAPE[1])))


@pytest.mark.parametrize("compare", [layers.equal, layers.greater_equal])
def test_the_maximum_is_among_what_it_is_of(rng: np.random.Generator, compare: Callable[..., Any]) -> None:
    x = product()
    largest = layers.expand(layers.reduce_max(x, keep_dim=True), SHAPE)
    hit = layers.cast(compare(x, largest), "float32") * x
    exe = fluid.Executor(fluid.CPUPlace())
    for _ in range(8):
        (got,) = exe.run(feed=fed(rng), fetch_list=[hit])
        assert (got != 0).sum() == 1


def test_the_maximum_is_among_what_it_is_of_in_eager_mode(rng: np.random.Generator) -> None:
    with fluid.dygraph.guard(fluid.CPUPlace()):
        for _ in range(8):
            a, b = map(fluid.dygraph.to_variable, fed(rng).values())
            a.stop_gradient = False
            x = a * b + 0.3
            largest = layers.reduce_max(x, keep_dim=True)
            hit = layers.cast(layers.equal(x, layers.expand(largest, SHAPE)), "float32")
            layers.reduce_sum(largest).backward()
            assert hit.numpy().sum() == 1
            assert (a.gradient() != 0).sum() == 1
