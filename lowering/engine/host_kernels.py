"""The draws of ``host_bits``, to the last bit, in a quarter of the time: compiled kernels, not passes over memory.

They take an eighth of a second to compile, so they are for processes that draw many values: a startup program with a
hundred million parameters. NumPy rounds a product before adding to it, where XLA fuses the two; so each
product is XORed with zeros that the compiler cannot see. The logarithm stays NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering.engine import host_bits

COUNT = 1 << 17  # values per call: few enough for the cache, enough to amortise the call
WORTH = 1 << 24  # NumPy draws this many while the kernels compile
_ZEROS = np.uint32(0)
# XLA uses only half of AVX-512's registers, since using them once slowed processors down; that takes 1.8 times as long.
_kernel = partial(jax.jit, compiler_options={"xla_cpu_prefer_vector_width": 512})


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


@_kernel
def _uniform(first: Any, second: Any, begin: Any, low: Any, high: Any, zeros: Any) -> Any:
    mantissas = (_bits(first, second, begin) >> 9) | jnp.uint32(0x3F800000)
    numbers = lax.bitcast_convert_type(mantissas, jnp.float32) - 1
    return jnp.maximum(_rounded(numbers * (high - low), zeros) + low, low)


def _polynomial(coefficients: tuple[float, ...], w: Any, zeros: Any) -> Any:
    p = jnp.full_like(w, np.float32(coefficients[0]))
    for c in coefficients[1:]:
        p = _rounded(p * w, zeros) + np.float32(c)
    return p


@_kernel
def _deviates(x: Any, log: Any, bound: Any, scale: Any, offset: Any, zeros: Any) -> Any:
    """erf_inv(x) and the scaling after it; ``log`` is log1p(-x * x)."""
    w = -log
    tail = _polynomial(host_bits.TAIL, jnp.sqrt(w) - 3, zeros)
    p = jnp.where(w >= 5, tail, _polynomial(host_bits.CENTRE, w - np.float32(2.5), zeros))
    y = _rounded(_rounded(p * x, zeros) * host_bits.SQRT2, zeros)
    return _rounded(jnp.clip(y, -bound, bound) * scale, zeros) + offset


def draw(name: str, key: np.ndarray, begin: int, out: np.ndarray, scale: np.float32, offset: np.float32) -> None:
    """``host_bits.draw`` of at most ``COUNT`` values."""
    low, high, bound = host_bits.DISTRIBUTIONS[name]
    with jax.ensure_compile_time_eval():
        drawn = _uniform(key[0], key[1], np.uint32(begin), np.float32(low), np.float32(high), _ZEROS)
        x = np.asarray(drawn)
        if bound is None:
            np.multiply(x[: out.size], scale, out=out)
            out += offset
            return
        log = x * x
        np.log1p(np.negative(log, out=log), out=log)
        out[:] = np.asarray(_deviates(drawn, log, np.float32(bound), scale, offset, _ZEROS))[: out.size]


class _Cheapest:
    """Switches to the kernels once the process has drawn, or is known to draw, enough to pay for their compilation."""

    def __init__(self) -> None:
        self._drawn = 0

    def expect(self, size: int) -> None:
        """Announce how many values are about to be drawn."""
        if size > WORTH:
            self._drawn = max(self._drawn, WORTH)

    def __call__(self, size: int) -> Callable[..., None]:
        """The function that draws this many values: ``draw`` or that of ``host_bits``."""
        self._drawn += size
        return draw if size > COUNT // 4 and self._drawn > WORTH else host_bits.draw


cheapest = _Cheapest()
