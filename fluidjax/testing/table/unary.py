"""Elementary functions."""

import numpy as np

from fluidjax.testing.case import away, between, case, normal, positive

HALVES = tuple(i / 2 for i in range(-7, 8))

CASES = [
    case("sqrt", positive(4, 3), reference=lambda X: np.sqrt(X), twice=True),
    case("rsqrt", positive(4, 3), reference=lambda X: 1 / np.sqrt(X)),
    case("abs", away((0,), 4, 3), reference=lambda X: np.abs(X)),
    case("ceil", away(HALVES, 4, 3), reference=lambda X: np.ceil(X)),
    case("floor", away(HALVES, 4, 3), reference=lambda X: np.floor(X)),
    case("round", away(HALVES, 4, 3), reference=lambda X: np.round(X)),
    case("round", np.array([-1.5, -0.5, 0.5, 1.5, 2.5]), label="halves", reference=lambda X: np.round(X), smooth=False),
    case("cos", normal(4, 3), reference=lambda X: np.cos(X)),
    case("sin", normal(4, 3), reference=lambda X: np.sin(X)),
    case("acos", between(-0.9, 0.9, 4, 3), reference=lambda X: np.arccos(X)),
    case("asin", between(-0.9, 0.9, 4, 3), reference=lambda X: np.arcsin(X)),
    case("atan", normal(4, 3), reference=lambda X: np.arctan(X)),
    case("reciprocal", positive(4, 3), reference=lambda X: 1 / X),
    case("log", positive(4, 3), reference=lambda X: np.log(X)),
    case("log1p", positive(4, 3), reference=lambda X: np.log1p(X)),
    case("square", normal(4, 3), reference=lambda X: X * X, twice=True),
    case("square", np.arange(-3, 3), label="int", reference=lambda X: X * X),
    case("square", normal(0, 3), label="empty", reference=lambda X: X * X),
    case("exp", normal(4, 3), reference=lambda X: np.exp(X)),
    case("exp", np.arange(4), label="int", reference=lambda X: np.exp(X).astype(np.int64)),
    case("erf", normal(4, 3)),
    case("pow", positive(4, 3), {"factor": 2.5}, reference=lambda X, factor: X**factor),
    case(
        "pow",
        {"X": positive(4, 3), "FactorTensor": np.array([1.5])},
        label="tensor",
        reference=lambda X, FactorTensor: X**1.5,
    ),
    case("sign", away((0,), 4, 3), reference=lambda X: np.sign(X)),
]
