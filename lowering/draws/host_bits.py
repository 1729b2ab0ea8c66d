"""Threefry 2x32 and the distributions drawn from it, in NumPy, without any compilation.

Threefry is of J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011); the rotations, the parity word
of the key schedule and the 20 rounds, in five groups of four, are theirs.

A startup program draws each parameter once, and compiling even one kernel takes XLA longer than drawing millions of
values on the host. The bits are those of ``jax.random`` for the same key. Values are those of the kernels in
``random_bits`` up to rounding, because XLA fuses multiplication and addition and has a logarithm of its own.

A host key is a uint32 array [2], which ``jax.random`` also accepts.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import erf
from typing import Any, NamedTuple

import numpy as np

_WORD = 0xFFFFFFFF
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
# Values hashed at a time: few enough for the cache, enough to amortise NumPy's call overhead.
_BLOCK = 1 << 15

# M. Giles, "Approximating the erfinv function", single precision; highest power first.
CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip


def is_host_key(key: Any) -> bool:
    """Whether ``key`` is drawn from on the host."""
    return type(key) is np.ndarray


def key_of(seed: int) -> np.ndarray:
    """The host key of a seed: the contents of ``jax.random.key(seed)``."""
    return np.array([seed >> 32 & _WORD, seed & _WORD], np.uint32)


def schedule(first: Any, second: Any) -> Iterator[tuple[tuple[int, ...], Any, Any, int]]:
    """Five groups of rounds: (rotations, the words of the key added to x and y after them, the number added to y)."""
    words = (first, second, first ^ second ^ _PARITY)
    for turn in range(5):
        yield _ROTATIONS[turn % 2], words[(turn + 1) % 3], words[(turn + 2) % 3], turn + 1


def _hash(key: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both words of threefry2x32(key, (0, count)) for each count."""
    first, second = (int(word) for word in key)
    x, y = np.full(counts.shape, first, np.uint32), counts + np.uint32(second)
    high = np.empty_like(y)
    for rotations, to_x, to_y, turn in schedule(first, second):
        for by in rotations:
            x += y
            np.right_shift(y, 32 - by, out=high)
            y <<= by
            y |= high
            y ^= x
        x += np.uint32(to_x)
        y += np.uint32((to_y + turn) & _WORD)
    return x, y


def fold_in(key: np.ndarray, data: int) -> np.ndarray:
    """``jax.random.fold_in`` of a host key: ``_hash`` of one number, in a tenth of NumPy's time for it."""
    first, second = (int(word) for word in key)
    x, y = first, data + second & _WORD
    for rotations, to_x, to_y, turn in schedule(first, second):
        for by in rotations:
            x = x + y & _WORD
            y = (y << by & _WORD | y >> 32 - by) ^ x
        x, y = x + to_x & _WORD, y + to_y + turn & _WORD
    return np.array([x, y], np.uint32)


def bits(key: np.ndarray, begin: int, count: int) -> np.ndarray:
    """Values ``begin`` to ``begin + count`` of ``jax.random.bits(key)``, uint32."""
    out = np.empty(count, np.uint32)
    for at in range(0, count, _BLOCK):
        part = out[at : at + _BLOCK]
        first = begin + at
        np.bitwise_xor(*_hash(key, np.arange(first, first + part.size, dtype=np.uint32)), out=part)
    return out


# Arrays are changed in place from here on: creating a new one costs as much as the arithmetic on it.


def _unit(words: np.ndarray) -> np.ndarray:
    """float32 in [0, 1): the words' upper 23 bits, as the mantissa of a number in [1, 2), less 1."""
    mantissas = words >> 9
    mantissas |= np.uint32(0x3F800000)
    numbers = mantissas.view(np.float32)
    numbers -= np.float32(1)
    return numbers


def _between(words: np.ndarray, low: float, high: float) -> np.ndarray:
    low32, high32 = np.float32(low), np.float32(high)
    numbers = _unit(words)
    numbers *= high32 - low32
    numbers += low32
    return np.maximum(numbers, low32, out=numbers)


def _polynomial(coefficients: tuple[float, ...], w: np.ndarray) -> np.ndarray:
    p = np.full_like(w, coefficients[0])
    for c in coefficients[1:]:
        p *= w
        p += np.float32(c)
    return p


def erf_inv(x: np.ndarray) -> np.ndarray:
    """The inverse error function of float32 values in (-1, 1)."""
    w = x * x
    np.negative(w, out=w)
    np.negative(np.log1p(w, out=w), out=w)
    far = np.flatnonzero(w >= 5)
    tail = np.sqrt(w[far]) - np.float32(3)
    w -= np.float32(2.5)
    p = _polynomial(CENTRE, w)
    p[far] = _polynomial(TAIL, tail)
    p *= x
    return p


SQRT2 = np.float32(np.sqrt(2))


class Distribution(NamedTuple):
    """A standard distribution: uniform values from [low, high); with a ``bound``, sqrt(2) erf_inv of them within it."""

    low: float
    high: float
    bound: float | None = None


_EDGE = erf(2 / np.sqrt(2))
DISTRIBUTIONS = {
    "uniform": Distribution(0, 1),
    "normal": Distribution(np.nextafter(np.float32(-1), np.float32(0)), 1, np.inf),
    "truncated_normal": Distribution(-_EDGE, _EDGE, np.nextafter(np.float32(2), np.float32(0))),
}


def _standard(words: np.ndarray, of: Distribution) -> np.ndarray:
    x = _between(words, of.low, of.high)
    if of.bound is None:
        return x
    x = erf_inv(x)
    x *= SQRT2
    return np.clip(x, -of.bound, of.bound, out=x)


def draw(name: str, key: np.ndarray, begin: int, out: np.ndarray, scale: np.float32, offset: np.float32) -> None:
    """Fill ``out`` with float32 values ``begin`` ... of a standard distribution by its name, times ``scale`` plus
    ``offset``.
    """
    words = bits(key, begin, out.size)
    for at in range(0, out.size, _BLOCK):
        part = out[at : at + _BLOCK]
        np.multiply(_standard(words[at : at + _BLOCK], DISTRIBUTIONS[name]), scale, out=part)
        part += offset
