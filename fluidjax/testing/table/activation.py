"""Activations."""

import numpy as np

from fluidjax.testing.case import away, case, distinct, normal


def _sigmoid(v):
    return 1 / (1 + np.exp(-v))


def _softplus(v):
    return np.log1p(np.exp(v))


CASES = [
    case("relu", away((0,), 4, 3), reference=lambda X: np.maximum(X, 0), twice=True),
    case("sigmoid", normal(4, 3), reference=lambda X: _sigmoid(X)),
    case("logsigmoid", normal(4, 3), reference=lambda X: np.log(_sigmoid(X))),
    case("tanh", normal(4, 3), reference=lambda X: np.tanh(X)),
    case("tanh_shrink", normal(4, 3), reference=lambda X: X - np.tanh(X)),
    case(
        "softshrink",
        away((-0.4, 0.4), 4, 3),
        {"lambda": 0.4},
        reference=lambda X, **a: np.sign(X) * np.maximum(np.abs(X) - np.float32(a["lambda"]), 0),
    ),
    case("hard_shrink", away((-0.5, 0.5), 4, 3), reference=lambda X: np.where(np.abs(X) > 0.5, X, 0)),
    case(
        "brelu",
        away((-1, 1), 4, 3),
        {"t_min": -1.0, "t_max": 1.0},
        reference=lambda X, t_min, t_max: np.clip(X, t_min, t_max),
    ),
    case("relu6", away((0, 1.5), 4, 3), {"threshold": 1.5}, reference=lambda X, threshold: np.clip(X, 0, threshold)),
    case(
        "leaky_relu",
        away((0,), 4, 3),
        {"alpha": 0.125},
        reference=lambda X, alpha: np.maximum(X, alpha * X),
        twice=True,
    ),
    case(
        "elu",
        away((0,), 4, 3),
        {"alpha": 0.5},
        reference=lambda X, alpha: np.where(X > 0, X, alpha * np.expm1(X)),
        twice=True,
    ),
    case("gelu", normal(4, 3)),
    case("gelu", normal(4, 3), {"approximate": True}, "tanh"),
    case(
        "selu",
        away((0,), 4, 3),
        {"scale": 1.25, "alpha": 0.5},
        reference=lambda X, scale, alpha: scale * np.where(X > 0, X, alpha * np.expm1(X)),
    ),
    case(
        "soft_relu",
        away((-1.5, 1.5), 4, 3),
        {"threshold": 1.5},
        reference=lambda X, threshold: _softplus(np.clip(X, -threshold, threshold)),
        smooth=False,
    ),
    case("soft_relu", normal(4, 3), label="wide", reference=lambda X: _softplus(X)),
    case("softplus", normal(4, 3), reference=lambda X: _softplus(X)),
    case("softsign", away((0,), 4, 3), reference=lambda X: X / (1 + np.abs(X))),
    case(
        "stanh",
        normal(4, 3),
        {"scale_a": 0.5, "scale_b": 2.0},
        reference=lambda X, scale_a, scale_b: scale_b * np.tanh(scale_a * X),
    ),
    case("swish", normal(4, 3), {"beta": 0.5}, reference=lambda X, beta: X * _sigmoid(beta * X)),
    case(
        "hard_sigmoid",
        away((-2.5, 2.5), 4, 3),
        {"slope": 0.2, "offset": 0.5},
        rtol=1e-6,
        reference=lambda X, slope, offset: np.clip(slope * X + offset, 0, 1),
    ),
    case("hard_swish", away((-3, 3), 4, 3), reference=lambda X: X * np.clip(X + 3, 0, 6) / 6),
    case("thresholded_relu", away((1,), 4, 3), reference=lambda X: np.where(X > 1, X, 0)),
    case("mish", normal(4, 3), reference=lambda X: X * np.tanh(_softplus(X))),
    case("softmax", normal(4, 3), reference=lambda X: np.exp(X) / np.exp(X).sum(-1, keepdims=True)),
    case(
        "softmax",
        normal(4, 3, 2),
        {"axis": 1},
        "axis",
        reference=lambda X, axis: np.exp(X) / np.exp(X).sum(axis, keepdims=True),
    ),
    case("maxout", distinct(2, 4, 3, 2), {"groups": 2}, reference=lambda X, groups: X.reshape(2, 2, 2, 3, 2).max(2)),
    case(
        "maxout",
        distinct(2, 3, 2, 4),
        {"groups": 2, "axis": 3},
        "last",
        reference=lambda X, groups, axis: X.reshape(2, 3, 2, 2, 2).max(4),
    ),
    case(
        "prelu",
        {"X": away((0,), 4, 3), "Alpha": normal(1)},
        {"mode": "all"},
        reference=lambda X, Alpha, mode: np.where(X > 0, X, Alpha * X),
    ),
    case(
        "prelu",
        {"X": away((0,), 2, 3, 2, 2), "Alpha": normal(1, 3, 1, 1)},
        {"mode": "channel"},
        "channel",
        reference=lambda X, Alpha, mode: np.where(X > 0, X, Alpha * X),
    ),
    case(
        "prelu",
        {"X": away((0,), 2, 3, 2), "Alpha": normal(1, 3, 2)},
        {"mode": "element"},
        "element",
        reference=lambda X, Alpha, mode: np.where(X > 0, X, Alpha * X),
    ),
]
