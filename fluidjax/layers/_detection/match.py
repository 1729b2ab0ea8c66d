"""Layers that match boxes and suppress overlapping ones."""

from __future__ import annotations

from typing import Any

from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.writing.checks import FULL_FLOATS, check_type, check_variable_and_dtype, common_dtype
from fluidjax.writing.emit import emit, emit_many

__all__ = [
    "bipartite_match",
    "collect_fpn_proposals",
    "distribute_fpn_proposals",
    "locality_aware_nms",
    "matrix_nms",
    "multiclass_nms",
    "target_assign",
]


def bipartite_match(
    dist_matrix: Variable, match_type: str | None = None, dist_threshold: float | None = None, name: str | None = None
) -> tuple[Variable, Variable]:
    """Match rows to columns greedily, in order of decreasing similarity.

    Args:
        dist_matrix: [rows, M]; the rows of each image form a sequence.
        match_type: ``bipartite`` (default) or ``per_prediction``, which then matches each free column to its most
            similar row if the similarity is at least ``dist_threshold`` (default 0.5).

    Returns:
        The row matched to each column, -1 for none (int32 [N, M]), and the similarity ([N, M]).
    """
    check_variable_and_dtype(dist_matrix, "dist_matrix", FULL_FLOATS, "bipartite_match")
    outputs = [("ColToRowMatchIndices", "int32", False), ("ColToRowMatchDist", dist_matrix.dtype, False)]
    attrs: dict[str, Any] = {}
    if match_type is not None:
        attrs["match_type"] = match_type
    if dist_threshold is not None:
        attrs["dist_threshold"] = dist_threshold
    rows, found = emit_many("bipartite_match", {"DistMat": dist_matrix}, outputs, attrs, name=name)
    return rows, found


