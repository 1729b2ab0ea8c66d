"""Random numbers that compile a handful of kernels, whatever the shapes.

A startup program initialises hundreds of parameters of different shapes. Each draw asks one of the shared kernels
for a power-of-two number of values and takes the first ones, so a program run op by op compiles one kernel per
(distribution, bucket) and not one per shape. Inside a trace the same code is fused by XLA. Both give the same
values for the same key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SMALLEST_BUCKET = 1 << 10
COARSEST_POWER = 1 << 22


def bucket(size: int) -> int:
    """The number of values drawn for ``size``: a power of two, or three quarters of one when large."""
    power = max(SMALLEST_BUCKET, 1 << max(size - 1, 0).bit_length())
    if power > COARSEST_POWER and size <= power // 4 * 3:
        return power // 4 * 3
    return power


_kernel = partial(jax.jit, static_argnames=("count", "dtype"))


@_kernel
def _uniform(key: Any, low: Any, high: Any, *, count: int, dtype: Any) -> Any:
    return jax.random.uniform(key, (count,), dtype) * (high - low) + low


@_kernel
def _normal(key: Any, mean: Any, std: Any, *, count: int, dtype: Any) -> Any:
    return jax.random.normal(key, (count,), dtype) * std + mean


@_kernel
def _truncated_normal(key: Any, mean: Any, std: Any, *, count: int, dtype: Any) -> Any:
    return jax.random.truncated_normal(key, -2, 2, (count,), dtype) * std + mean


@_kernel
def _integers(key: Any, low: Any, high: Any, *, count: int, dtype: Any) -> Any:
    return jax.random.randint(key, (count,), low, high, dtype)


def _draw(kernel: Callable[..., Any], key: Any, shape: Sequence[int], dtype: Any, *params: Any) -> Any:
    shape = tuple(int(n) for n in shape)
    dtype = np.dtype(dtype)
    size = prod(shape)
    with jax.threefry_partitionable(True):
        flat = kernel(key, *(np.asarray(p, dtype) for p in params), count=bucket(size), dtype=dtype)
    if isinstance(flat, jax.core.Tracer):
        return flat[:size].reshape(shape)
    return jnp.asarray(np.asarray(flat)[:size].reshape(shape))


def uniform(key: Any, shape: Sequence[int], dtype: Any, low: float = 0.0, high: float = 1.0) -> Any:
    """Values from [low, high)."""
    return _draw(_uniform, key, shape, dtype, low, high)


def normal(key: Any, shape: Sequence[int], dtype: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    """Values from N(mean, std ** 2)."""
    return _draw(_normal, key, shape, dtype, mean, std)


def truncated_normal(key: Any, shape: Sequence[int], dtype: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    """Values from N(mean, std ** 2) that lie within two standard deviations."""
    return _draw(_truncated_normal, key, shape, dtype, mean, std)


def integers(key: Any, shape: Sequence[int], dtype: Any, low: int, high: int) -> Any:
    """Integers from [low, high)."""
    return _draw(_integers, key, shape, dtype, low, high)


def permutation(key: Any, count: int) -> Any:
    """A permutation of 0 .. count - 1, int32."""
    span = np.iinfo(np.int64)
    return jnp.argsort(integers(key, (count,), np.int64, span.min, span.max)).astype(np.int32)
