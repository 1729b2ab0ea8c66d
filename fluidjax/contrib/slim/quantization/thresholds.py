"""Thresholds for quantization: larger magnitudes are clipped."""

from __future__ import annotations

import numpy as np

_BINS, _LEVELS = 2048, 255


def kl_threshold(values: np.ndarray) -> float:
    """The threshold at which a 255-level histogram best approximates one of 2048 bins, by Kullback-Leibler divergence.

    Args:
        values: nonnegative magnitudes, any shape.
    """
    flat = values.ravel()
    low, high = flat.min(), flat.max()
    counts, edges = np.histogram(flat, bins=_BINS, range=(low, high))
    first, last = int((_BINS - 1) * 0.7), _BINS - 1
    tried = [at for at in range(first, last + 1) if counts[at - 1]]
    best = min(tried, key=lambda at: _divergence(counts, at, flat.size), default=0)
    if best == 0:
        best = next((at for at in range(first, 0, -1) if counts[at]), 0)
    return float((best + 0.5) * (edges[1] - edges[0]))


def _divergence(counts: np.ndarray, at: int, total: int) -> float:
    """Divergence of the first ``at`` bins, the last including the tail, from their means over 255 levels."""
    kept = counts[:at].astype(np.float64)
    kept[-1] += counts[at:].sum()
    coarse = _coarse(counts[:at], kept != 0)
    there = kept != 0
    p, q = kept[there], coarse[there]
    return (_sum(p * np.log(_sum(coarse) * p)) - _sum(p * np.log(total * q))) / total


def _coarse(counts: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Each bin's mean over the nonempty bins of its level; the last level takes the remainder."""
    level = np.minimum(np.arange(len(counts)) // (len(counts) // _LEVELS), _LEVELS - 1)
    sums = np.bincount(level, counts, _LEVELS)
    filled = np.bincount(level, there, _LEVELS)
    return np.where(there, sums[level] / np.maximum(filled[level], 1), 0.0)


def _sum(values: np.ndarray) -> float:
    """Sum from first to last: the order of summation in Fluid, which decides between equally good thresholds."""
    return float(np.cumsum(values)[-1])


def rare_threshold(values: np.ndarray, rate: float, bins: int = 5000) -> float:
    """The magnitude exceeded by at most a fraction ``rate`` of the values, to the resolution of ``bins`` bins."""
    sizes = np.abs(values)
    counts, edges = np.histogram(sizes, bins=bins, range=(0, np.max(sizes)))
    shares = np.cumsum(counts / float(counts.sum()))
    at = int(np.argmax(shares >= 1.0 - rate)) + 1 if shares[-1] >= 1.0 - rate else bins
    return float(at * (edges[1] - edges[0]))