def target_assign(
    input: Variable,
    matched_indices: Variable,
    negative_indices: Variable | None = None,
    mismatch_value: int | None = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Targets of the matched columns: out[i, j] = row matched_indices[i, j] of the i-th sequence of input.

    Args:
        input: rows [rows, P, K] with one LoD level.
        matched_indices: int32 [N, M], -1 for none.
        negative_indices: columns (int32, one LoD level) assigned ``mismatch_value`` (default 0).

    Returns:
        Targets [N, M, K] and weights [N, M, 1], which are 1 for matched and negative columns.
    """
    inputs = {"X": input, "MatchIndices": matched_indices}
    if negative_indices is not None:
        inputs["NegIndices"] = negative_indices
    outputs = [("Out", input.dtype, False), ("OutWeight", "float32", False)]
    attrs = {} if mismatch_value is None else {"mismatch_value": mismatch_value}
    out, weight = emit_many("target_assign", inputs, outputs, attrs, name=name)
    return out, weight


_KINDS = {"top_k": int, "background_label": int, "normalized": bool, "use_gaussian": bool}


def _check_attrs(layer: str, attrs: dict[str, Any]) -> None:
    """Counts are ints, switches bools and thresholds floats: for an int threshold there is no kernel in Fluid."""
    for name, value in attrs.items():
        kind = next((kind for end, kind in _KINDS.items() if name.endswith(end)), float)
        check_type(value, name, kind, layer)


def multiclass_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    name: str | None = None,
) -> Variable:
    """Non-maximum suppression: for each class, drop boxes that overlap a box with a higher score.

    Args:
        bboxes: [N, M, 4] with scores [N, C, M]; or [rows, C, 4] with scores [rows, C], one LoD level.
        score_threshold: boxes below it are ignored; nms_top_k: maximum number of candidates per class (-1: all).
        keep_top_k: maximum number of boxes kept per image (-1: all).
        nms_threshold: overlap above which a box is dropped; multiplied by ``nms_eta`` per kept box while above 0.5.
        background_label: the class to ignore (-1: none).

    Returns:
        Rows (label, score, x0, y0, x1, y1), one LoD level; [[-1]] if nothing is detected.
    """
    check_variable_and_dtype(bboxes, "BBoxes", FULL_FLOATS, "multiclass_nms")
    check_variable_and_dtype(scores, "Scores", FULL_FLOATS, "multiclass_nms")
    attrs = {
        "background_label": background_label,
        "score_threshold": score_threshold,
        "nms_top_k": nms_top_k,
        "nms_threshold": nms_threshold,
        "keep_top_k": keep_top_k,
        "nms_eta": nms_eta,
        "normalized": normalized,
    }
    _check_attrs("multiclass_nms", attrs)
    inputs = {"BBoxes": bboxes, "Scores": scores}
    return emit("multiclass_nms", inputs, bboxes.dtype, attrs, name=name, stop_gradient=True)


def locality_aware_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = -1,
    name: str | None = None,
) -> Variable:
    """``multiclass_nms`` after merging overlapping neighbours, weighted by score; boxes have 4, 8, 16, ... coordinates.

    Raises:
        ValueError: the boxes or scores are not of rank 3.
    """
    check_variable_and_dtype(bboxes, "bboxes", FULL_FLOATS, "locality_aware_nms")
    check_variable_and_dtype(scores, "scores", FULL_FLOATS, "locality_aware_nms")
    for what, var in (("bboxes", bboxes), ("scores", scores)):
        if len(var.shape) != 3:
            raise ArgumentError(
                f"locality_aware_nms: {what} should be of rank 3, received {list(var.shape)}. Reshape it."
            )
    attrs = {
        "background_label": background_label,
        "score_threshold": score_threshold,
        "nms_top_k": nms_top_k,
        "nms_threshold": nms_threshold,
        "keep_top_k": keep_top_k,
        "nms_eta": nms_eta,
        "normalized": normalized,
    }
    _check_attrs("locality_aware_nms", attrs)
    inputs = {"BBoxes": bboxes, "Scores": scores}
    out = emit("locality_aware_nms", inputs, bboxes.dtype, attrs, name=name)
    out.stop_gradient = True
    return out


def matrix_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    post_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    use_gaussian: bool = False,
    gaussian_sigma: float = 2.0,
    background_label: int = 0,
    normalized: bool = True,
    return_index: bool = False,
    name: str | None = None,
) -> Any:
    """Matrix NMS: decay the scores of overlapping boxes instead of dropping the boxes.

    Args:
        post_threshold: drop boxes whose decayed score does not exceed it; others as for ``multiclass_nms``.
        use_gaussian, gaussian_sigma: decay by exp(-sigma iou^2) instead of 1 - iou.
        return_index: also return the row of each box in the flattened ``bboxes``, int32 [No, 1].

    Returns:
        Rows (label, score, x0, y0, x1, y1), one LoD level.
    """
    check_variable_and_dtype(bboxes, "BBoxes", FULL_FLOATS, "matrix_nms")
    check_variable_and_dtype(scores, "Scores", FULL_FLOATS, "matrix_nms")
    attrs = {
        "background_label": background_label,
        "score_threshold": score_threshold,
        "post_threshold": post_threshold,
        "nms_top_k": nms_top_k,
        "gaussian_sigma": gaussian_sigma,
        "use_gaussian": use_gaussian,
        "keep_top_k": keep_top_k,
        "normalized": normalized,
    }
    _check_attrs("matrix_nms", attrs)
    outputs = [("Out", bboxes.dtype, True), ("Index", "int64", False)]  # holds int32, as in Fluid
    out, index = emit_many("matrix_nms", {"BBoxes": bboxes, "Scores": scores}, outputs, attrs, name=name)
    return (out, index) if return_index else out


def distribute_fpn_proposals(
    fpn_rois: Variable, min_level: int, max_level: int, refer_level: int, refer_scale: int, name: str | None = None
) -> tuple[list[Variable], Variable]:
    """Assign regions [R, 4] to pyramid levels by size: floor(log2(sqrt(area) / refer_scale) + refer_level).

    Returns:
        The regions of each level, and int32 [R, 1]: the position of each region in their concatenation.
    """
    check_variable_and_dtype(fpn_rois, "fpn_rois", FULL_FLOATS, "distribute_fpn_proposals")
    helper = LayerHelper("distribute_fpn_proposals", name=name)
    levels = [helper.create_variable_for_type_inference(fpn_rois.dtype) for _ in range(max_level - min_level + 1)]
    restore = helper.create_variable_for_type_inference("int32")
    helper.append_op(
        type="distribute_fpn_proposals",
        inputs={"FpnRois": fpn_rois},
        outputs={"MultiFpnRois": levels, "RestoreIndex": restore},
        attrs={
            "min_level": min_level,
            "max_level": max_level,
            "refer_level": refer_level,
            "refer_scale": refer_scale,
        },
    )
    return levels, restore


def collect_fpn_proposals(
    multi_rois: list[Variable],
    multi_scores: list[Variable],
    min_level: int,
    max_level: int,
    post_nms_top_n: int,
    name: str | None = None,
) -> Variable:
    """The ``post_nms_top_n`` highest-scoring regions over all pyramid levels, per image."""
    count = max_level - min_level + 1
    inputs = {"MultiLevelRois": multi_rois[:count], "MultiLevelScores": multi_scores[:count]}
    attrs = {"post_nms_topN": post_nms_top_n}
    dtype = common_dtype("collect_fpn_proposals", multi_rois)
    common_dtype("collect_fpn_proposals", multi_scores)
    return emit("collect_fpn_proposals", inputs, dtype, attrs, name=name, slot="FpnRois", stop_gradient=True)
