"""Host arrays that a CPU device can use without a copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any

import jax
import numpy as np
from jaxlib.xla_client import batched_device_put

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


def to_device(array: np.ndarray, *, copy: bool = False) -> Any:
    """``jax.device_put(array)`` in a tenth of its time, as a startup program moves hundreds of arrays.

    Args:
        array: of any dtype that jax has under its present settings; others are converted as jax does.
        copy: whether the device must not use the array's own memory.
    """
    device = jax.config.jax_default_device or jax.local_devices()[0]  # type: ignore[attr-defined]
    wide: bool = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    if not isinstance(device, jax.Device) or (array.dtype.itemsize > 4 and not wide):
        return jax.device_put(array, may_alias=False) if copy else jax.device_put(array)
    form = jax.core.ShapedArray(array.shape, array.dtype)
    return batched_device_put(form, _sharding(device), [array], [device], False, copy)


@cache
def _sharding(device: jax.Device) -> Any:
    return jax.sharding.SingleDeviceSharding(device)
