"""Products and convolutions in the precision of their operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax

T = TypeVar("T")


def in_full_precision(function: Callable[..., T], *args: Any) -> T:
    """``function(*args)``; the products traced in it round no operand.

    Left to itself XLA rounds float32 operands to 10 bits (TF32) for the matrix units of a GPU, and to 7 (bfloat16) for
    those of a TPU: relative errors of 3e-4 and more, where Fluid on a GPU has 1e-7. Who wants that speed sets
    ``jax_default_matmul_precision``, jax's own switch, which is left alone if it is set.
    """
    chosen = jax.default_matmul_precision
    if chosen.value is not None:
        return function(*args)
    before = chosen.get_local()
    try:
        chosen.set_local("highest")
        return function(*args)
    finally:
        chosen.set_local(before)
