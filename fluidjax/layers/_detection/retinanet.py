"""RetinaNet: training targets, outputs and loss."""

from __future__ import annotations

from collections.abc import Sequence

from fluidjax.framework import Variable
from fluidjax.layers._detection.targets import sampled
from fluidjax.writing.checks import FULL_FLOATS, check_type, check_variable_and_dtype
from fluidjax.writing.emit import emit, emit_many

__all__ = ["retinanet_detection_output", "retinanet_target_assign", "sigmoid_focal_loss"]


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
    """Targets for every RetinaNet anchor that is clearly positive or negative; arguments as for ``rpn_target_assign``.

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
    logits, boxes = sampled(cls_logits, bbox_pred, num_classes, found)
    return logits, boxes, found[2], found[3], found[4], found[5]


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
    """RetinaNet's detections, from the levels of its feature pyramid.

    Args:
        bboxes: offsets [N, M_i, 4] per level; scores: [N, M_i, C]; anchors: [M_i, 4]; im_info: [N, 3].
        score_threshold, nms_top_k, keep_top_k, nms_threshold, nms_eta: as for ``multiclass_nms``.

    Returns:
        Rows (label, score, x0, y0, x1, y1), one LoD level.
    """
    for what, levels in {"bboxes": bboxes, "scores": scores, "anchors": anchors}.items():
        check_type(levels, what, list, "retinanet_detection_output")
        for i, level in enumerate(levels):
            check_variable_and_dtype(level, f"{what}[{i}]", FULL_FLOATS, "retinanet_detection_output")
    check_variable_and_dtype(im_info, "im_info", FULL_FLOATS, "retinanet_detection_output")
    inputs = {"BBoxes": list(bboxes), "Scores": list(scores), "Anchors": list(anchors), "ImInfo": im_info}
    attrs = {
        "score_threshold": score_threshold,
        "nms_top_k": nms_top_k,
        "nms_threshold": nms_threshold,
        "keep_top_k": keep_top_k,
        "nms_eta": nms_eta,
    }
    out = emit("retinanet_detection_output", inputs, scores[0].dtype, attrs)
    out.stop_gradient = True
    return out


def sigmoid_focal_loss(
    x: Variable, label: Variable, fg_num: Variable, gamma: float = 2.0, alpha: float = 0.25
) -> Variable:
    """Focal loss: -alpha (1 - p)^gamma log p for the labelled class, else -(1 - alpha) p^gamma log(1 - p); over fg_num.

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
