"""Boxes (x0, y0, x1, y1) that cover whole pixels, so a side is x1 - x0 + 1: NumPy helpers of the detection host ops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from lowering.values import LoDArray, data_of, exact

# exp() of a predicted size is bounded by this growth of a side.
_MOST_GROWTH = float(np.log(1000.0 / 16.0))


def sides(boxes: Any, pixel: int = 1) -> tuple[Any, Any]:
    """Widths and heights of boxes [k, 4]; ``pixel`` 0 where x1 is the edge, not the last pixel."""
    return boxes[:, 2] - boxes[:, 0] + pixel, boxes[:, 3] - boxes[:, 1] + pixel


def pairwise(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """[R, C]: intersection over union of each of [R, 4] with each of [C, 4]."""
    low = np.maximum(rows[:, None, :2], columns[None, :, :2])
    high = np.minimum(rows[:, None, 2:], columns[None, :, 2:])
    extent = np.maximum(high - low + 1, 0)
    common = extent[..., 0] * extent[..., 1]
    (w, h), (v, g) = sides(rows), sides(columns)
    total = (w * h)[:, None] + (v * g)[None, :] - common
    return np.where(common == 0, 0, common / np.where(common == 0, 1, total)).astype(rows.dtype)


def encode(boxes: np.ndarray, targets: np.ndarray, weights: Sequence[float] | None = None) -> np.ndarray:
    """[k, 4]: what moves each box to its target, (dx / w, dy / h, log(w'/w), log(h'/h)), each over its weight."""
    (w, h), (v, g) = sides(boxes), sides(targets)
    dx = (targets[:, 0] + 0.5 * v) - (boxes[:, 0] + 0.5 * w)
    dy = (targets[:, 1] + 0.5 * g) - (boxes[:, 1] + 0.5 * h)
    deltas = np.stack([dx / w, dy / h, np.log(v / w), np.log(g / h)], axis=1)
    if weights is not None:
        deltas = deltas / np.asarray(weights, boxes.dtype)
    return deltas.astype(boxes.dtype)


def decode(anchors: Any, deltas: Any, *, bounded: bool, pixel: int = 1, numpy: Any = np) -> Any:
    """The boxes [k, 4] that ``encode`` gives deltas for; ``bounded`` limits how much a side may grow."""
    w, h = sides(anchors, pixel)
    growth = numpy.minimum(deltas[:, 2:], _MOST_GROWTH) if bounded else deltas[:, 2:]
    x, y = deltas[:, 0] * w + (anchors[:, 0] + 0.5 * w), deltas[:, 1] * h + (anchors[:, 1] + 0.5 * h)
    v, g = numpy.exp(growth[:, 0]) * w, numpy.exp(growth[:, 1]) * h
    return numpy.stack([x - v / 2, y - g / 2, x + v / 2 - pixel, y + g / 2 - pixel], axis=1).astype(anchors.dtype)


def clipped(boxes: Any, height: Any, width: Any, pixel: int = 1, numpy: Any = np) -> Any:
    """Boxes moved into an image."""
    limit = numpy.asarray([width - pixel, height - pixel] * 2, boxes.dtype)
    return numpy.clip(boxes, 0, numpy.maximum(limit, 0))


def large_enough(boxes: Any, info: Any, min_size: float) -> Any:
    """Which boxes are at least ``min_size`` wide and high in the unscaled image, and have their centre inside."""
    height, width, scale = info[0], info[1], info[2]
    least = max(min_size, 1.0)
    w, h = sides(boxes)
    inside = (boxes[:, 0] + w / 2 <= width) & (boxes[:, 1] + h / 2 <= height)
    return inside & ((w - 1) / scale + 1 >= least) & ((h - 1) / scale + 1 >= least)


def large_enough_v2(boxes: Any, shape: Any, min_size: float, pixel: int) -> Any:
    """Which boxes are at least ``min_size`` wide and high; those in whole pixels must have their centre inside, too."""
    w, h = sides(boxes, pixel)
    large = (w >= max(min_size, 1.0)) & (h >= max(min_size, 1.0))
    if pixel:
        large &= (boxes[:, 0] + w / 2 <= shape[1]) & (boxes[:, 1] + h / 2 <= shape[0])
    return large


def images(value: Any) -> Iterator[np.ndarray]:
    """The rows of each image: the sequences of the finest LoD level, or all rows when there is no LoD."""
    value = exact(value)
    data = np.asarray(data_of(value))
    if not (isinstance(value, LoDArray) and value.lod):
        yield data
        return
    ends = np.asarray(value.lod[-1])
    for start, end in zip(ends[:-1], ends[1:], strict=True):
        yield data[start:end]


def joined(parts: Sequence[np.ndarray], dtype: Any = None) -> LoDArray:
    """Rows of all images, one after another, under one LoD level."""
    offsets = np.cumsum([0, *(len(part) for part in parts)]).astype(np.int32)
    rows = np.concatenate(list(parts))
    return LoDArray(rows if dtype is None else rows.astype(dtype), (offsets,))


def generator(key: Any, wanted: bool) -> np.random.Generator | None:
    """NumPy's generator from a jax key; None where nothing is to be drawn."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key))) if wanted else None


def sample(indices: np.ndarray, count: int, rng: np.random.Generator | None) -> np.ndarray:
    """At most ``count`` of the positions 0 .. len - 1 of ``indices``: the first ones, or drawn without replacement."""
    if len(indices) <= count:
        return np.arange(len(indices))
    if rng is None:
        return np.arange(max(count, 0))
    return np.sort(rng.choice(len(indices), max(count, 0), replace=False))
