"""Random numbers from a small, fixed set of compiled kernels, whatever the shapes.

A startup program initialises hundreds of parameters of different shapes, op by op. Each draw consists of chunks of one
of three sizes, chunk ``i`` from the key folded with ``i``, of which the first values are taken: this needs three
kernels per distribution rather than one per shape. Inside a trace all chunks are drawn at once. The values depend only
on the key and the number of values.

From a host key (see ``host_bits``) float32 values are drawn by NumPy or, if there are many, by kernels that give the
values (``host_kernels``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lowering.draws import host_bits, host_kernels
from lowering.extend import extend
from lowering.host_arrays import to_device
from lowering.machine import processors
from lowering.sizes.counts import RowSize
from lowering.symbols import is_symbol

CHUNKS = (1 << 12, 1 << 15, 1 << 18)


def chunk_of(size: int) -> int:
    """The size of the chunks in which ``size`` values are drawn."""
    return next((c for c in CHUNKS if size <= c), CHUNKS[-1])


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


def seed_key(seed: int, *, host: bool) -> Any:
    """The key of an op's own seed."""
    return host_bits.key_of(seed) if host else jax.random.key(seed)


def fold_in(key: Any, data: int) -> Any:
    """``key`` folded with a number, on the host if the key is there."""
    return host_bits.fold_in(key, data) if host_bits.is_host_key(key) else jax.random.fold_in(key, data)


def device_key(key: Any) -> Any:
    """``key`` as JAX's own draws take it."""
    if not host_bits.is_host_key(key):
        return key
    return jax.random.wrap_key_data(jax.device_put(key), impl="threefry2x32")


_ON_HOST = {_uniform: "uniform", _normal: "normal", _truncated_normal: "truncated_normal"}


def _draw_on_host(name: str, key: np.ndarray, size: int, params: Sequence[Any]) -> np.ndarray:
    first, second = params
    scale, offset = (second - first, first) if name == "uniform" else (second, first)
    out = np.empty(size, np.float32)
    draw = host_kernels.cheapest(size)

    def piece(begin: int) -> None:
        chunk, within = divmod(begin, CHUNKS[-1])
        part = out[begin : begin + host_kernels.COUNT]
        draw(name, host_bits.fold_in(key, chunk), within, part, scale, offset)

    begins = range(0, size, host_kernels.COUNT)
    if len(begins) == 1:
        piece(0)
    else:
        with ThreadPoolExecutor(processors()) as pool:  # NumPy and XLA release the GIL
            list(pool.map(piece, begins))
    return out


