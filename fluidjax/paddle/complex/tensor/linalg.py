"""``paddle.complex.tensor.linalg``: products of complex matrices."""

from __future__ import annotations

from typing import Any

from fluidjax import layers
from fluidjax.framework import ComplexVariable
from fluidjax.paddle.complex.parts import bilinear

__all__ = ["matmul"]


def matmul(
    x: Any, y: Any, transpose_x: bool = False, transpose_y: bool = False, alpha: float = 1.0, name: str | None = None
) -> ComplexVariable:
    """alpha x y, as ``layers.matmul``; transposed operands are not conjugated."""
    return bilinear("matmul", x, y, lambda a, b: layers.matmul(a, b, transpose_x, transpose_y, alpha))
