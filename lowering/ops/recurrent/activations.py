"""The activations that recurrent ops take by name, and their slopes in terms of the activated value."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from lowering.ops.math.extrema import at_least
from lowering.values import Array

Function = Callable[[Array], Array]

# Fluid's recurrent kernels clamp the argument of the sigmoid to this range, which shows from the seventh digit on.
_SIGMOID_RANGE = (-40.0, 13.0)


def _clamped_sigmoid(x: Array) -> Array:
    return jax.nn.sigmoid(jnp.clip(x, *_SIGMOID_RANGE))


_ACTIVATIONS: dict[str, tuple[Function, Function]] = {
    "sigmoid": (_clamped_sigmoid, lambda y: y * (1 - y)),
    "logistic": (jax.nn.sigmoid, lambda y: y * (1 - y)),
    "tanh": (jnp.tanh, lambda y: 1 - y * y),
    "relu": (lambda x: at_least(x, 0), lambda y: (y > 0).astype(y.dtype)),
    "identity": (lambda x: x, jnp.ones_like),
}
# gru_unit numbers its activations; its sigmoid is not clamped.
NUMBERED = ("identity", "logistic", "tanh", "relu")


def activation(name: str) -> Function:
    """The function called ``name``; ValueError when there is none."""
    return _find(name)[0]


def slope(name: str) -> Function:
    """The derivative of the activation as a function of its result."""
    return _find(name)[1]


def _find(name: str) -> tuple[Function, Function]:
    found = _ACTIVATIONS.get(name or "identity")
    if found is None:
        raise ValueError(f"activation {name!r} is unknown; expected one of {sorted(_ACTIVATIONS)}")
    return found
