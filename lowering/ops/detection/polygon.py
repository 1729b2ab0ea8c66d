"""Polygons to masks, with the boundary rule of the COCO tools: which pixels count as inside is theirs, bit for bit."""

from __future__ import annotations

import numpy as np

# The outline is drawn on a grid this much finer, then sampled at the centres of the pixels.
_FINER = 5.0


def _edge(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Grid points [k, 2] from start to end, one for each step along the longer axis.

    They are computed from the lower end up, whichever way the edge is walked, so that shared edges agree.
    """
    steep = abs(end[1] - start[1]) > abs(end[0] - start[0])
    along, across = (1, 0) if steep else (0, 1)
    back = start[along] > end[along]
    low, high = (end, start) if back else (start, end)
    t = np.arange(high[along] - low[along] + 1)
    slope = (high[across] - low[across]) / max(len(t) - 1, 1)
    points = np.empty((len(t), 2), np.int64)
    points[:, along] = low[along] + t
    points[:, across] = np.trunc(low[across] + slope * t + 0.5)
    return points[::-1] if back else points


def polygon_mask(points: np.ndarray, height: int, width: int) -> np.ndarray:
    """bool [height, width]: the pixels inside the polygon [k, 2] of (x, y) vertices."""
    corners = np.trunc(_FINER * points.astype(np.float64) + 0.5).astype(np.int64)
    outline = np.concatenate([_edge(a, b) for a, b in zip(corners, np.roll(corners, -1, axis=0), strict=True)])
    (u0, v0), (u1, v1) = outline[:-1].T, outline[1:].T
    x = (np.where(u1 < u0, u1, u1 - 1) + 0.5) / _FINER - 0.5
    crossing = (u1 != u0) & (np.floor(x) == x) & (x >= 0) & (x <= width - 1)
    y = np.ceil(np.clip((np.minimum(v0, v1)[crossing] + 0.5) / _FINER - 0.5, 0, height))
    toggles = (x[crossing] * height + y).astype(np.int64)
    inside = np.cumsum(np.bincount(toggles, minlength=height * width + 1))[: height * width] % 2
    return inside.reshape(width, height).T.astype(bool)
