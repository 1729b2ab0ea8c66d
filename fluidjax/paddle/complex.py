"""``paddle.complex``: layers on ComplexVariables, composed of real ones. Real operands are accepted too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluidjax import layers
from fluidjax.framework import ComplexVariable

__all__ = [
    "elementwise_add",
    "elementwise_div",
    "elementwise_mul",
    "elementwise_sub",
    "kron",
    "matmul",
    "reshape",
    "sum",
    "trace",
    "transpose",
]


def _require(layer: str, *inputs: Any) -> None:
    if not any(isinstance(x, ComplexVariable) for x in inputs):
        what = "At least one inputs" if len(inputs) > 1 else "The input"
        raise ValueError(
            f"{what} of layer complex.{layer}() must be ComplexVariable, received only variables of real numbers. "
            f"Use layers.{layer}."
        )


def _parts(x: Any) -> tuple[Any, Any]:
    """The real and imaginary parts; the latter is None for a real variable."""
    return (x.real, x.imag) if isinstance(x, ComplexVariable) else (x, None)


def _each(layer: str, x: ComplexVariable, function: Callable[[Any], Any]) -> ComplexVariable:
    """Apply a linear layer to both parts."""
    _require(layer, x)
    return ComplexVariable(function(x.real), function(x.imag))


def _bilinear(layer: str, x: Any, y: Any, product: Callable[[Any, Any], Any]) -> ComplexVariable:
    """(a + bi)(c + di) = (ac - bd) + (ad + bc)i for any bilinear product."""
    _require(layer, x, y)
    (a, b), (c, d) = _parts(x), _parts(y)
    real = product(a, c)
    if b is None:
        return ComplexVariable(real, product(a, d))
    if d is None:
        return ComplexVariable(real, product(b, c))
    return ComplexVariable(real - product(b, d), product(a, d) + product(b, c))


def _sum(name: str, x: Any, y: Any, axis: int) -> ComplexVariable:
    """x + y or x - y: a missing part counts as zeros and determines the shape of the result."""
    _require(name, x, y)
    layer = getattr(layers, name)
    (a, b), (c, d) = _parts(x), _parts(y)
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
    return _bilinear("elementwise_mul", x, y, lambda a, b: layers.elementwise_mul(a, b, axis=axis))


def elementwise_div(x: Any, y: Any, axis: int = -1, name: str | None = None) -> ComplexVariable:
    """x / y = x conj(y) / |y|^2; ``axis`` aligns y as in ``layers.elementwise_div``."""
    _require("elementwise_div", x, y)
    c, d = _parts(y)
    if d is None:
        return _each("elementwise_div", x, lambda part: layers.elementwise_div(part, c, axis=axis))
    norm = layers.square(c) + layers.square(d)
    return elementwise_mul(x, ComplexVariable(c / norm, layers.scale(d, -1.0) / norm), axis=axis)


def kron(x: Any, y: Any, name: str | None = None) -> ComplexVariable:
    """The Kronecker product, as ``layers.kron``."""
    return _bilinear("kron", x, y, layers.kron)


def matmul(
    x: Any, y: Any, transpose_x: bool = False, transpose_y: bool = False, alpha: float = 1.0, name: str | None = None
) -> ComplexVariable:
    """alpha x y, as ``layers.matmul``; transposed operands are not conjugated."""
    return _bilinear("matmul", x, y, lambda a, b: layers.matmul(a, b, transpose_x, transpose_y, alpha))


def reshape(x: ComplexVariable, shape: list[int], inplace: bool = False, name: str | None = None) -> ComplexVariable:
    """Reshape x, as ``layers.reshape``; ``inplace`` reshapes x itself."""
    made = _each("reshape", x, lambda part: layers.reshape(part, shape))
    if not inplace:
        return made
    x.real, x.imag = made.real, made.imag
    return x


def transpose(x: ComplexVariable, perm: list[int], name: str | None = None) -> ComplexVariable:
    """x with its dimensions permuted to ``perm``, without conjugation."""
    return _each("transpose", x, lambda part: layers.transpose(part, perm))


def sum(
    input: ComplexVariable, dim: int | list[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> ComplexVariable:
    """The sum over ``dim`` (over all elements if None), as ``layers.reduce_sum``."""
    return _each("sum", input, lambda part: layers.reduce_sum(part, dim, keep_dim))


def trace(
    input: ComplexVariable, offset: int = 0, dim1: int = 0, dim2: int = 1, name: str | None = None
) -> ComplexVariable:
    """The sum of a diagonal, as ``layers.trace``."""
    return _each("trace", input, lambda part: layers.trace(part, offset, dim1, dim2))
