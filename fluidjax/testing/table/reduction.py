"""Reductions, norms and positions of extrema."""

import numpy as np

from fluidjax.testing.case import away, case, distinct, flags, normal, positive


def _one(v):
    return np.asarray(v).reshape(1)


def _reductions(name, fn, draw):
    return [
        case(name, draw(4, 3), {"dim": [1]}, reference=lambda X, dim: fn(X, axis=1)),
        case(name, draw(4, 3, 2), {"dim": [-1, 0]}, "two", reference=lambda X, dim: fn(X, axis=(0, 2))),
        case(name, draw(4, 3), {"reduce_all": True}, "all", reference=lambda X, reduce_all: _one(fn(X))),
        case(
            name,
            draw(4, 3),
            {"dim": [0], "keep_dim": True},
            "keep",
            reference=lambda X, dim, keep_dim: fn(X, axis=0, keepdims=True),
        ),
        case(name, draw(5), label="vector", reference=lambda X: _one(fn(X))),
    ]


def _frobenius(X, axis=None, keepdims=False):
    return np.sqrt(np.sum(X * X, axis=axis, keepdims=keepdims))


def _p_norm(X, p, axis):
    return np.sum(np.abs(X) ** p, axis) ** (1 / p)


_FNS = (
    ("reduce_sum", np.sum, normal),
    ("reduce_mean", np.mean, normal),
    ("reduce_max", np.max, distinct),
    ("reduce_min", np.min, distinct),
    ("reduce_prod", np.prod, positive),
    ("frobenius_norm", _frobenius, normal),
    ("reduce_all", np.all, flags),
    ("reduce_any", np.any, flags),
)

CASES = [
    *(c for name, fn, draw in _FNS for c in _reductions(name, fn, draw)),
    case("mean", normal(4, 3), reference=lambda X: _one(np.mean(X))),
    case("l1_norm", away((0,), 4, 3), reference=lambda X: _one(np.sum(np.abs(X)))),
    case("squared_l2_norm", normal(4, 3), reference=lambda X: _one(np.sum(X * X))),
    case(
        "norm",
        normal(4, 3),
        {"axis": 1, "epsilon": 0.125},
        reference=lambda X, axis, epsilon: (
            np.sqrt(np.sum(X * X, 1, keepdims=True) + epsilon),
            X / np.sqrt(np.sum(X * X, 1, keepdims=True) + epsilon),
        ),
    ),
    case("p_norm", away((0,), 4, 3), {"porder": 3.0, "axis": 1}, reference=lambda X, porder, axis: _p_norm(X, 3, 1)),
    case(
        "p_norm",
        away((0,), 4, 3),
        {"porder": 0.0, "axis": 0},
        "zero",
        reference=lambda X, porder, axis: np.full(3, 4.0),
    ),
    case("p_norm", distinct(4, 3), {"porder": float("inf")}, "inf", reference=lambda X, porder: np.abs(X).max(-1)),
    case("arg_max", distinct(4, 3), {"axis": 1}, reference=lambda X, axis: X.argmax(1)),
    case("arg_min", distinct(4, 3), {"axis": 0}, reference=lambda X, axis: X.argmin(0)),
]
