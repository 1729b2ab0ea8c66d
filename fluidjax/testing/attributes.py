"""Strategies for cases with random attributes that differ from the defaults and from the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fluidjax.testing.case import Case, away, case, normal, positive

# Numbers that float32 attributes hold exactly, so that a reference gets what the op gets. The first is drawn first.
PARAMETER = st.one_of(st.just(float(np.float32(0.3))), st.floats(0.25, 2.0, width=32))
# At most 1: above it max(x, slope * x) takes the other side, and its gradient, Fluid's, does not.
SLOPE = st.one_of(st.just(float(np.float32(0.3))), st.floats(0.125, 1.0, width=32))
NEGATIVE = PARAMETER.map(lambda value: -value)

Drawn = Mapping[str, st.SearchStrategy[Any]]
Kinks = Callable[..., tuple[float, ...]]


def _exponential(X: np.ndarray, alpha: float) -> np.ndarray:
    return np.where(X > 0, X, alpha * np.expm1(X))


def _scaled(X: np.ndarray, scale: float, bias: float, bias_after_scale: bool) -> np.ndarray:
    return scale * X + bias if bias_after_scale else scale * (X + bias)


def _at_zero(**attrs: float) -> tuple[float, ...]:
    return (0.0,)


def _none(**attrs: float) -> tuple[float, ...]:
    return ()


# op -> its attributes, where the function has kinks, the function. ``pow`` is drawn apart: it takes positive numbers.
_POINTWISE: dict[str, tuple[Drawn, Kinks, Callable[..., Any]]] = {
    "leaky_relu": ({"alpha": SLOPE}, _at_zero, lambda X, alpha: np.where(X > 0, X, alpha * X)),
    "elu": ({"alpha": PARAMETER}, _at_zero, _exponential),
    "relu6": (
        {"threshold": PARAMETER},
        lambda threshold: (0.0, threshold),
        lambda X, threshold: np.clip(X, 0, threshold),
    ),
    "brelu": (
        {"t_min": NEGATIVE, "t_max": PARAMETER},
        lambda t_min, t_max: (t_min, t_max),
        lambda X, t_min, t_max: np.clip(X, t_min, t_max),
    ),
    "clip": (
        {"min": NEGATIVE, "max": PARAMETER},
        lambda min, max: (min, max),
        lambda X, min, max: np.clip(X, min, max),
    ),
    "softshrink": (
        {"lambda": PARAMETER},
        lambda **a: (-a["lambda"], a["lambda"]),
        lambda X, **a: np.sign(X) * np.maximum(np.abs(X) - a["lambda"], 0),
    ),
    "hard_shrink": (
        {"threshold": PARAMETER},
        lambda threshold: (-threshold, threshold),
        lambda X, threshold: np.where(np.abs(X) > threshold, X, 0),
    ),
    "thresholded_relu": (
        {"threshold": PARAMETER},
        lambda threshold: (threshold,),
        lambda X, threshold: np.where(X > threshold, X, 0),
    ),
    "swish": ({"beta": PARAMETER}, _none, lambda X, beta: X / (1 + np.exp(-beta * X))),
    "stanh": (
        {"scale_a": PARAMETER, "scale_b": PARAMETER},
        _none,
        lambda X, scale_a, scale_b: scale_b * np.tanh(scale_a * X),
    ),
    "hard_sigmoid": (
        {"slope": PARAMETER, "offset": PARAMETER},
        lambda slope, offset: (-offset / slope, (1 - offset) / slope),
        lambda X, slope, offset: np.clip(slope * X + offset, 0, 1),
    ),
    "scale": ({"scale": PARAMETER, "bias": NEGATIVE, "bias_after_scale": st.booleans()}, _none, _scaled),
}


@st.composite
def _pointwise_case(draw: Any, op: str) -> Case:
    attrs, kinks, function = _POINTWISE[op]
    drawn = {name: draw(strategy) for name, strategy in attrs.items()}
    return case(op, away(kinks(**drawn), 3, 4), drawn, reference=function)


@st.composite
def _pow_case(draw: Any, op: str) -> Case:
    return case(op, positive(3, 4), {"factor": draw(PARAMETER | NEGATIVE)}, reference=lambda X, factor: X**factor)


@st.composite
def _softmax_case(draw: Any, op: str) -> Case:
    """Any axis, the first one first."""
    ndim = draw(st.integers(2, 4))
    axis = draw(st.sampled_from([*range(ndim), *range(-ndim, 0)]))

    def reference(X: np.ndarray, axis: int) -> np.ndarray:
        powers = np.exp(X)
        return powers / powers.sum(axis, keepdims=True)

    return case(op, normal(*(4, 3, 2, 2)[:ndim]), {"axis": axis}, reference=reference)


@st.composite
def _mul_case(draw: Any, op: str) -> Case:
    """Tensors with 2 to 4 dimensions, flattened to matrices after any of them."""
    inner = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    left = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    right = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    other = draw(st.sampled_from((inner, [int(np.prod(inner))])))
    attrs = {"x_num_col_dims": len(left), "y_num_col_dims": len(other)}

    def reference(X: np.ndarray, Y: np.ndarray, **attrs: int) -> np.ndarray:
        size = int(np.prod(inner))
        return (X.reshape(-1, size) @ Y.reshape(size, -1)).reshape(*left, *right)

    return case(op, {"X": normal(*left, *inner), "Y": normal(*other, *right)}, attrs, reference=reference)


@st.composite
def _cube_case(draw: Any, op: str) -> Case:
    """Equal sides, so that shapes do not reveal a wrong permutation. One that is not its own inverse comes first."""
    axis = draw(st.sampled_from([(1, 2, 0), (2, 0, 1), (0, 2, 1), (1, 2, 3, 0), (2, 0, 3, 1)]))
    side = draw(st.integers(2, 3))
    return case(op, normal(*(side,) * len(axis)), {"axis": list(axis)}, reference=lambda X, axis: X.transpose(axis))


ATTRIBUTED: dict[str, Callable[..., st.SearchStrategy[Case]]] = {
    **dict.fromkeys(_POINTWISE, _pointwise_case),
    "pow": _pow_case,
    "softmax": _softmax_case,
    "mul": _mul_case,
    "transpose": _cube_case,
    "transpose2": _cube_case,
}
