"""Layers of two-stage and RetinaNet detectors: proposals, training targets, outputs; and YOLOv3's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax.framework import Variable
from fluidjax.layers._tensor.indexing import gather
from fluidjax.layers._tensor.manipulation import reshape
from fluidjax.writing.checks import FULL_FLOATS, check_type, check_variable_and_dtype
from fluidjax.writing.emit import emit, emit_many

__all__ = [
    "generate_mask_labels",
    "generate_proposal_labels",
    "generate_proposals",
    "retinanet_detection_output",
    "retinanet_target_assign",
    "rpn_target_assign",
    "sigmoid_focal_loss",
    "yolo_box",
    "yolov3_loss",
]


def _sampled(cls_logits: Variable, bbox_pred: Variable, width: int, found: Sequence[Variable]) -> list[Variable]:
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
    """Sample anchors to train a region proposal network on.

    Args:
        bbox_pred: [N, M, 4]; cls_logits: [N, M, 1]; anchor_box, anchor_var: [M, 4].
        gt_boxes: [G, 4] and is_crowd: int32 [G, 1], one LoD level; im_info: [N, 3] (height, width, scale).
        rpn_batch_size_per_im, rpn_fg_fraction: how many anchors per image, and what part of them positive at most.
        rpn_straddle_thresh: how far an anchor may reach out of the image (negative: any).
        rpn_positive_overlap, rpn_negative_overlap: overlap from which an anchor is positive, below which negative.
        use_random: sample at random, not the first ones.

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
    logits, boxes = _sampled(cls_logits, bbox_pred, 1, found)
    return logits, boxes, found[2], found[3], found[4]


