"""``paddle.complex.tensor.manipulation``: complex variables in other shapes."""

from __future__ import annotations

from fluidjax import layers
from fluidjax.framework import ComplexVariable
from fluidjax.paddle.complex.parts import each

__all__ = ["reshape", "transpose"]


def reshape(x: ComplexVariable, shape: list[int], inplace: bool = False, name: str | None = None) -> ComplexVariable:
    """Reshape x, as ``layers.reshape``; ``inplace`` reshapes x itself."""
    made = each("reshape", x, lambda part: layers.reshape(part, shape))
    if not inplace:
        return made
    x.real, x.imag = made.real, made.imag
    return x


def transpose(x: ComplexVariable, perm: list[int], name: str | None = None) -> ComplexVariable:
    """x with its dimensions permuted to ``perm``, without conjugation."""
    return each("transpose", x, lambda part: layers.transpose(part, perm))
