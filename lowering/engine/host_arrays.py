"""Host arrays that a CPU device can use without a copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

_ALIGNMENT = 64  # XLA's CPU client copies arrays that are not aligned to this


def zeros(dims: Sequence[int], dtype: Any) -> np.ndarray:
    """An array of zeros in untouched memory: even large ones cost nothing until they are written.

    Optimizers start with two or three zero arrays per parameter, more than the parameters that a startup program draws.
    """
    return _aligned(np.zeros, dims, np.dtype(dtype))


def empty(dims: Sequence[int], dtype: Any) -> np.ndarray:
    """An array whose elements are not set."""
    return _aligned(np.empty, dims, np.dtype(dtype))


def empty_apart(count: int, dims: Sequence[int], dtype: Any) -> np.ndarray:
    """``count`` arrays whose elements are not set, as [count, *dims]: each of them is aligned."""
    size = prod(dims) * np.dtype(dtype).itemsize
    apart = -(-size // _ALIGNMENT) * _ALIGNMENT
    return empty((count, apart), np.uint8)[:, :size].view(dtype).reshape(count, *dims)


def _aligned(made: Callable[..., np.ndarray], dims: Sequence[int], dtype: np.dtype) -> np.ndarray:
    size = prod(dims) * dtype.itemsize
    memory = made(size + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return memory[begin : begin + size].view(dtype).reshape(dims)


def used_in_place(array: np.ndarray) -> bool:
    """Whether a CPU device computes on this memory itself, for as long as it holds the array."""
    return array.ctypes.data % _ALIGNMENT == 0 and array.flags.c_contiguous
