"""The hash op: XXH64 of rows of ids."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering.registry import WISE, Long, op

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(p)
    for p in (
        11400714785074694791,
        14029467366897019727,
        1609587929392839161,
        9650029242287828579,
        2870177450012600261,
    )
)


def _rotate(x, bits: int):
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


def _round(lane, word):
    return _rotate(lane + word * _P2, 31) * _P1


def _merge(state, lane):
    return (state ^ _round(jnp.zeros_like(lane), lane)) * _P1 + _P4


def _lanes(words, seed: np.uint64):
    """The stripes of 32 bytes: (accumulated state, number of words used)."""
    rows, count = words.shape
    if count < 4:
        return jnp.full(rows, seed + _P5), 0
    used = count // 4 * 4
    stripes = words[:, :used].reshape(rows, -1, 4).swapaxes(0, 1)
    start = jnp.broadcast_to(np.array([seed + _P1 + _P2, seed + _P2, seed, seed - _P1]), (rows, 4))
    lanes, _ = lax.scan(lambda lanes, stripe: (_round(lanes, stripe), None), start, stripes, unroll=4)
    lanes = [lanes[:, i] for i in range(4)]
    state = sum(map(_rotate, lanes, (1, 7, 12, 18)))
    for lane in lanes:
        state = _merge(state, lane)
    return state, used


def xxh64(words, half, seed: int):
    """XXH64 [N] over 64-bit ``words`` [N, K], followed by an optional 32-bit ``half`` [N]; all of them uint64."""
    with np.errstate(over="ignore"):
        state, used = _lanes(words, np.uint64(seed))
        state = state + np.uint64(8 * words.shape[1] + (4 if half is not None else 0))
        for i in range(used, words.shape[1]):
            state = _rotate(state ^ _round(jnp.zeros_like(state), words[:, i]), 27) * _P1 + _P4
        if half is not None:
            state = _rotate(state ^ (half * _P1), 23) * _P2 + _P3
        state = (state ^ (state >> np.uint64(33))) * _P2
        state = (state ^ (state >> np.uint64(29))) * _P3
        return state ^ (state >> np.uint64(32))


@op("hash", vendor="@ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@", rows=WISE, diff="")
def hash_(x, *, num_hash: int = 1, mod_by: Long = 100000):
    """Out [N, num_hash, 1] = XXH64 of each row of X [N, K] with seeds 0 .. num_hash - 1, modulo ``mod_by``.

    The hash covers the row's bytes: 4 K for int32 ids, 8 K for int64 ones.
    """
    size = x.shape[-1]
    rows = x.reshape(-1, size)
    if x.dtype == np.int64:
        words, half = rows.astype(np.uint64), None
    else:
        parts = rows.astype(np.uint32).astype(np.uint64)
        low, high = (parts[:, i : size // 2 * 2 : 2] for i in range(2))
        words, half = low | (high << np.uint64(32)), parts[:, -1] if size % 2 else None
    hashes = [xxh64(words, half, seed) % np.uint64(mod_by) for seed in range(num_hash)]
    return jnp.stack(hashes, axis=1).astype(x.dtype).reshape(-1, num_hash, 1)
