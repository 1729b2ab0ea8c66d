"""What detectors do to maps of any size, and images as patches: see ``wide_cases``."""

from __future__ import annotations

from typing import Any

from tests.stream.wide_inputs import Case, below, between, positive, reals

_SIZED: dict[str, Any] = {"variances": [0.1, 0.1, 0.2, 0.2]}
_PRIORS = {"min_sizes": [4.0, 8.0], "max_sizes": [8.0, 12.0], "aspect_ratios": [2.0], **_SIZED}
_DENSE = {"fixed_sizes": [4.0, 8.0], "fixed_ratios": [1.0, 2.0], "densities": [2, 1], **_SIZED}
_ANCHORS = {"anchor_sizes": [8.0, 16.0], "aspect_ratios": [0.5, 1.0], "stride": [4.0, 2.0], **_SIZED}
_MAPS = {"Input": reals("b 2 n m"), "Image": reals("b 3 k l")}
_WINDOWS = {"kernels": [2, 3], "strides": [1, 2], "paddings": [1, 0, 0, 2]}
_YOLO = {"anchors": [4, 6, 9, 5, 12, 9], "class_num": 3}
_TRUE = {"GTBox": between("2 3 4", 0.1, 0.9), "GTLabel": below("2 3", 3)}
_DECODED = {"code_type": "decode_center_size"}
_TARGETS = {"TargetBox": reals("b n 4")}

CASES: dict[str, tuple[Case, ...]] = {
    "polygon_box_transform": (Case({"Input": reals("b 8 n m")}, "bnm"),),
    "im2sequence": (
        Case({"X": reals("2 2 n m")}, "nm", _WINDOWS, least=2),
        Case({"X": reals("2 2 3 m")}, "m", {"kernels": [3, 1]}),
    ),
    "anchor_generator": (Case({"Input": reals("b 2 n m")}, "bnm", _ANCHORS),),
    "prior_box": (
        Case(_MAPS, "bnmkl", _PRIORS, least=2),
        Case(_MAPS, "bnmkl", {**_PRIORS, "step_w": 2.0, "step_h": 3.0, "clip": False}, least=2),
    ),
    "density_prior_box": (
        Case(_MAPS, "bnmkl", _DENSE, least=2),
        Case(_MAPS, "bnmkl", {**_DENSE, "flatten_to_2d": True}, least=2),
        Case(_MAPS, "bnmkl", {**_DENSE, "step_w": 2.0, "step_h": 3.0}, least=2),
    ),
    "yolo_box": (
        Case({"X": reals("2 24 n m"), "ImgSize": below("2 2", 90, 30)}, "nm", {**_YOLO, "downsample_ratio": 4}),
        Case({"X": reals("2 24 n m"), "ImgSize": below("2 2", 90, 30)}, "nm", {**_YOLO, "clip_bbox": False}),
    ),
    "yolov3_loss": (
        Case({"X": reals("2 16 n n"), **_TRUE}, "n", {**_YOLO, "anchor_mask": [0, 2], "downsample_ratio": 4}),
        Case(
            {"X": reals("2 16 n n"), **_TRUE, "GTScore": between("2 3", 0.2, 1.0)},
            "n",
            {**_YOLO, "anchor_mask": [1, 2], "ignore_thresh": 0.1, "scale_x_y": 1.2},
        ),
    ),
    "box_coder": (
        Case({"PriorBox": positive("n 4"), "PriorBoxVar": positive("n 4"), **_TARGETS}, "bn", _DECODED),
        Case({"PriorBox": positive("n 4"), **_TARGETS}, "bn", {**_DECODED, "variance": [0.1, 0.1, 0.2, 0.2]}),
        Case({"PriorBox": positive("b 4"), **_TARGETS}, "bn", {**_DECODED, "axis": 1, "box_normalized": False}),
        Case({"PriorBox": positive("m 4"), "TargetBox": positive("n 4")}, "mn"),
    ),
}
