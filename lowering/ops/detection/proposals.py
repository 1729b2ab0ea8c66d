"""generate_proposals: the output of a region proposal network. The number of boxes depends on the data: a host op."""

from __future__ import annotations

from functools import partial

import numpy as np

from lowering.dtypes import INT32
from lowering.ops.detection import roomy_proposals as roomy
from lowering.ops.detection.nms import suppress
from lowering.ops.detection.pixel_boxes import clipped, decode, joined, large_enough, large_enough_v2
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


def _infer_v2(op_view, var_of):
    counts = op_view.outputs.get("RpnRoisNum") or ()
    return _infer(op_view, var_of) | {name: VarInfo((-1,), INT32) for name in counts}


def _one_image(scores, deltas, info, anchors, variances, *, before, after, threshold, large, eta, pixel=1):
    """(boxes [k, 4], scores [k, 1]) of one image, best first."""
    order = np.argsort(-scores, kind="stable")
    order = order[:before] if before > 0 else order
    boxes = decode(anchors[order], deltas[order] * variances[order], bounded=True, pixel=pixel)
    boxes = clipped(boxes, info[0], info[1], pixel)
    chosen = large(boxes, info)
    boxes, scores = boxes[chosen], scores[order][chosen]
    if threshold > 0:
        most = after if after > 0 else -1
        kept = suppress(boxes, scores, threshold, eta=eta, normalized=not pixel, most=most)
        boxes, scores = boxes[kept], scores[kept]
    return boxes, scores[:, None]


def _of_images(scores, deltas, infos, anchors, variances, *, spare=False, **options):
    """(boxes, scores) of all images under a LoD; with ``spare``, an image without any gets a box of zeros."""
    score, delta, info, anchor, variance = (
        np.asarray(data_of(exact(v))) for v in (scores, deltas, infos, anchors, variances)
    )
    rows, more = anchor.reshape(-1, 4), variance.reshape(-1, 4)
    found = [
        _one_image(s.transpose(1, 2, 0).reshape(-1), d.transpose(1, 2, 0).reshape(-1, 4), i, rows, more, **options)
        for s, d, i in zip(score, delta, info, strict=True)
    ]
    if spare:
        found = [
            pair if len(pair[0]) else (np.zeros((1, 4), rows.dtype), np.zeros((1, 1), rows.dtype)) for pair in found
        ]
    return joined([boxes for boxes, _ in found]), joined([probs for _, probs in found])


@op(out="RpnRois RpnRoiProbs RpnRoisLod? RpnRoisNum?", diff="", lod=None, kind="host", moves="late", infer=_infer_v2,
    newer="rpn_rois_num")  # fmt: skip
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
    """The best boxes of each image: anchors shifted by their deltas, clipped, filtered by size and reduced by NMS.

    Scores [N, A, H, W], BboxDeltas [N, 4 A, H, W], ImInfo [N, 3] (height, width, scale), Anchors and Variances
    [H, W, A, 4]. RpnRois [R, 4] and RpnRoiProbs [R, 1] carry one LoD level; RpnRoisLod (int64 [N]) holds the ends.
    Without NMS (``nms_thresh`` 0), ``post_nms_topN`` has no effect, as in Fluid. Runs on the host.
    """
    options = {"before": pre_nms_topN, "after": post_nms_topN, "threshold": nms_thresh, "eta": eta}
    options["large"] = partial(large_enough, min_size=min_size)
    rois, probs = _of_images(scores, bbox_deltas, im_info, anchors, variances, **options)
    return rois, probs, np.asarray(rois.lod[0][1:], np.int64), np.diff(rois.lod[0]).astype(np.int32)


generate_proposals.with_room(roomy.proposals)


@op(out="RpnRois RpnRoiProbs RpnRoisNum?", diff="", lod=None, kind="host", moves="late", infer=_infer_v2)
def generate_proposals_v2(
    scores: Value,
    bbox_deltas: Value,
    im_shape: Value,
    anchors: Value,
    variances: Value,
    *,
    pre_nms_topN: int,
    post_nms_topN: int,
    nms_thresh: float,
    min_size: float,
    eta: float,
    pixel_offset: bool = True,
):
    """As generate_proposals, for unscaled images: ImShape [N, 2]; RpnRoisNum (int32 [N]) is the number of boxes.

    Without ``pixel_offset``, x1 of a box is its edge, and a centre may be outside. An image without a large enough box
    gets one of zeros. Runs on the host.
    """
    pixel = int(pixel_offset)
    options = {"before": pre_nms_topN, "after": post_nms_topN, "threshold": nms_thresh, "eta": eta, "pixel": pixel}
    options["large"] = partial(large_enough_v2, min_size=min_size, pixel=pixel)
    rois, probs = _of_images(scores, bbox_deltas, im_shape, anchors, variances, **options, spare=True)
    return rois.data, probs.data, np.diff(rois.lod[0]).astype(np.int32)


generate_proposals_v2.with_room(roomy.proposals_v2)
