"""hash against numbers of Paddle 1.8.5, and by the bytes of its rows."""

import jax
import numpy as np
import pytest

import lowering


def hashed(rows, **attrs):
    with jax.enable_x64(True):
        return np.asarray(lowering.get_op("hash")(rows, num_hash=2, **attrs))[..., 0]


@pytest.mark.parametrize(
    "rows, want",
    [
        (np.array([[1], [77]]), [[61269, 89609], [29089, 73815]]),
        (np.array([[1], [77]], np.int32), [[46897, 53218], [6312, 98441]]),
        (np.arange(9)[None], [[6542, 79253]]),
    ],
)
def test_recorded(rows, want):
    np.testing.assert_array_equal(hashed(rows), want)


def test_equal_bytes_hash_alike():
    """Two int32 ids lie in memory as one int64."""
    pair = np.array([[5, 9], [1, 2]], np.int32)
    np.testing.assert_array_equal(hashed(pair, mod_by=997), hashed(pair.view(np.int64), mod_by=997))


@pytest.mark.parametrize("width", [4, 7, 8, 21, 39])
def test_rows_of_any_width_hash_as_their_bytes_do(rng, width):
    """The stripes of 32 bytes that are hashed in a loop, and what is left of them."""
    ids = rng.integers(0, 2**62, (2, width))
    np.testing.assert_array_equal(hashed(ids.view(np.int32)), hashed(ids))
    np.testing.assert_array_equal(hashed(ids)[:1], _by_numbers(ids[0]) % 100000)


def _by_numbers(words):
    """XXH64 by its specification, seeds 0 and 1, in Python's integers."""
    mask = 2**64 - 1
    p1, p2, p3, p4, p5 = (
        0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
    )  # fmt: skip

    def turned(v, by):
        return (v << by | v >> (64 - by)) & mask

    def mixed(lane, word):
        return turned((lane + word * p2) & mask, 31) * p1 & mask

    def one(seed):
        lanes, rest = [seed + p1 + p2, seed + p2, seed, seed - p1], [int(w) for w in words]
        lanes = [v & mask for v in lanes]
        while len(rest) >= 4:
            lanes, rest = [mixed(v, w) for v, w in zip(lanes, rest, strict=False)], rest[4:]
        state = sum(map(turned, lanes, (1, 7, 12, 18))) & mask
        for lane in lanes:
            state = ((state ^ mixed(0, lane)) * p1 + p4) & mask
        state = ((state if len(words) >= 4 else seed + p5) + 8 * len(words)) & mask
        for word in rest:
            state = (turned(state ^ mixed(0, word), 27) * p1 + p4) & mask
        for shift, factor in ((33, p2), (29, p3)):
            state = (state ^ state >> shift) * factor & mask
        return state ^ state >> 32

    return np.array([[one(seed) for seed in range(2)]], np.uint64)
