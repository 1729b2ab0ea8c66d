"""generate_proposals: what a region proposal network suggests. How many remain depends on the data: a host op."""

from __future__ import annotations

import numpy as np

from lowering.ops.detection.nms import suppress
from lowering.ops.detection.pixel_boxes import clipped, decode, joined, sides
from lowering.program import VarInfo
from lowering.registry import Value, op
from lowering.values import data_of, exact


def _infer(op_view, var_of):
    boxes = var_of(op_view.inputs["BboxDeltas"][0])
    dtype = boxes.dtype if boxes is not None else None
    return {
        op_view.outputs["RpnRois"][0]: VarInfo((-1, 4), dtype),
        op_view.outputs["RpnRoiProbs"][0]: VarInfo((-1, 1), dtype),
    }


def _large_enough(boxes: np.ndarray, info: np.ndarray, min_size: float) -> np.ndarray:
    """Which boxes are ``min_size`` wide and high in the image before scaling, and have their centre inside."""
    height, width, scale = info[:3]
    least = max(min_size, 1.0)
    w, h = sides(boxes)
    inside = (boxes[:, 0] + w / 2 <= width) & (boxes[:, 1] + h / 2 <= height)
    return inside & ((w - 1) / scale + 1 >= least) & ((h - 1) / scale + 1 >= least)


def _one_image(scores, deltas, info, anchors, variances, *, before, after, threshold, min_size, eta):
    """(boxes [k, 4], scores [k, 1]) of one image, best first."""
    order = np.argsort(-scores, kind="stable")
    order = order[:before] if before > 0 else order
    boxes = decode(anchors[order], deltas[order] * variances[order], bounded=True)
    boxes = clipped(boxes, info[0], info[1])
    large = _large_enough(boxes, info, min_size)
    boxes, scores = boxes[large], scores[order][large]
    if threshold > 0:
        most = after if after > 0 else -1
        kept = suppress(boxes, scores, threshold, eta=eta, normalized=False, most=most)
        boxes, scores = boxes[kept], scores[kept]
    return boxes, scores[:, None]


@op(out="RpnRois RpnRoiProbs RpnRoisLod?", diff="", lod=None, kind="host", infer=_infer)
def generate_proposals(
    scores: Value,
    bbox_deltas: Value,
    im_info: Value,
    anchors: Value,
    variances: Value,
    *,
    pre_nms_topN: int,
    post_nms_topN: int,
    nms_thresh: float,
    min_size: float,
    eta: float,
):
    """The best boxes of each image: anchors moved by their deltas, clipped, large enough, and not suppressed.

    Scores [N, A, H, W], BboxDeltas [N, 4 A, H, W], ImInfo [N, 3] (height, width, scale), Anchors and Variances
    [H, W, A, 4]. RpnRois [R, 4] and RpnRoiProbs [R, 1] carry one LoD level; RpnRoisLod (int64 [N]) holds the ends.
    Without suppression (``nms_thresh`` 0) ``post_nms_topN`` has no effect, as in Fluid. Runs on the host.
    """
    score, delta, info, anchor, variance = (
        np.asarray(data_of(exact(v))) for v in (scores, bbox_deltas, im_info, anchors, variances)
    )
    options = {"before": pre_nms_topN, "after": post_nms_topN, "threshold": nms_thresh}
    found = [
        _one_image(
            s.transpose(1, 2, 0).reshape(-1),
            d.transpose(1, 2, 0).reshape(-1, 4),
            i,
            anchor.reshape(-1, 4),
            variance.reshape(-1, 4),
            min_size=min_size,
            eta=eta,
            **options,
        )
        for s, d, i in zip(score, delta, info, strict=True)
    ]
    rois = joined([boxes for boxes, _ in found])
    return rois, joined([probs for _, probs in found]), np.asarray(rois.lod[0][1:], np.int64)
