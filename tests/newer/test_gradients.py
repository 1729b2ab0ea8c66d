"""Gradients of ops of Paddle 2 that no recording has, against ``jax.vjp`` and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from fluidjax import testing
from fluidjax.testing import Case


def normal(*shape: int):
    return lambda rng: rng.standard_normal(shape)


def positive(size: int):
    def draw(rng: np.random.Generator) -> np.ndarray:
        a = rng.standard_normal((size, size))
        return a @ a.T + size * np.eye(size)

    return draw


INDEX = np.array([[0, 2, 1], [1, 0, 2]])
CASES = [
    Case("cholesky", {"X": positive(3)}, {"upper": False}),
    Case("determinant", {"Input": positive(3)}),
    Case("diag_v2", {"X": normal(3)}, {"offset": 1, "padding_value": 2.0}),
    Case(
        "einsum",
        {"Operands": [normal(2, 3), normal(3, 4)]},
        {"equation": "ij,jk->ki"},
        counts={"InnerCache": 2, "XShape": 2},
    ),
    Case("fill_any", {"X": normal(2, 3)}, {"value_float": 2.0}),
    Case("fill_diagonal", {"X": normal(4, 3)}, {"value": 2.0}),
    Case("index_put", {"x": normal(3, 4), "indices": [np.array([0, 2])], "value": normal(2, 4)}),
    Case(
        "index_put",
        {"x": normal(3, 4), "indices": [np.array([1, 1])], "value": normal(2, 4)},
        {"accumulate": True},
        "added",
    ),
    Case("matrix_power", {"X": positive(3)}, {"n": 3}),
    Case("mode", {"X": normal(2, 3)}),  # all are different, so it is the smallest
    Case("npu_identity", {"x": normal(2, 3)}),
    Case(
        "put_along_axis",
        {"Input": normal(2, 3), "Index": INDEX, "Value": normal(2, 3)},
        {"Axis": 1, "Reduce": "assign"},
    ),
    Case(
        "put_along_axis",
        {"Input": normal(2, 3), "Index": INDEX, "Value": normal(2, 3)},
        {"Axis": 1, "Reduce": "add"},
        "added",
    ),
    Case("share_data", {"X": normal(2, 3)}),
    Case("solve", {"X": positive(3), "Y": normal(3, 2)}),
    Case("triangular_solve", {"X": positive(3), "Y": normal(3, 2)}, {"upper": False}),
    Case("trunc", {"X": normal(2, 3)}),
]

PROVEN = {case.op for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gradient(case, rng):
    testing.check_gradient(case, rng)
