"""Non-maximum suppression of traced boxes: the results of exported functions, in which sizes cannot follow values.

All images and classes are suppressed at once. The result has room for as many boxes as can be kept; where none is, it
has no rows, in place of Fluid's [[-1]], which is of another width.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lowering.errors import NeedsConcrete
from lowering.program import PADDLE_2
from lowering.ragged.rows import offsets_of, row_numbers, segments
from lowering.values import Array, LoDArray, data_of, fill_padding


class _Boxes(NamedTuple):
    """Candidates, best first: boxes [N, C, K, 4], scores and rows (in the input) [N, C, K], which of them count."""

    boxes: Array
    scores: Array
    rows: Array
    valid: Array


def inputs(bboxes: Any, scores: Any) -> tuple[Array, Array, Array, int]:
    """Boxes [N, C or 1, M, 4], scores and whether they are of the image [N, C, M], rows from one image to the next."""
    box, score = jnp.asarray(data_of(bboxes)), jnp.asarray(data_of(scores))
    if box.shape[-1] != 4:
        raise NeedsConcrete("suppression of polygons")
    if score.ndim == 3:
        return box[:, None], score, jnp.ones(score.shape, bool), box.shape[1]
    offsets = scores.lod[-1]
    images = np.arange(offsets.shape[0] - 1)[:, None]
    own = (segments(offsets, row_numbers(score.shape[0])) == images)[:, None]
    shape = (len(images), score.shape[1], score.shape[0])
    boxes = jnp.broadcast_to(box.swapaxes(0, 1), (*shape, 4))
    return boxes, jnp.broadcast_to(score.T, shape), jnp.broadcast_to(own, shape), 0


def _candidates(bboxes: Any, scores: Any, background: int, limit: float, top: int) -> _Boxes:
    return chosen(*inputs(bboxes, scores), background, limit, top)


def chosen(boxes: Array, score: Array, valid: Array, stride: int, background: int, limit: float, top: int) -> _Boxes:
    """The best candidates of each class: at most ``top`` above ``limit``."""
    valid &= (score > limit) & (np.arange(score.shape[1]) != background)[:, None]
    room = min(score.shape[2], top) if top > -1 else score.shape[2]
    best, order = jax.lax.top_k(jnp.where(valid, score, -jnp.inf), room)
    taken = jnp.take_along_axis(boxes, order[..., None], axis=2)
    rows = order + stride * jnp.arange(score.shape[0], dtype=np.int32)[:, None, None]
    return _Boxes(taken, best, rows, jnp.take_along_axis(valid, order, axis=2))


def overlaps(box: Array, others: Array, normalized: bool) -> Array:
    """Intersection over union of a box [4] with others [k, 4]; see ``nms.overlaps``."""
    extra = 0 if normalized else 1

    def area(b: Array) -> Array:
        w, h = b[..., 2] - b[..., 0], b[..., 3] - b[..., 1]
        return jnp.where((w < 0) | (h < 0), 0, (w + extra) * (h + extra))

    sides = jnp.minimum(box[2:], others[:, 2:]) - jnp.maximum(box[:2], others[:, :2]) + extra
    common = sides[:, 0] * sides[:, 1]
    apart = (others[:, 0] > box[2]) | (others[:, 2] < box[0]) | (others[:, 1] > box[3]) | (others[:, 3] < box[1])
    return jnp.where(apart, 0, common / (area(box) + area(others) - common))


def kept_of(boxes: Array, valid: Array, *, threshold: float, eta: float, normalized: bool, most: int = -1) -> Array:
    """bool [K]: which of boxes [K, 4], best first, overlap no better one that is kept; see ``nms.suppress``."""

    def step(state, at):
        worst, threshold, count = state
        keep = valid[at] & (worst[at] <= threshold) & (count != most)
        worst = jnp.where(keep, jnp.maximum(worst, overlaps(boxes[at], boxes, normalized)), worst)
        if eta < 1:
            threshold = jnp.where(keep & (threshold > 0.5), threshold * eta, threshold)
        return (worst, threshold, count + keep), keep

    start = jnp.full(valid.shape, -jnp.inf, boxes.dtype), jnp.asarray(threshold, boxes.dtype), jnp.int32(0)
    return jax.lax.scan(step, start, np.arange(valid.shape[0], dtype=np.int32))[1]


def joined(parts: Array, counts: Array) -> LoDArray:
    """The first ``counts`` [N] rows of the parts [N, P, ...], one part after another, under one LoD level."""
    offsets = offsets_of(counts)
    place = np.arange(parts.shape[1])
    at = jnp.where(place < counts[:, None], offsets[:-1, None] + place, np.iinfo(np.int32).max)
    flat = parts.reshape(-1, *parts.shape[2:])
    data = jnp.zeros_like(flat).at[at.reshape(-1)].set(flat, mode="drop")
    return LoDArray(fill_padding(data, offsets[-1], backward=False), (offsets,), offsets[-1])


class _Rows(NamedTuple):
    """The boxes left of each image, at first: labels, scores, rows and boxes [N, P, ...], and how many [N]."""

    labels: Array
    scores: Array
    rows: Array
    boxes: Array
    counts: Array

    def joined(self, dtype: Any, width: int) -> tuple[LoDArray, LoDArray]:
        """Rows (label, score, box) of all images under one LoD, and their rows in the input."""
        values = jnp.concatenate([self.labels[..., None], self.scores[..., None], self.boxes], -1).astype(dtype)
        rows = self.rows * width + self.labels if width > 1 else self.rows
        return joined(values, self.counts), joined(rows[..., None].astype(np.int32), self.counts)


def _of_images(found: _Boxes, left: Array, order: Array, room: int) -> _Rows:
    """The boxes left, in the order of the keys ``order`` [N, C K]; ``left`` [N, C K]."""
    images, classes, count = found.scores.shape
    last = np.inf if jnp.issubdtype(order.dtype, jnp.floating) else np.iinfo(order.dtype).max
    at = jnp.argsort(jnp.where(left, order, last), axis=1, stable=True)[:, :room]

    def take(values: Array) -> Array:
        flat = values.reshape(images, classes * count, *values.shape[3:])
        return jnp.take_along_axis(flat, at.reshape(*at.shape, *(1,) * (flat.ndim - 2)), axis=1)

    labels = jnp.broadcast_to(np.arange(classes, dtype=np.int32)[:, None], (images, classes, count))
    counts = jnp.sum(left, axis=1, dtype=np.int32)
    return _Rows(take(labels), take(found.scores), take(found.rows), take(found.boxes), counts)


def _multiclass(bboxes, scores, background_label, score_threshold, nms_top_k, keep_top_k, **options):
    """See ``nms._multiclass``; (rows, their places in the input)."""
    found = _candidates(bboxes, scores, background_label, score_threshold, nms_top_k)
    flat = np.ndim(data_of(scores)) == 2
    rows = multiclass_of(found, keep_top_k, data_of(scores).shape[0] if flat else 0, **options)
    return rows.joined(data_of(bboxes).dtype, found.scores.shape[1] if flat else 1)


def multiclass_of(found: _Boxes, keep_top_k: int, all_rows: int = 0, **options: Any) -> _Rows:
    """What is kept of candidates, class by class; ``all_rows`` is the number of rows of inputs with a LoD."""
    images, classes, count = found.scores.shape
    of_class: Any = partial(kept_of, **options)
    kept = jax.vmap(jax.vmap(of_class))(found.boxes, found.valid).reshape(images, classes * count)
    order = jnp.broadcast_to(np.arange(classes * count, dtype=np.int32), kept.shape)
    if all_rows:  # Fluid sorts the boxes of a class by index
        labels = np.arange(classes, dtype=np.int32)[:, None]
        order = (labels * all_rows + found.rows).reshape(images, classes * count)
    room = classes * count
    if keep_top_k > -1:
        room = min(room, keep_top_k)
        by_score = jnp.argsort(
            jnp.where(kept, -found.scores.reshape(images, classes * count), jnp.inf), axis=1, stable=True
        )
        rank = jnp.argsort(by_score, axis=1)
        kept &= rank < keep_top_k
    return _of_images(found, kept, order, room)


def multiclass(
    bboxes, scores, *, background_label, score_threshold, nms_top_k, nms_threshold, nms_eta, keep_top_k, normalized
):  # fmt: skip
    """Rows (label, score, box) and their places, of ``multiclass_nms2``."""
    options = {"threshold": nms_threshold, "eta": nms_eta, "normalized": normalized}
    return _multiclass(bboxes, scores, background_label, score_threshold, nms_top_k, keep_top_k, **options)


def without_lod(*values: LoDArray) -> tuple[Any, ...]:
    """Values as in Paddle 2, followed by the number of rows of each image."""
    return (*(LoDArray(v.data, (), v.nrows) for v in values), jnp.diff(values[0].lod[0]))


def multiclass_counted(
    bboxes, scores, rois_num, *, background_label, score_threshold, nms_top_k, nms_threshold, nms_eta, keep_top_k,
    normalized,
):  # fmt: skip
    """Rows, places and numbers of ``multiclass_nms3``."""
    if rois_num is not None:
        offsets = (offsets_of(data_of(rois_num).reshape(-1)),)
        bboxes, scores = LoDArray(data_of(bboxes), offsets), LoDArray(data_of(scores), offsets)
    options = {"threshold": nms_threshold, "eta": nms_eta, "normalized": normalized}
    args = (background_label, score_threshold, nms_top_k, keep_top_k)
    return without_lod(*_multiclass(bboxes, scores, *args, **options))


def _decayed(boxes: Array, scores: Array, valid: Array, *, normalized: bool, sigma: float | None) -> Array:
    """Scores [K] of boxes [K, 4], best first, each decayed by the better boxes it overlaps; see ``nms._decayed``."""
    iou = jax.vmap(lambda box: overlaps(box, boxes, normalized))(boxes)
    better = np.tri(boxes.shape[0], k=-1, dtype=bool) & valid
    iou = jnp.where(better, jnp.nan_to_num(iou, nan=0.0), 0)
    worst = jnp.max(iou, axis=1, initial=0)
    ratios = (1 - iou) / (1 - worst) if sigma is None else jnp.exp((worst**2 - iou**2) * sigma)
    return scores * jnp.min(jnp.where(better & ~jnp.isnan(ratios), ratios, 1), axis=1, initial=1)


def matrix(
    bboxes, scores, *, background_label, score_threshold, post_threshold, nms_top_k, keep_top_k, normalized,
    use_gaussian, gaussian_sigma, ctx,
):  # fmt: skip
    """Rows, places and numbers of ``matrix_nms``."""
    found = _candidates(bboxes, scores, background_label, score_threshold, nms_top_k)
    decay = partial(_decayed, normalized=normalized, sigma=gaussian_sigma if use_gaussian else None)
    found = found._replace(scores=jax.vmap(jax.vmap(decay))(found.boxes, found.scores, found.valid))
    images, classes, count = found.scores.shape
    left = (found.valid & (found.scores > post_threshold)).reshape(images, classes * count)
    order = jnp.where(left, -found.scores.reshape(images, classes * count), jnp.inf)
    room = left.shape[1] if keep_top_k < 0 else min(left.shape[1], keep_top_k)
    left &= jnp.argsort(jnp.argsort(order, axis=1, stable=True), axis=1) < room
    out, index = _of_images(found, left, order, room).joined(data_of(bboxes).dtype, 1)
    found_rows = without_lod(out, index)
    return found_rows if ctx.release >= PADDLE_2 else (out, index, found_rows[-1])


def single(boxes, *, iou_threshold):
    """The places of ``nms``."""
    rows = jnp.asarray(data_of(boxes))
    kept = kept_of(rows, jnp.ones(rows.shape[:1], bool), threshold=iou_threshold, eta=1.0, normalized=True)
    (at,), count = jnp.nonzero(kept, size=rows.shape[0], fill_value=0), jnp.sum(kept, dtype=np.int32)
    return LoDArray(fill_padding(at.astype(np.int64), count, backward=False), (), count)
