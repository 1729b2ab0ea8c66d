"""Constants, shapes as values, triangles and grids."""

import numpy as np

from fluidjax.testing.case import case, integers, normal


def _hot(ids, depth):
    return np.eye(depth, dtype=np.float32)[ids]


CASES = [
    case("fill_constant", {}, {"shape": [2, 3], "value": 1.5, "dtype": 6}, reference=lambda **a: np.full((2, 3), 1.5)),
    case(
        "fill_constant",
        {"ShapeTensor": np.array([3], np.int32), "ValueTensor": np.array([2.5])},
        {"dtype": 6},
        "tensors",
        reference=lambda **a: np.full(3, 2.5),
    ),
    case(
        "fill_constant",
        {},
        {"shape": [1], "dtype": 3, "str_value": "9007199254740993"},
        "int64",
        reference=lambda **a: np.array([9007199254740993]),
    ),
    case(
        "fill_constant_batch_size_like",
        {"Input": normal(4, 3)},
        {"shape": [7, 2], "value": 2.0, "dtype": 6},
        reference=lambda Input, **a: np.full((4, 2), 2.0),
    ),
    case("fill_zeros_like", normal(4, 3), reference=lambda X: np.zeros((4, 3))),
    case("fill_zeros_like2", normal(4, 3), {"dtype": 6}, reference=lambda X, dtype: np.zeros((4, 3))),
    case("fill_any_like", normal(4, 3), {"value": 2.0}, reference=lambda X, value: np.full((4, 3), 2.0)),
    case(
        "fill",
        {},
        {"value": [1.0, 2.0, 3.0, 4.0], "shape": [2, 2], "dtype": 6},
        reference=lambda **a: np.array([[1.0, 2.0], [3.0, 4.0]]),
    ),
    case(
        "assign_value",
        {},
        {"shape": [2], "dtype": 2, "int32_values": [4, 5]},
        reference=lambda **a: np.array([4, 5], np.int32),
    ),
    case("shape", {"Input": normal(4, 3)}, reference=lambda Input: np.array([4, 3], np.int32)),
    case("size", {"Input": normal(4, 3)}, reference=lambda Input: np.array([12])),
    case(
        "range",
        {"Start": np.array([1]), "End": np.array([8]), "Step": np.array([3])},
        reference=lambda Start, End, Step: np.array([1, 4, 7]),
    ),
    case("eye", {}, {"num_rows": 2, "num_columns": 3, "dtype": 6}, reference=lambda **a: np.eye(2, 3)),
    case("diag", {"Diagonal": normal(3)}, reference=lambda Diagonal: np.diag(Diagonal)),
    case(
        "diag_embed",
        {"Input": normal(2, 3)},
        {"offset": 1},
        reference=lambda Input, offset: np.stack([np.diag(row, 1) for row in Input]),
    ),
    case("one_hot", integers(0, 5, 4, 1), {"depth": 5}, reference=lambda X, depth: _hot(X[:, 0], 5)),
    case("one_hot_v2", integers(0, 5, 4, 1), {"depth": 5}, reference=lambda X, depth: _hot(X, 5)),
    case("tril_triu", normal(2, 4, 3), {"lower": True, "diagonal": -1}, reference=lambda X, **a: np.tril(X, -1)),
    case("tril_triu", normal(4, 3), {"lower": False}, "upper", reference=lambda X, lower: np.triu(X)),
    case(
        "meshgrid",
        {"X": [normal(2), normal(3)]},
        counts={"Out": 2},
        reference=lambda X: list(np.meshgrid(*X, indexing="ij")),
    ),
]