def _draw(kernel: Callable[..., Any], key: Any, shape: Sequence[int], dtype: Any, *params: Any) -> Any:
    key = key.key if isinstance(key, Placed) else key
    if any(isinstance(n, RowSize) for n in shape):
        return _draw_with_room(kernel, device_key(key), shape, dtype, [np.asarray(p, dtype) for p in params])
    if any(map(is_symbol, shape)):
        return _draw_open(kernel, key, tuple(shape), dtype, [np.asarray(p, dtype) for p in params])
    shape = tuple(int(n) for n in shape)
    dtype = np.dtype(dtype)
    size = prod(shape)
    count = chunk_of(size)
    chunks = max(1, -(-size // count))
    given = [np.asarray(p, dtype) for p in params]
    if host_bits.is_host_key(key):
        if dtype == np.float32 and kernel in _ON_HOST:
            drawn = _draw_on_host(_ON_HOST[kernel], key, size, given)
            # A device that used NumPy's memory directly could not write the first step's parameters there.
            return to_device(drawn.reshape(shape), copy=True)
        key = device_key(key)

    def chunk(i: Any) -> Any:
        return kernel(jax.random.fold_in(key, i), *given, count=count, dtype=dtype)

    if isinstance(key, jax.core.Tracer):
        flat = chunk(0) if chunks == 1 else jax.vmap(chunk)(jnp.arange(chunks)).reshape(-1)
        return flat[:size].reshape(shape)
    flat = np.concatenate([np.asarray(chunk(i)) for i in range(chunks)])
    return jax.device_put(flat[:size].reshape(shape))


def _draw_with_room(kernel: Callable[..., Any], key: Any, shape: Sequence[int], dtype: Any, given: list[Any]) -> Any:
    """What the sizes that a run uses draw, at the places that it uses of these; copies of some of it at the others.

    The number of values decides the size of the chunks, so each size that it may have is drawn apart.
    """
    room, at, used = prod(shape), jnp.zeros((), np.int64), jnp.ones((), np.int64)
    for dim in reversed(range(len(shape))):
        at = at + np.arange(shape[dim]).reshape((-1,) + (1,) * (len(shape) - dim - 1)) * used
        size = shape[dim]
        used = used * (size.nrows if isinstance(size, RowSize) else size)
    counts = CHUNKS[: CHUNKS.index(chunk_of(room)) + 1]

    def values(count: int) -> Any:
        chunks = -(-room // count) if count == CHUNKS[-1] else 1
        keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(chunks))
        flat = jax.vmap(lambda k: kernel(k, *given, count=count, dtype=np.dtype(dtype)))(keys).reshape(-1)
        return jnp.take(flat, jnp.broadcast_to(at, shape), mode="clip")

    if len(counts) == 1:
        return values(counts[0])
    which = sum(((used > count).astype(np.int32) for count in counts[:-1]), np.int32(0))
    return jax.lax.switch(which, [partial(values, count) for count in counts])


def uniform(key: Any, shape: Sequence[int], dtype: Any, low: float = 0.0, high: float = 1.0) -> Any:
    """Values from [low, high)."""
    return _draw(_uniform, key, shape, dtype, low, high)


def normal(key: Any, shape: Sequence[int], dtype: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    """Values from N(mean, std ** 2)."""
    return _draw(_normal, key, shape, dtype, mean, std)


def truncated_normal(key: Any, shape: Sequence[int], dtype: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    """Values from N(mean, std ** 2) truncated to two standard deviations."""
    return _draw(_truncated_normal, key, shape, dtype, mean, std)


def integers(key: Any, shape: Sequence[int], dtype: Any, low: int, high: int) -> Any:
    """Integers from [low, high)."""
    return _draw(_integers, key, shape, dtype, low, high)


class Placed(NamedTuple):
    """A key for a draw whose value ``i`` goes to the elements where ``places`` (uint32) is i."""

    key: Any
    places: Any


def bits(key: Any, shape: Sequence[int]) -> Any:
    """uint32[shape]; from a ``Placed`` key, the bits that a draw of another shape has at these positions."""
    if not isinstance(key, Placed):
        return jax.random.bits(key, shape, jnp.uint32)
    places = key.places.reshape(-1)
    pairs = jnp.concatenate([jnp.zeros_like(places), places])
    high, low = extend().random.threefry_2x32(jax.random.key_data(key.key), pairs).reshape(2, -1)
    return (high ^ low).reshape(shape)


def _draw_open(kernel: Callable[..., Any], key: Any, shape: tuple[Any, ...], dtype: Any, given: list[Any]) -> Any:
    """Values of a shape whose sizes are symbols: in chunks of the smallest size, as those of small shapes are."""
    count, size = CHUNKS[0], prod(shape)

    def chunk(i: Any) -> Any:
        return kernel(jax.random.fold_in(key, i), *given, count=count, dtype=np.dtype(dtype))

    flat = jax.vmap(chunk)(jnp.arange(size // count + 1)).reshape(-1)
    return jnp.take(flat, jnp.arange(size), mode="clip").reshape(shape)


def permutation(key: Any, count: int) -> Any:
    """A permutation of 0 .. count - 1, int32."""
    span = np.iinfo(np.int64)
    return jnp.argsort(integers(key, (count,), np.int64, span.min, span.max)).astype(np.int32)
