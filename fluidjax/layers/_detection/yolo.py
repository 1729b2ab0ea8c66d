"""YOLOv3: box decoding and loss."""

from __future__ import annotations

from collections.abc import Sequence

from fluidjax.framework import Variable
from fluidjax.writing.checks import FULL_FLOATS, check_type, check_variable_and_dtype
from fluidjax.writing.emit import emit_many

__all__ = ["yolo_box", "yolov3_loss"]


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
    """Decode YOLOv3's output into boxes and scores.

    Args:
        x: [N, A (5 + class_num), H, W]; img_size: int32 [N, 2], height and width.
        anchors: A pairs of width and height.
        conf_thresh: boxes and scores with objectness below it are set to zero.

    Returns:
        Boxes [N, A H W, 4] in pixels, scores [N, A H W, class_num].

    Raises:
        TypeError: an argument has the wrong type.
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
    """YOLOv3's loss [N] at one scale.

    Args:
        x: [N, len(anchor_mask) (5 + class_num), H, W].
        gt_box: [N, B, 4] (centre x, centre y, width, height) relative to the image; boxes of size zero are padding.
        gt_label: int32 [N, B]; gt_score: [N, B], 1 by default.
        anchors: all pairs of width and height; anchor_mask: indices of those used at this scale.
        ignore_thresh: an unmatched prediction that overlaps a ground-truth box by more is not penalised.

    Raises:
        TypeError: an argument has the wrong type.
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
