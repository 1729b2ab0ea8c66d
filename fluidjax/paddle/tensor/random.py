"""``paddle.tensor.random``: drawn numbers."""

from __future__ import annotations

from typing import Any

from fluidjax import layers
from fluidjax.io import shuffle
from fluidjax.paddle.tensor.at_once import surface, surfaces

__all__ = ["rand", "randint", "randn", "randperm", "shuffle"]

randint, randn, randperm = surfaces(layers, "randint randn randperm")


@surface
def rand(shape: Any, out: Any = None, dtype: Any = None, device: str | None = None, stop_gradient: bool = True) -> Any:
    """Numbers drawn evenly from [0, 1).

    Args:
        shape: a list, or a Variable.
        out: a variable that is to hold them.
        dtype: float32 or float64; that of ``out`` or float32 where it is not given.
        device: 'cpu', 'gpu' or None; XLA places values.
        stop_gradient: whether gradients stop there.
    """
    dtype = dtype or ("float32" if out is None else out.dtype)
    if device not in (None, "cpu", "gpu"):
        raise ValueError(f"rand: there is no device {device!r}. Expected 'cpu' or 'gpu'. Leave it out.")
    found = layers.uniform_random(shape, dtype, min=0.0, max=1.0)
    found.stop_gradient = stop_gradient
    return found if out is None else layers.assign(found, out)
