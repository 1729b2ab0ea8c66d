"""detection_map: mean average precision (mAP) of detections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper

__all__ = ["detection_map"]


def detection_map(
    detect_res: Variable,
    label: Variable,
    class_num: int | None,
    background_label: int = 0,
    overlap_threshold: float = 0.3,
    evaluate_difficult: bool = True,
    has_state: Variable | None = None,
    input_states: Sequence[Any] | None = None,
    out_states: Sequence[Any] | None = None,
    ap_version: str = "integral",
) -> Variable:
    """Mean average precision over classes.

    Args:
        detect_res: [M, 6] class, score, x1, y1, x2, y2, with LoD; label: [N, 6] class, difficult, box, or [N, 5]
            without ``difficult``, with LoD.
        class_num: number of classes; background_label: the class to ignore.
        overlap_threshold: minimum overlap of a true positive; evaluate_difficult: whether difficult objects count.
        has_state: int32 [1], 1 if input_states hold the results of earlier batches.
        input_states, out_states: (positive counts, true positives, false positives) to accumulate from and into.
        ap_version: "integral" or "11point".

    Returns:
        float32 [1].
    """
    helper = LayerHelper("detection_map", **locals())
    out = helper.create_variable_for_type_inference(dtype="float32")
    if out_states is None:
        out_states = [
            helper.create_variable_for_type_inference(dtype=dtype) for dtype in ("int32", "float32", "float32")
        ]
    pos, hits, misses = input_states if input_states is not None else (None, None, None)
    helper.append_op(
        type="detection_map",
        inputs={
            "Label": label,
            "DetectRes": detect_res,
            "HasState": has_state,
            "PosCount": pos,
            "TruePos": hits,
            "FalsePos": misses,
        },
        outputs={
            "MAP": out,
            "AccumPosCount": out_states[0],
            "AccumTruePos": out_states[1],
            "AccumFalsePos": out_states[2],
        },
        attrs={
            "overlap_threshold": overlap_threshold,
            "evaluate_difficult": evaluate_difficult,
            "ap_type": ap_version,
            "class_num": class_num,
            "background_label": background_label,
        },
    )
    return out
