"""Non-maximum suppression in Paddle 2, with the number of boxes per image as a separate tensor. Runs on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowering.dtypes import INT32
from lowering.ops.detection import roomy_nms as roomy
from lowering.ops.detection.nms import counts, infer_detections, suppress, with_index
from lowering.program import VarInfo
from lowering.registry import Value, op
from lowering.values import LoDArray, data_of


def by_image(rows: Any, numbers: Any) -> Any:
    """The rows with the LoD given by RoisNum, if present."""
    if numbers is None:
        return rows
    ends = np.cumsum(np.asarray(data_of(numbers)).reshape(-1))
    return LoDArray(data_of(rows), (np.concatenate([[0], ends]).astype(np.int32),))


def _infer_counted(op_view, var_of):
    found = infer_detections(op_view, var_of, 0)
    return found | {n: VarInfo((-1,), INT32) for n in op_view.outputs.get("NmsRoisNum") or ()}


@op(
    out="Out Index NmsRoisNum?",
    diff="",
    lod=None,
    kind="host",
    moves="late",
    slots={"bboxes": "BBoxes"},
    infer=_infer_counted,
)
def multiclass_nms3(
    bboxes: Value,
    scores: Value,
    rois_num: Value = None,
    *,
    background_label: int = 0,
    score_threshold: float,
    nms_top_k: int,
    nms_threshold: float = 0.3,
    nms_eta: float = 1.0,
    keep_top_k: int,
    normalized: bool = True,
):
    """``multiclass_nms2`` with NmsRoisNum [N], the number of boxes kept in each image, and RoisNum [N] for LoD."""
    options = {"threshold": nms_threshold, "eta": nms_eta, "normalized": normalized}
    args = (background_label, score_threshold, nms_top_k, keep_top_k)
    out, index = with_index(by_image(bboxes, rois_num), by_image(scores, rois_num), *args, **options)
    return out.data, index.data, counts(out.lod)


multiclass_nms3.with_room(roomy.multiclass_counted)


@op(out="KeepBoxesIdxs", diff="", lod=None, kind="host", moves="late")
def nms(boxes: Value, *, iou_threshold: float = 1.0):
    """KeepBoxesIdxs (int64) = the rows of Boxes [M, 4] that overlap no earlier kept one by more than the threshold."""
    rows = np.asarray(data_of(boxes))
    return np.asarray(suppress(rows, -np.arange(len(rows), dtype=np.float64), iou_threshold), np.int64)


nms.with_room(roomy.single)
