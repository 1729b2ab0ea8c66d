"""Row capacities: a ragged batch is padded to the next bucket, so that one compilation serves many batches."""

from __future__ import annotations

import numpy as np

# Tiny batches share the smallest bucket.
SMALLEST = 8


def bucket(n: int) -> int:
    """The smallest of {2^k, 3 * 2^(k-1)} that is at least ``n`` (and at least ``SMALLEST``).

    From ``SMALLEST`` on less than a third of the rows are padding, as neighbours are in a ratio of at most 3 / 2; and
    up to size n there are only about 2 log2(n) buckets to compile for.
    """
    if n <= SMALLEST:
        return SMALLEST
    power = 1 << (n - 1).bit_length()
    return power * 3 // 4 if n <= power * 3 // 4 else power


def pad_rows(data: np.ndarray, capacity: int) -> np.ndarray:
    """``data`` with copies of its first row appended (I1); zeros when there is no row at all."""
    rows = data.shape[0]
    if rows == capacity:
        return data
    padded = np.empty((capacity, *data.shape[1:]), data.dtype)
    padded[:rows] = data
    padded[rows:] = data[0] if rows else 0
    return padded


def pad_offsets(offsets: np.ndarray, count: int) -> np.ndarray:
    """Offsets of ``count`` sequences, the last offset repeated: the added sequences are empty."""
    return np.concatenate([offsets, np.full(count + 1 - len(offsets), offsets[-1], offsets.dtype)])
