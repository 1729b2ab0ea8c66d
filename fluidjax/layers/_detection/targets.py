"""Layers of two-stage detectors: region proposals and training targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax.framework import Variable
from fluidjax.layers._tensor.indexing import gather
from fluidjax.layers._tensor.manipulation import reshape
from fluidjax.writing.checks import FULL_FLOATS, check_variable_and_dtype
from fluidjax.writing.emit import emit_many

__all__ = [
    "generate_mask_labels",
    "generate_proposal_labels",
    "generate_proposals",
    "rpn_target_assign",
]


def sampled(cls_logits: Variable, bbox_pred: Variable, width: int, found: Sequence[Variable]) -> list[Variable]:
    """Predictions at the sampled anchors: (class logits [S, width], boxes [F, 4])."""
    location, score = found[0], found[1]
    for var in found:
        var.stop_gradient = True
    logits = reshape(x=cls_logits, shape=(-1, width))
    boxes = reshape(x=bbox_pred, shape=(-1, 4))
    return [gather(logits, score), gather(boxes, location)]


def rpn_target_assign(
    bbox_pred: Variable,
    cls_logits: Variable,
    anchor_box: Variable,
    anchor_var: Variable,
    gt_boxes: Variable,
    is_crowd: Variable,
    im_info: Variable,
    rpn_batch_size_per_im: int = 256,
    rpn_straddle_thresh: float = 0.0,
    rpn_fg_fraction: float = 0.5,
    rpn_positive_overlap: float = 0.7,
    rpn_negative_overlap: float = 0.3,
    use_random: bool = True,
) -> tuple[Variable, Variable, Variable, Variable, Variable]:
    """Sample anchors for training a region proposal network.

    Args:
        bbox_pred: [N, M, 4]; cls_logits: [N, M, 1]; anchor_box, anchor_var: [M, 4].
        gt_boxes: [G, 4] and is_crowd: int32 [G, 1], one LoD level; im_info: [N, 3] (height, width, scale).
        rpn_batch_size_per_im, rpn_fg_fraction: number of anchors per image, and the maximum fraction of positives.
        rpn_straddle_thresh: how far an anchor may extend beyond the image (negative: any distance).
        rpn_positive_overlap, rpn_negative_overlap: an anchor is positive from the former, negative below the latter.
        use_random: sample at random rather than taking the first candidates.

    Returns:
        Predicted logits [S, 1], predicted boxes [F, 4], labels int32 [S, 1], target offsets [F, 4], weights [F, 4].
    """
    inputs = {"Anchor": anchor_box, "GtBoxes": gt_boxes, "IsCrowd": is_crowd, "ImInfo": im_info}
    outputs = [
        ("LocationIndex", "int32", False),
        ("ScoreIndex", "int32", False),
        ("TargetLabel", "int32", False),
        ("TargetBBox", anchor_box.dtype, False),
        ("BBoxInsideWeight", anchor_box.dtype, False),
    ]
    attrs = {
        "rpn_batch_size_per_im": rpn_batch_size_per_im,
        "rpn_straddle_thresh": rpn_straddle_thresh,
        "rpn_positive_overlap": rpn_positive_overlap,
        "rpn_negative_overlap": rpn_negative_overlap,
        "rpn_fg_fraction": rpn_fg_fraction,
        "use_random": use_random,
    }
    found = emit_many("rpn_target_assign", inputs, outputs, attrs)
    logits, boxes = sampled(cls_logits, bbox_pred, 1, found)
    return logits, boxes, found[2], found[3], found[4]


def generate_proposals(
    scores: Variable,
    bbox_deltas: Variable,
    im_info: Variable,
    anchors: Variable,
    variances: Variable,
    pre_nms_top_n: int = 6000,
    post_nms_top_n: int = 1000,
    nms_thresh: float = 0.5,
    min_size: float = 0.1,
    eta: float = 1.0,
    name: str | None = None,
    return_rois_num: bool = False,
) -> Any:
    """Proposals of a region proposal network: decoded, clipped, filtered by size, and reduced by NMS.

    Args:
        scores: [N, A, H, W]; bbox_deltas: [N, 4 A, H, W]; im_info: [N, 3]; anchors, variances: [H, W, A, 4].
        pre_nms_top_n, post_nms_top_n: number of boxes before and after suppression by ``nms_thresh`` and ``eta``.
        min_size: minimum side in pixels of the original image.
        return_rois_num: also return the offsets of each image's proposals.

    Returns:
        Boxes [R, 4] and their scores [R, 1], one LoD level.
    """
    singles = {"scores": scores, "bbox_deltas": bbox_deltas, "anchors": anchors, "variances": variances}
    for what, var in singles.items():
        check_variable_and_dtype(var, what, ("float32",), "generate_proposals")
    check_variable_and_dtype(im_info, "im_info", FULL_FLOATS, "generate_proposals")
    inputs = {
        "Scores": scores,
        "BboxDeltas": bbox_deltas,
        "ImInfo": im_info,
        "Anchors": anchors,
        "Variances": variances,
    }
    attrs = {
        "pre_nms_topN": pre_nms_top_n,
        "post_nms_topN": post_nms_top_n,
        "nms_thresh": nms_thresh,
        "min_size": min_size,
        "eta": eta,
    }
    outputs = [
        ("RpnRois", bbox_deltas.dtype, True),
        ("RpnRoiProbs", scores.dtype, True),
        ("RpnRoisLod", "int32", True),
    ]
    rois, probabilities, lod = emit_many("generate_proposals", inputs, outputs, attrs, name=name)
    return (rois, probabilities, lod) if return_rois_num else (rois, probabilities)


def generate_proposal_labels(
    rpn_rois: Variable,
    gt_classes: Variable,
    is_crowd: Variable,
    gt_boxes: Variable,
    im_info: Variable,
    batch_size_per_im: int = 256,
    fg_fraction: float = 0.25,
    fg_thresh: float = 0.25,
    bg_thresh_hi: float = 0.5,
    bg_thresh_lo: float = 0.0,
    bbox_reg_weights: Sequence[float] = [0.1, 0.1, 0.2, 0.2],  # noqa: B006
    class_nums: int | None = None,
    use_random: bool = True,
    is_cls_agnostic: bool = False,
    is_cascade_rcnn: bool = False,
) -> tuple[Variable, ...]:
    """Sample proposals for training the second stage, with class labels and box targets.

    Args:
        rpn_rois: [R, 4]; gt_classes, is_crowd: int32 [G, 1]; gt_boxes: [G, 4]; all with one LoD level.
        im_info: [N, 3].
        batch_size_per_im, fg_fraction: number of proposals per image, and the maximum fraction of foreground.
        fg_thresh, bg_thresh_hi, bg_thresh_lo: minimum overlap of foreground, and overlap range of background.
        bbox_reg_weights: divisors of the target offsets; class_nums: number of classes.

    Returns:
        Regions [S, 4], labels int32 [S, 1], targets, inside and outside weights, each [S, 4 class_nums].
    """
    inputs = {
        "RpnRois": rpn_rois,
        "GtClasses": gt_classes,
        "IsCrowd": is_crowd,
        "GtBoxes": gt_boxes,
        "ImInfo": im_info,
    }
    attrs = {
        "batch_size_per_im": batch_size_per_im,
        "fg_fraction": fg_fraction,
        "fg_thresh": fg_thresh,
        "bg_thresh_hi": bg_thresh_hi,
        "bg_thresh_lo": bg_thresh_lo,
        "bbox_reg_weights": list(bbox_reg_weights),
        "class_nums": class_nums,
        "use_random": use_random,
        "is_cls_agnostic": is_cls_agnostic,
        "is_cascade_rcnn": is_cascade_rcnn,
    }
    outputs = [
        ("Rois", rpn_rois.dtype, True),
        ("LabelsInt32", gt_classes.dtype, True),
        ("BboxTargets", rpn_rois.dtype, True),
        ("BboxInsideWeights", rpn_rois.dtype, True),
        ("BboxOutsideWeights", rpn_rois.dtype, True),
    ]
    return tuple(emit_many("generate_proposal_labels", inputs, outputs, attrs))


def generate_mask_labels(
    im_info: Variable,
    gt_classes: Variable,
    is_crowd: Variable,
    gt_segms: Variable,
    rois: Variable,
    labels_int32: Variable,
    num_classes: int,
    resolution: int,
) -> tuple[Variable, ...]:
    """Mask targets for the foreground regions of ``generate_proposal_labels``.

    Args:
        gt_segms: polygon points [S, 2] with three LoD levels (objects, polygons, points); the other arguments as there.
        resolution: side length of the square masks.

    Returns:
        Regions [F, 4], int32 [F, 1] indicating which regions have a mask, masks int32 [F, num_classes resolution^2].
    """
    inputs = {
        "ImInfo": im_info,
        "GtClasses": gt_classes,
        "IsCrowd": is_crowd,
        "GtSegms": gt_segms,
        "Rois": rois,
        "LabelsInt32": labels_int32,
    }
    outputs = [
        ("MaskRois", rois.dtype, True),
        ("RoiHasMaskInt32", gt_classes.dtype, True),
        ("MaskInt32", gt_classes.dtype, True),
    ]
    attrs = {"num_classes": num_classes, "resolution": resolution}
    return tuple(emit_many("generate_mask_labels", inputs, outputs, attrs))
