"""Eager mode takes data types by any name that NumPy has for them, as Fluid does; a written program does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid

layers = fluid.layers
LIKE = np.zeros((3, 1), "float32")


@pytest.fixture(autouse=True)
def under_guard() -> Iterator[None]:
    with fluid.dygraph.guard():
        yield


@pytest.mark.parametrize(("name", "dtype"), [(float, "float64"), ("double", "float64"), ("f4", "float32")])
@pytest.mark.parametrize(
    "layer",
    [
        lambda x, dtype: layers.cast(x, dtype),
        lambda x, dtype: layers.create_global_var([1], 1.0, dtype),
        lambda x, dtype: layers.uniform_random_batch_size_like(x, [1, 2], dtype),
        lambda x, dtype: layers.gaussian_random_batch_size_like(x, [1, 2], dtype=dtype),
    ],
    ids=["cast", "create_global_var", "uniform", "gaussian"],
)
def test_names_of_numpy(layer: Callable[[Any, Any], Any], name: Any, dtype: str) -> None:
    assert layer(fluid.dygraph.to_variable(LIKE), name).numpy().dtype == dtype


def test_whole_numbers() -> None:
    x = fluid.dygraph.to_variable(np.float32([1.7, -2.2]))
    found = layers.cast(x, int).numpy()
    assert found.dtype == np.int64 and found.tolist() == [1, -2]
    with pytest.raises(fluid.core.EnforceNotMet, match="must be"):
        layers.cast(x, np.int16)
    with pytest.raises(TypeError, match="words"):
        layers.cast(x, "words")


def test_truths_are_tiled() -> None:
    """Whatever their ``stop_gradient``, of which only a program that is written asks."""
    x = fluid.dygraph.to_variable(np.array([[True, False]]))
    assert layers.expand(x, [2, 1]).numpy().tolist() == [[True, False]] * 2
