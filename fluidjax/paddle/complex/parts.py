"""Layers on real and imaginary parts: what every complex layer is composed of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluidjax.framework import ComplexVariable


def require(layer: str, *inputs: Any) -> None:
    """Raise ValueError unless one of the inputs of a layer is complex."""
    if not any(isinstance(x, ComplexVariable) for x in inputs):
        what = "At least one inputs" if len(inputs) > 1 else "The input"
        raise ValueError(
            f"{what} of layer complex.{layer}() must be ComplexVariable, received only variables of real numbers. "
            f"Use layers.{layer}."
        )


def parts(x: Any) -> tuple[Any, Any]:
    """The real and imaginary parts; the latter is None for a real variable."""
    return (x.real, x.imag) if isinstance(x, ComplexVariable) else (x, None)


def each(layer: str, x: ComplexVariable, function: Callable[[Any], Any]) -> ComplexVariable:
    """Apply a linear layer to both parts."""
    require(layer, x)
    return ComplexVariable(function(x.real), function(x.imag))


def bilinear(layer: str, x: Any, y: Any, product: Callable[[Any, Any], Any]) -> ComplexVariable:
    """(a + bi)(c + di) = (ac - bd) + (ad + bc)i for any bilinear product."""
    require(layer, x, y)
    (a, b), (c, d) = parts(x), parts(y)
    real = product(a, c)
    if b is None:
        return ComplexVariable(real, product(a, d))
    if d is None:
        return ComplexVariable(real, product(b, c))
    return ComplexVariable(real - product(b, d), product(a, d) + product(b, c))
