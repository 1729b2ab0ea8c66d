"""Products of matrices and vectors."""

import numpy as np

from fluidjax.testing.case import case, normal


def _xy(x, y):
    return {"X": x, "Y": y}


def _bilinear(X, Y, Weight, Bias):
    return np.einsum("bm,kmn,bn->bk", X, Weight, Y) + Bias


def _shifted(X, Y):
    m, n = X.shape[1], Y.shape[1]
    return np.array(
        [[sum(x[(i + j - n // 2) % m] * y[j] for j in range(n)) for i in range(m)] for x, y in zip(X, Y, strict=True)]
    )


def _cosine(X, Y):
    xn, yn = (np.linalg.norm(v, axis=1, keepdims=True) for v in (X, Y))
    return (X * Y).sum(1, keepdims=True) / (xn * yn), xn, yn


CASES = [
    case("mul", _xy(normal(4, 3), normal(3, 2)), reference=lambda X, Y: X @ Y, twice=True),
    case("mul", _xy(normal(2, 1024), normal(1024, 256)), label="wide", reference=lambda X, Y: X @ Y),
    case("mul", _xy(normal(4, 3), normal(3, 1)), label="one-column", reference=lambda X, Y: X @ Y),
    case(
        "mul",
        _xy(normal(2, 3, 2), normal(3, 2, 4)),
        {"x_num_col_dims": 1, "y_num_col_dims": 2},
        "dims",
        reference=lambda X, Y, **a: X.reshape(2, 6) @ Y.reshape(6, 4),
    ),
    case("matmul", _xy(normal(4, 3), normal(3, 2)), reference=lambda X, Y: X @ Y),
    case(
        "matmul",
        _xy(normal(2, 3, 4), normal(2, 5, 3)),
        {"transpose_X": True, "transpose_Y": True, "alpha": 0.5},
        "both",
        reference=lambda X, Y, **a: 0.5 * X.swapaxes(1, 2) @ Y.swapaxes(1, 2),
    ),
    case("matmul", _xy(normal(2, 3, 4), normal(4, 5)), label="broadcast", reference=lambda X, Y: X @ Y),
    case("matmul", _xy(normal(4), normal(4)), label="vectors", reference=lambda X, Y: np.array([X @ Y])),
    case("matmul", _xy(normal(2, 3, 4), normal(4)), label="column", reference=lambda X, Y: X @ Y),
    case("matmul", _xy(normal(0, 3), normal(3, 2)), label="empty", reference=lambda X, Y: X @ Y),
    case("bmm", _xy(normal(2, 3, 4), normal(2, 4, 5)), reference=lambda X, Y: X @ Y),
    case(
        "addmm",
        {"Input": normal(1, 2), "X": normal(4, 3), "Y": normal(3, 2)},
        {"Alpha": 0.5, "Beta": 2.0},
        reference=lambda Input, X, Y, Alpha, Beta: Beta * Input + Alpha * X @ Y,
    ),
    case("dot", _xy(normal(4, 3), normal(4, 3)), reference=lambda X, Y: (X * Y).sum(-1, keepdims=True)),
    case("dot", _xy(normal(3), normal(3)), label="vectors", reference=lambda X, Y: np.array([X @ Y])),
    case("kron", _xy(normal(2, 3), normal(3, 2)), reference=lambda X, Y: np.kron(X, Y)),
    case("cross", _xy(normal(4, 3), normal(4, 3)), reference=lambda X, Y: np.cross(X, Y)),
    case(
        "cross", _xy(normal(3, 3), normal(3, 3)), {"dim": 0}, "dim", reference=lambda X, Y, dim: np.cross(X, Y, axis=0)
    ),
    case(
        "bilinear_tensor_product",
        {"X": normal(4, 3), "Y": normal(4, 2), "Weight": normal(5, 3, 2), "Bias": normal(1, 5)},
        reference=_bilinear,
    ),
    case("conv_shift", _xy(normal(2, 5), normal(2, 3)), reference=_shifted),
    case("cos_sim", _xy(normal(4, 3), normal(4, 3)), reference=_cosine),
    case("cos_sim", _xy(normal(4, 3), normal(1, 3)), label="one-row", reference=_cosine),
    case("trace", {"Input": normal(4, 3)}, reference=lambda Input: np.array([np.trace(Input)])),
    case(
        "trace",
        {"Input": normal(2, 4, 3)},
        {"offset": 1, "dim1": 1, "dim2": 2},
        "batch",
        reference=lambda Input, offset, dim1, dim2: np.trace(Input, 1, 1, 2),
    ),
]
