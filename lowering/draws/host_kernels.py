"""The draws of ``host_bits``, to the last bit, in a quarter of the time: compiled kernels, not passes over memory.

They take a tenth of a second to compile, so they are for processes that draw many values: a startup program with a
hundred million parameters; and to load, where another process has left them, a twentieth of that. They are compiled
once, for the host, and called as executables: jax's own cache of jitted functions would compile them again in each
context, and threads that help to draw are in another one (64-bit types, default device) than the thread that runs a
program.

NumPy rounds a product before adding to it, where XLA fuses the two; so each product is XORed with zeros that the
compiler cannot see. The logarithm stays NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering.draws import host_bits

COUNT = 1 << 17  # values per call: few enough for the cache, enough to amortise the call
WORTH = 1 << 24  # NumPy draws this many while the kernels compile
LOADED = 1 << 23  # the first process compiles them for the next ones: two of these draws pay for that
_ZEROS = np.uint32(0)
# XLA uses only half of AVX-512's registers, since using them once slowed processors down; that takes 1.8 times as long.
OPTIONS = {"xla_cpu_prefer_vector_width": 512}


def _rounded(product: Any, zeros: Any) -> Any:
    return lax.bitcast_convert_type(lax.bitcast_convert_type(product, jnp.uint32) ^ zeros, jnp.float32)


def _bits(first: Any, second: Any, begin: Any) -> Any:
    y = jnp.arange(COUNT, dtype=jnp.uint32) + begin + second
    x = jnp.full_like(y, first)
    for rotations, to_x, to_y, turn in host_bits.schedule(first, second):
        for by in rotations:
            x += y
            y = (y << by) | (y >> (32 - by))
            y ^= x
        x += to_x
        y += to_y + jnp.uint32(turn)
    return x ^ y


def _uniform(first: Any, second: Any, begin: Any, low: Any, high: Any, zeros: Any) -> Any:
    mantissas = (_bits(first, second, begin) >> 9) | jnp.uint32(0x3F800000)
    numbers = lax.bitcast_convert_type(mantissas, jnp.float32) - 1
    return jnp.maximum(_rounded(numbers * (high - low), zeros) + low, low)


def _polynomial(coefficients: tuple[float, ...], w: Any, zeros: Any) -> Any:
    p = jnp.full_like(w, np.float32(coefficients[0]))
    for c in coefficients[1:]:
        p = _rounded(p * w, zeros) + np.float32(c)
    return p


def _deviates(x: Any, log: Any, bound: Any, scale: Any, offset: Any, zeros: Any) -> Any:
    """erf_inv(x) and the scaling after it; ``log`` is log1p(-x * x)."""
    w = -log
    tail = _polynomial(host_bits.TAIL, jnp.sqrt(w) - 3, zeros)
    p = jnp.where(w >= 5, tail, _polynomial(host_bits.CENTRE, w - np.float32(2.5), zeros))
    y = _rounded(_rounded(p * x, zeros) * host_bits.SQRT2, zeros)
    return _rounded(jnp.clip(y, -bound, bound) * scale, zeros) + offset


class Kernels(NamedTuple):
    """``_uniform`` and ``_deviates``, compiled for the host."""

    uniform: Callable[..., Any]
    deviates: Callable[..., Any]


def traces() -> tuple[Any, Any]:
    """What ``Kernels`` are compiled from, with ``OPTIONS`` (``jax.stages.Traced``)."""
    host = jax.sharding.SingleDeviceSharding(jax.local_devices(backend="cpu")[0])
    word, number, many = (
        jax.ShapeDtypeStruct(s, t) for s, t in (((), "uint32"), ((), "float32"), ((COUNT,), "float32"))
    )

    def traced(function: Callable[..., Any], *given: Any) -> Any:
        return jax.jit(function, in_shardings=host, out_shardings=host).trace(*given)

    uniform = traced(_uniform, word, word, word, number, number, word)
    return uniform, traced(_deviates, many, many, number, number, number, word)


@cache
def kernels() -> Kernels:
    """The kernels, compiled here."""
    return Kernels(*(trace.lower().compile(OPTIONS) for trace in traces()))


def draw(name: str, key: np.ndarray, begin: int, out: np.ndarray, scale: np.float32, offset: np.float32) -> None:
    """``host_bits.draw`` of at most ``COUNT`` values."""
    low, high, bound = host_bits.DISTRIBUTIONS[name]
    uniform, deviates = cheapest.kernels or kernels()
    drawn = uniform(key[0], key[1], np.uint32(begin), np.float32(low), np.float32(high), _ZEROS)
    x = np.asarray(drawn)
    if bound is None:
        np.multiply(x[: out.size], scale, out=out)
        out += offset
        return
    log = x * x
    np.log1p(np.negative(log, out=log), out=log)
    out[:] = np.asarray(deviates(drawn, log, np.float32(bound), scale, offset, _ZEROS))[: out.size]


class _Cheapest:
    """Switches to the kernels once the process has drawn, or is known to draw, enough to pay for their compilation; or
    for loading them.

    Attributes:
        left: finds the kernels that another process has left; asked once they are worth loading.
        kernels: what it found.
    """

    def __init__(self) -> None:
        self._drawn = self._expected = 0
        self.left: Callable[[], Kernels | None] | None = None
        self.kernels: Kernels | None = None

    def expect(self, size: int) -> None:
        """Announce how many values are about to be drawn."""
        self._expected = size

    def __call__(self, size: int) -> Callable[..., None]:
        """The function that draws this many values: ``draw`` or that of ``host_bits``."""
        self._drawn += size
        total = max(self._drawn, self._expected)
        if size <= COUNT // 4 or not self._have(total):
            return host_bits.draw
        return draw

    def _have(self, total: int) -> bool:
        """Whether there are kernels, which threads will ask for at once, for a process that draws so many values."""
        if self.kernels is None and self.left is not None and total > LOADED:
            self.kernels = self.left()
        if self.kernels is None and total > WORTH:
            kernels()
        return self.kernels is not None or total > WORTH


cheapest = _Cheapest()
