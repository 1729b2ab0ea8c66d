"""Host arrays that a CPU device can use without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

_ALIGNMENT = 64  # XLA's CPU client copies arrays that are not aligned to this
_COPIED_AT_ONCE = 100 * 1024  # bytes: it copies smaller ones in the call


def zeros(dims: Sequence[int], dtype: Any) -> np.ndarray:
    """An array of zeros in untouched memory: even large ones cost nothing until they are written.

    Optimizers start with two or three zero arrays per parameter, more than the parameters that a startup program draws.
    """
    dtype = np.dtype(dtype)
    size = prod(dims) * dtype.itemsize
    memory = np.zeros(size + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return memory[begin : begin + size].view(dtype).reshape(dims)


def used_in_place(array: np.ndarray) -> bool:
    """Whether a CPU device computes on this memory itself, for as long as it holds the array."""
    return array.ctypes.data % _ALIGNMENT == 0 and array.flags.c_contiguous


def usable_in_place(array: np.ndarray) -> np.ndarray:
    """The array, or a copy of it that a CPU device can use without another one.

    A large array that XLA has to copy is copied by a thread of XLA's own, and the step that waits for it runs there,
    too: two threads more have to wake, and work on memory that is in the cache of another processor.
    """
    if array.nbytes < _COPIED_AT_ONCE or used_in_place(array):
        return array
    copy = _empty(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy


def _empty(dims: Sequence[int], dtype: np.dtype) -> np.ndarray:
    size = prod(dims) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return memory[begin : begin + size].view(dtype).reshape(dims)
