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
