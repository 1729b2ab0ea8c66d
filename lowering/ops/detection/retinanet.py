"""retinanet_detection_output: boxes from the levels of a feature pyramid. A host op: their number depends on data."""

from __future__ import annotations

from functools import partial

import numpy as np

from lowering.ops.detection import roomy_levels
from lowering.ops.detection.nms import infer_detections, suppress
from lowering.ops.detection.pixel_boxes import clipped, decode, joined
from lowering.ops.shared import round_half_away
from lowering.registry import Value, op
from lowering.values import data_of, exact


def _level(deltas, scores, anchors, info, *, limit, top):
    """(labels, scores, boxes in the image before scaling) of the ``top`` pairs of anchor and class above ``limit``."""
    flat = scores.reshape(-1)
    order = np.argsort(-flat, kind="stable")
    order = order[flat[order] > limit]
    order = order[:top] if top > -1 else order
    box, label = np.divmod(order, scores.shape[1])
    height, width, scale = info[:3]
    found = decode(anchors[box], deltas[box], bounded=False) / scale
    size = round_half_away(height / scale, np), round_half_away(width / scale, np)
    return label, flat[order], clipped(found, *size)


def _one_image(levels, keep_top_k: int, threshold: float, eta: float) -> np.ndarray:
    """Rows (label from 1, score, box) of one image: suppression class by class, then the best of all."""
    labels, scores, boxes = (np.concatenate(parts) for parts in zip(*levels, strict=True))
    kept: list[int] = []
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        chosen = suppress(boxes[own], scores[own], threshold, eta=eta, normalized=False)
        kept += [int(own[i]) for i in chosen]
    kept.sort(key=lambda i: -scores[i])
    kept = kept[:keep_top_k] if keep_top_k > -1 else kept
    return np.concatenate([labels[kept, None] + 1, scores[kept, None], boxes[kept]], axis=1).astype(boxes.dtype)


@op(diff="", lod=None, kind="host", moves="late", slots={"bboxes": "BBoxes"}, infer=partial(infer_detections, level=0))
def retinanet_detection_output(
    bboxes: list[Value],
    scores: list[Value],
    anchors: list[Value],
    im_info: Value,
    *,
    score_threshold: float,
    nms_top_k: int,
    nms_threshold: float,
    nms_eta: float,
    keep_top_k: int,
):
    """Detections of all levels: rows (label, score, x0, y0, x1, y1), best first, one LoD level.

    Level by level BBoxes [N, M, 4] (deltas), Scores [N, M, C] and Anchors [M, 4]; ImInfo [N, 3] (height, width, scale).
    From each level, the ``nms_top_k`` best scores above ``score_threshold`` are considered; in the last level, all
    positive scores. Labels count from 1. Runs on the host.
    """
    levels = [
        tuple(np.asarray(data_of(exact(v))) for v in level) for level in zip(bboxes, scores, anchors, strict=True)
    ]
    found = []
    for i, info in enumerate(np.asarray(data_of(exact(im_info)))):
        limits = [score_threshold] * (len(levels) - 1) + [0.0]
        parts = [
            _level(deltas[i], score[i], anchor, info, limit=limit, top=nms_top_k)
            for (deltas, score, anchor), limit in zip(levels, limits, strict=True)
        ]
        found.append(_one_image(parts, keep_top_k, nms_threshold, nms_eta))
    return joined(found)


retinanet_detection_output.with_room(roomy_levels.retinanet)
