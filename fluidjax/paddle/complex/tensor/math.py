"""``paddle.complex.tensor.math``: arithmetic of complex variables."""

from __future__ import annotations

from typing import Any

from fluidjax import layers
from fluidjax.framework import ComplexVariable
from fluidjax.paddle.complex.parts import bilinear, each, parts, require

__all__ = [
    "elementwise_add",
    "elementwise_div",
    "elementwise_mul",
    "elementwise_sub",
    "kron",
    "sum",
    "trace",
]


def _sum(name: str, x: Any, y: Any, axis: int) -> ComplexVariable:
    """x + y or x - y: a missing part counts as zeros and determines the shape of the result."""
    require(name, x, y)
    layer = getattr(layers, name)
    (a, b), (c, d) = parts(x), parts(y)
    imag = layer(layers.zeros_like(a) if b is None else b, layers.zeros_like(c) if d is None else d, axis=axis)
    return ComplexVariable(layer(a, c, axis=axis), imag)


def elementwise_add(x: Any, y: Any, axis: int = -1, name: str | None = None) -> ComplexVariable:
    """x + y; ``axis`` aligns y as in ``layers.elementwise_add``."""
    return _sum("elementwise_add", x, y, axis)


def elementwise_sub(x: Any, y: Any, axis: int = -1, name: str | None = None) -> ComplexVariable:
    """x - y; ``axis`` aligns y as in ``layers.elementwise_sub``."""
    return _sum("elementwise_sub", x, y, axis)


def elementwise_mul(x: Any, y: Any, axis: int = -1, name: str | None = None) -> ComplexVariable:
    """x * y; ``axis`` aligns y as in ``layers.elementwise_mul``."""
    return bilinear("elementwise_mul", x, y, lambda a, b: layers.elementwise_mul(a, b, axis=axis))


def elementwise_div(x: Any, y: Any, axis: int = -1, name: str | None = None) -> ComplexVariable:
    """x / y = x conj(y) / |y|^2; ``axis`` aligns y as in ``layers.elementwise_div``."""
    require("elementwise_div", x, y)
    c, d = parts(y)
    if d is None:
        return each("elementwise_div", x, lambda part: layers.elementwise_div(part, c, axis=axis))
    norm = layers.square(c) + layers.square(d)
    return elementwise_mul(x, ComplexVariable(c / norm, layers.scale(d, -1.0) / norm), axis=axis)


def kron(x: Any, y: Any, name: str | None = None) -> ComplexVariable:
    """The Kronecker product, as ``layers.kron``."""
    return bilinear("kron", x, y, layers.kron)


def sum(
    input: ComplexVariable, dim: int | list[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> ComplexVariable:
    """The sum over ``dim`` (over all elements if None), as ``layers.reduce_sum``."""
    return each("sum", input, lambda part: layers.reduce_sum(part, dim, keep_dim))


def trace(
    input: ComplexVariable, offset: int = 0, dim1: int = 0, dim2: int = 1, name: str | None = None
) -> ComplexVariable:
    """The sum of a diagonal, as ``layers.trace``."""
    return each("trace", input, lambda part: layers.trace(part, offset, dim1, dim2))