def retinanet_target_assign(
    bbox_pred: Variable,
    cls_logits: Variable,
    anchor_box: Variable,
    anchor_var: Variable,
    gt_boxes: Variable,
    gt_labels: Variable,
    is_crowd: Variable,
    im_info: Variable,
    num_classes: int = 1,
    positive_overlap: float = 0.5,
    negative_overlap: float = 0.4,
) -> tuple[Variable, Variable, Variable, Variable, Variable, Variable]:
    """Targets for every anchor of RetinaNet that is clearly positive or negative; arguments as ``rpn_target_assign``.

    Returns:
        Predicted logits [S, num_classes], predicted boxes [F, 4], labels int32 [S, 1] (0 is background), target
        offsets [F, 4], weights [F, 4], and the number of positives plus one, int32 [N, 1].
    """
    inputs = {
        "Anchor": anchor_box,
        "GtBoxes": gt_boxes,
        "GtLabels": gt_labels,
        "IsCrowd": is_crowd,
        "ImInfo": im_info,
    }
    outputs = [
        ("LocationIndex", "int32", False),
        ("ScoreIndex", "int32", False),
        ("TargetLabel", "int32", False),
        ("TargetBBox", anchor_box.dtype, False),
        ("BBoxInsideWeight", anchor_box.dtype, False),
        ("ForegroundNumber", "int32", False),
    ]
    attrs = {"positive_overlap": positive_overlap, "negative_overlap": negative_overlap}
    found = emit_many("retinanet_target_assign", inputs, outputs, attrs)
    logits, boxes = _sampled(cls_logits, bbox_pred, num_classes, found)
    return logits, boxes, found[2], found[3], found[4], found[5]


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
    """Proposals of a region proposal network: decoded, clipped, filtered by size, suppressed.

    Args:
        scores: [N, A, H, W]; bbox_deltas: [N, 4 A, H, W]; im_info: [N, 3]; anchors, variances: [H, W, A, 4].
        pre_nms_top_n, post_nms_top_n: numbers of boxes before and after suppression by ``nms_thresh`` and ``eta``.
        min_size: smallest side in pixels of the original image.
        return_rois_num: also return the offsets of the images' proposals.

    Returns:
        Boxes [R, 4] and their scores [R, 1], one LoD level.
    """
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
    """Sample proposals, with labels and box targets, to train the second stage on.

    Args:
        rpn_rois: [R, 4]; gt_classes, is_crowd: int32 [G, 1]; gt_boxes: [G, 4]; all with one LoD level.
        im_info: [N, 3].
        batch_size_per_im, fg_fraction: how many per image, and what part of them foreground.
        fg_thresh, bg_thresh_hi, bg_thresh_lo: overlap from which a proposal is foreground; range of background.
        bbox_reg_weights: divide the target offsets; class_nums: number of classes.

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
        gt_segms: polygon points [S, 2] with three LoD levels (objects, polygons, points); others as there.
        resolution: side of the square masks.

    Returns:
        Regions [F, 4], int32 [F, 1] that tells which regions have a mask, masks int32 [F, num_classes resolution^2].
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


def retinanet_detection_output(
    bboxes: Sequence[Variable],
    scores: Sequence[Variable],
    anchors: Sequence[Variable],
    im_info: Variable,
    score_threshold: float = 0.05,
    nms_top_k: int = 1000,
    keep_top_k: int = 100,
    nms_threshold: float = 0.3,
    nms_eta: float = 1.0,
) -> Variable:
    """Detections of RetinaNet from the levels of its pyramid.

    Args:
        bboxes: offsets [N, M_i, 4] per level; scores: [N, M_i, C]; anchors: [M_i, 4]; im_info: [N, 3].
        score_threshold, nms_top_k, keep_top_k, nms_threshold, nms_eta: as for ``multiclass_nms``.

    Returns:
        Rows (label, score, x0, y0, x1, y1), one LoD level.
    """
    inputs = {"BBoxes": list(bboxes), "Scores": list(scores), "Anchors": list(anchors), "ImInfo": im_info}
    attrs = {
        "score_threshold": score_threshold,
        "nms_top_k": nms_top_k,
        "nms_threshold": nms_threshold,
        "keep_top_k": keep_top_k,
        "nms_eta": nms_eta,
    }
    return emit("retinanet_detection_output", inputs, bboxes[0].dtype, attrs, stop_gradient=True)


def sigmoid_focal_loss(
    x: Variable, label: Variable, fg_num: Variable, gamma: float = 2.0, alpha: float = 0.25
) -> Variable:
    """-alpha (1 - p)^gamma log p where class c is the label, else -(1 - alpha) p^gamma log(1 - p); over fg_num.

    Args:
        x: logits [N, C]; label: int32 [N, 1] from 0 (background) to C; fg_num: int32 [1].

    Returns:
        [N, C].
    """
    check_variable_and_dtype(x, "x", FULL_FLOATS, "sigmoid_focal_loss")
    check_variable_and_dtype(label, "label", ["int32"], "sigmoid_focal_loss")
    check_variable_and_dtype(fg_num, "fg_num", ["int32"], "sigmoid_focal_loss")
    inputs = {"X": x, "Label": label, "FgNum": fg_num}
    return emit("sigmoid_focal_loss", inputs, x.dtype, {"gamma": gamma, "alpha": alpha})


def yolo_box(
    x: Variable,
    img_size: Variable,
    anchors: Sequence[int],
    class_num: int,
    conf_thresh: float,
    downsample_ratio: int,
    clip_bbox: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
) -> tuple[Variable, Variable]:
    """Boxes and scores of YOLOv3's output.

    Args:
        x: [N, A (5 + class_num), H, W]; img_size: int32 [N, 2], height and width.
        anchors: A pairs of width and height.
        conf_thresh: objectness below which boxes and scores are zero.

    Returns:
        Boxes [N, A H W, 4] in pixels, scores [N, A H W, class_num].

    Raises:
        TypeError: an argument is of another type.
    """
    check_variable_and_dtype(x, "x", FULL_FLOATS, "yolo_box")
    check_type(anchors, "anchors", (list, tuple), "yolo_box")
    check_type(conf_thresh, "conf_thresh", float, "yolo_box")
    attrs = {
        "anchors": list(anchors),
        "class_num": class_num,
        "conf_thresh": conf_thresh,
        "downsample_ratio": downsample_ratio,
        "clip_bbox": clip_bbox,
        "scale_x_y": scale_x_y,
    }
    outputs = [("Boxes", x.dtype, False), ("Scores", x.dtype, False)]
    boxes, scores = emit_many("yolo_box", {"X": x, "ImgSize": img_size}, outputs, attrs, name=name)
    return boxes, scores


def yolov3_loss(
    x: Variable,
    gt_box: Variable,
    gt_label: Variable,
    anchors: Sequence[int],
    anchor_mask: Sequence[int],
    class_num: int,
    ignore_thresh: float,
    downsample_ratio: int,
    gt_score: Variable | None = None,
    use_label_smooth: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
) -> Variable:
    """Loss [N] of one scale of YOLOv3.

    Args:
        x: [N, len(anchor_mask) (5 + class_num), H, W].
        gt_box: [N, B, 4] (center x, center y, width, height) relative to the image; zero sizes are padding.
        gt_label: int32 [N, B]; gt_score: [N, B], 1 by default.
        anchors: all pairs of width and height; anchor_mask: numbers of those of this scale.
        ignore_thresh: overlap with a true box above which an unmatched prediction is not punished.

    Raises:
        TypeError: an argument is of another type.
    """
    check_variable_and_dtype(x, "x", FULL_FLOATS, "yolov3_loss")
    check_variable_and_dtype(gt_box, "gt_box", FULL_FLOATS, "yolov3_loss")
    check_variable_and_dtype(gt_label, "gt_label", ["int32"], "yolov3_loss")
    check_type(anchors, "anchors", (list, tuple), "yolov3_loss")
    check_type(anchor_mask, "anchor_mask", (list, tuple), "yolov3_loss")
    check_type(class_num, "class_num", int, "yolov3_loss")
    check_type(ignore_thresh, "ignore_thresh", float, "yolov3_loss")
    check_type(use_label_smooth, "use_label_smooth", bool, "yolov3_loss")
    inputs = {"X": x, "GTBox": gt_box, "GTLabel": gt_label}
    if gt_score is not None:
        inputs["GTScore"] = gt_score
    attrs = {
        "anchors": list(anchors),
        "anchor_mask": list(anchor_mask),
        "class_num": class_num,
        "ignore_thresh": ignore_thresh,
        "downsample_ratio": downsample_ratio,
        "use_label_smooth": use_label_smooth,
        "scale_x_y": scale_x_y,
    }
    outputs = [("Loss", x.dtype, False), ("ObjectnessMask", "int32", False), ("GTMatchMask", "int32", False)]
    return emit_many("yolov3_loss", inputs, outputs, attrs, name=name)[0]
