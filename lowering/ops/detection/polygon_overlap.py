"""How much convex polygons overlap."""

from __future__ import annotations

import numpy as np


def _signed_area(points: np.ndarray) -> float:
    x, y = points[:, 0], points[:, 1]
    return float(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)) / 2)


def _clipped(points: list[np.ndarray], a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    """The part of a polygon to the left of the line from a to b (Sutherland-Hodgman)."""

    def side(p: np.ndarray) -> float:
        return float((b[0] - a[0]) * (p[1] - a[1]) - (b[1] - a[1]) * (p[0] - a[0]))

    found = []
    for p, q in zip(points, points[1:] + points[:1], strict=True):
        if side(p) >= 0:
            found.append(p)
        if side(p) * side(q) < 0:
            found.append(p + (q - p) * (side(p) / (side(p) - side(q))))
    return found


def polygon_overlap(one: np.ndarray, two: np.ndarray) -> float:
    """Intersection over union of two convex polygons [k, 2]."""
    one, two = (p.astype(np.float64) if _signed_area(p) >= 0 else p[::-1].astype(np.float64) for p in (one, two))
    common = list(one)
    for a, b in zip(two, np.roll(two, -1, axis=0), strict=True):
        common = _clipped(common, a, b)
    shared = _signed_area(np.asarray(common)) if len(common) > 2 else 0.0
    total = _signed_area(one) + _signed_area(two) - shared
    return shared / total if total > 0 else 0.0
