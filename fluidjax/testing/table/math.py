"""Sums, scaling, clipping, running sums, tests for finite values."""

import numpy as np

from fluidjax.testing.case import away, case, flags, normal

CASES = [
    case("scale", normal(4, 3), {"scale": 2.0, "bias": 0.5}, reference=lambda X, scale, bias: scale * X + bias),
    case(
        "scale",
        normal(4, 3),
        {"scale": 2.0, "bias": 0.5, "bias_after_scale": False},
        "before",
        reference=lambda X, scale, bias, bias_after_scale: scale * (X + bias),
    ),
    case(
        "scale",
        {"X": normal(4, 3), "ScaleTensor": np.array([3.0])},
        label="tensor",
        reference=lambda X, ScaleTensor: 3 * X,
    ),
    case("scale", np.arange(4), {"scale": 2.5}, "int", reference=lambda X, scale: 2 * X),
    case("sum", {"X": [normal(4, 3), normal(4, 3), normal(4, 3)]}, reference=lambda X: sum(X)),
    case("sum", {"X": [normal(4, 3)]}, label="one", reference=lambda X: X[0]),
    case("increment", np.array([2.0]), {"step": 0.5}, reference=lambda X, step: X + step, smooth=False),
    case("clip", away((-1, 1), 4, 3), {"min": -1.0, "max": 1.0}, reference=lambda X, min, max: np.clip(X, min, max)),
    case("cumsum", normal(4, 3), reference=lambda X: np.cumsum(X, -1)),
    case(
        "cumsum",
        normal(4, 3),
        {"axis": 0, "exclusive": True, "reverse": True},
        "odd",
        reference=lambda X, **a: np.cumsum(X[::-1], 0)[::-1] - X,
    ),
    case("isfinite", np.array([1.0, np.inf]), reference=lambda X: np.array([False])),
    case("isinf", np.array([1.0, np.inf]), reference=lambda X: np.array([True])),
    case("isnan", np.array([1.0, np.inf]), reference=lambda X: np.array([False])),
    case(
        "allclose",
        {"Input": np.array([1.0, 2.0]), "Other": np.array([1.0, 2.0 + 1e-7])},
        reference=lambda Input, Other: np.array([True]),
    ),
    *(
        case(
            "dist",
            {"X": away((0,), 4, 3), "Y": np.zeros((1, 3))},
            {"p": p},
            f"{p:g}",
            reference=lambda X, Y, p: np.array([np.linalg.norm((X - Y).reshape(-1), p)]),
        )
        for p in (0.0, 1.0, 2.0, 3.0, float("inf"), -float("inf"))
    ),
    case("cast", normal(4, 3), {"in_dtype": 6, "out_dtype": 3}, "int", reference=lambda X, **a: X.astype(np.int64)),
    case("cast", normal(4, 3), {"in_dtype": 6, "out_dtype": 6}, reference=lambda X, **a: X),
    case("assign", normal(4, 3), reference=lambda X: X),
    case("assign", flags(3), label="bool", reference=lambda X: X),
]
