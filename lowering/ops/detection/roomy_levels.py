"""Detections of traced boxes, merged with their neighbours or from several levels: results of exported functions."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.ops.detection.pixel_boxes import clipped, decode
from lowering.ops.detection.roomy_nms import chosen, inputs, joined, kept_of, multiclass_of, overlaps
from lowering.ops.shared import round_half_away
from lowering.values import Array, LoDArray, data_of


def _merged(boxes: Array, scores: Array, valid: Array, *, threshold: float, normalized: bool) -> tuple[Array, Array]:
    """Runs of overlapping neighbours as one box each, weighted by score; see ``nms._merged``."""

    def step(state: Any, at: Array) -> Any:
        boxes, scores, current = state
        near = overlaps(boxes[at], boxes[current][None], normalized)[0] > threshold
        joins = valid[at] & (current >= 0) & near
        total = scores[at] + scores[current]
        mean = (boxes[at] * scores[at] + boxes[current] * scores[current]) / total
        boxes = boxes.at[current].set(jnp.where(joins, mean, boxes[current]))
        own = jnp.where(joins, -jnp.inf, scores[at])
        scores = scores.at[current].set(jnp.where(joins, total, scores[current])).at[at].set(own)
        return (boxes, scores, jnp.where(valid[at] & ~joins, at, current)), None

    places = np.arange(scores.shape[0], dtype=np.int32)
    return jax.lax.scan(step, (boxes, scores, jnp.int32(-1)), places)[0][:2]


def locality_aware(
    bboxes, scores, *, background_label, score_threshold, nms_top_k, nms_threshold, nms_eta, keep_top_k, normalized
):  # fmt: skip
    """Rows (label, score, box) of ``locality_aware_nms``."""
    boxes, score, valid, stride = inputs(bboxes, scores)
    merge = partial(_merged, threshold=nms_threshold, normalized=normalized)
    boxes, score = jax.vmap(jax.vmap(merge))(jnp.broadcast_to(boxes, (*score.shape, 4)), score, valid)
    found = chosen(boxes, score, valid, stride, background_label, score_threshold, nms_top_k)
    options = {"threshold": nms_threshold, "eta": nms_eta, "normalized": normalized}
    return multiclass_of(found, keep_top_k, **options).joined(data_of(bboxes).dtype, 1)[0]


def _level(deltas: Array, scores: Array, anchors: Array, info: Array, *, limit: float, top: int) -> tuple[Array, ...]:
    """(labels, scores, boxes, which count) of one image's best pairs of anchor and class; see ``retinanet._level``."""
    flat = scores.reshape(-1)
    found, order = jax.lax.top_k(flat, min(flat.shape[0], top) if top > -1 else flat.shape[0])
    box, label = jnp.divmod(order, scores.shape[1])
    height, width = round_half_away(info[0] / info[2]), round_half_away(info[1] / info[2])
    boxes = decode(anchors[box], deltas[box], bounded=False, numpy=jnp) / info[2]
    boxes = clipped(boxes, height, width, numpy=jnp)
    return label, found, boxes, found > limit


def _one_image(deltas: list, scores: list, info: Array, *, anchors, limits, top, classes, keep, threshold, eta):
    """Rows (label from 1, score, box) of one image, best first, and their number; see ``retinanet._one_image``."""
    levels = [
        _level(moved, score, anchor, info, limit=limit, top=top)
        for moved, score, anchor, limit in zip(deltas, scores, anchors, limits, strict=True)
    ]
    label, score, boxes, valid = (jnp.concatenate(parts) for parts in zip(*levels, strict=True))
    order = jnp.lexsort((label, jnp.where(valid, -score, jnp.inf)))
    label, score, boxes, valid = label[order], score[order], boxes[order], valid[order]

    def of_class(own: Array) -> Array:
        return kept_of(boxes, valid & (label == own), threshold=threshold, eta=eta, normalized=False)

    kept = jax.vmap(of_class)(np.arange(classes)).any(0)
    room = kept.shape[0] if keep < 0 else min(kept.shape[0], keep)
    kept &= jnp.cumsum(kept) <= room
    rows = jnp.concatenate([label[:, None] + 1, score[:, None], boxes], 1).astype(boxes.dtype)
    return rows[jnp.argsort(~kept, stable=True)[:room]], jnp.sum(kept, dtype=np.int32)


def retinanet(
    bboxes, scores, anchors, im_info, *, score_threshold, nms_top_k, nms_threshold, nms_eta, keep_top_k
) -> LoDArray:  # fmt: skip
    """Rows of ``retinanet_detection_output``."""
    deltas, score, anchor = ([jnp.asarray(data_of(v)) for v in given] for given in (bboxes, scores, anchors))
    limits = [score_threshold] * (len(deltas) - 1) + [0.0]
    one = partial(
        _one_image, anchors=anchor, limits=limits, top=nms_top_k, classes=score[0].shape[-1], keep=keep_top_k,
        threshold=nms_threshold, eta=nms_eta,
    )  # fmt: skip
    return joined(*jax.vmap(one)(deltas, score, jnp.asarray(data_of(im_info))))
