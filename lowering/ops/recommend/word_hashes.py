"""XXH32 and MurmurHash3 (x64, 128 bits) over whole 32-bit words, element by element of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from lowering.values import Array

_P1, _P2, _P3, _P4, _P5 = (np.uint32(p) for p in (2654435761, 2246822519, 3266489917, 668265263, 374761393))
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_MIX1, _MIX2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)


def _rotate32(x: Array, bits: int) -> Array:
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))


def _rotate64(x: Array, bits: int) -> Array:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


def _stripes(words: Sequence[Array], seed: Array) -> tuple[Array, int]:
    """The state after all stripes of four words, and how many words they took."""
    if len(words) < 4:
        return seed + _P5, 0
    lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
    used = len(words) // 4 * 4
    for i in range(used):
        lanes[i % 4] = _rotate32(lanes[i % 4] + words[i] * _P2, 13) * _P1
    turned = [_rotate32(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)]
    return turned[0] + turned[1] + turned[2] + turned[3], used


def xxh32(words: Sequence[Array], seed: Array) -> Array:
    """XXH32 of the bytes of uint32 ``words``; ``seed`` is a uint32 array that broadcasts with them."""
    seed = jnp.asarray(seed)
    state, used = _stripes(words, seed)
    state = state + np.uint32(4 * len(words))
    for word in words[used:]:
        state = _rotate32(state + word * _P3, 17) * _P4
    state = (state ^ (state >> np.uint32(15))) * _P2
    state = (state ^ (state >> np.uint32(13))) * _P3
    return state ^ (state >> np.uint32(16))


def _finish(state: Array) -> Array:
    state = (state ^ (state >> np.uint64(33))) * _MIX1
    state = (state ^ (state >> np.uint64(33))) * _MIX2
    return state ^ (state >> np.uint64(33))


def _low(word: Array) -> Array:
    return _rotate64(word * _C1, 31) * _C2


def _high(word: Array) -> Array:
    return _rotate64(word * _C2, 33) * _C1


def _long(words: Sequence[Array]) -> Array:
    """One or two uint32 words as a uint64, the lower address first."""
    wide = [w.astype(jnp.uint64) for w in words]
    return wide[0] if len(wide) == 1 else wide[0] | (wide[1] << np.uint64(32))


def murmur3_128(words: Sequence[Array], seed: Array) -> tuple[Array, Array]:
    """The two uint64 halves of MurmurHash3_x64_128 of the bytes of uint32 ``words``; ``seed`` is a uint64 scalar."""
    h1: Any = jnp.broadcast_to(seed, words[0].shape)
    h2, whole = h1, len(words) // 4 * 4
    for i in range(0, whole, 4):
        h1 = _rotate64(h1 ^ _low(_long(words[i : i + 2])), 27)
        h1 = (h1 + h2) * np.uint64(5) + np.uint64(0x52DCE729)
        h2 = _rotate64(h2 ^ _high(_long(words[i + 2 : i + 4])), 31)
        h2 = (h2 + h1) * np.uint64(5) + np.uint64(0x38495AB5)
    tail, size = words[whole:], np.uint64(4 * len(words))
    if len(tail) > 2:
        h2 = h2 ^ _high(_long(tail[2:]))
    if len(tail):
        h1 = h1 ^ _low(_long(tail[:2]))
    h1, h2 = h1 ^ size, h2 ^ size
    h1 = h1 + h2
    h2 = h2 + h1
    h1, h2 = _finish(h1), _finish(h2)
    h1 = h1 + h2
    return h1, h2 + h1
