"""Layers of SSD: prediction heads on feature maps, loss and output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._detection.boxes import box_coder, iou_similarity, prior_box
from fluidjax.layers._detection.match import bipartite_match, target_assign
from fluidjax.layers._loss.terms import smooth_l1
from fluidjax.layers._nn.conv import conv2d
from fluidjax.layers._tensor.manipulation import flatten, reshape, transpose
from fluidjax.layers._tensor.reduction import reduce_sum
from fluidjax.layers._tensor.slicing import slice as slice_
from fluidjax.layers.loss import softmax_with_cross_entropy
from fluidjax.layers.tensor import cast, concat
from fluidjax.writing.emit import emit, emit_many

__all__ = ["detection_output", "multi_box_head", "ssd_loss"]


def detection_output(
    loc: Variable,
    scores: Variable,
    prior_box: Variable,
    prior_box_var: Variable,
    background_label: int = 0,
    nms_threshold: float = 0.3,
    nms_top_k: int = 400,
    keep_top_k: int = 200,
    score_threshold: float = 0.01,
    nms_eta: float = 1.0,
    return_index: bool = False,
) -> Any:
    """SSD's detections: offsets decoded, softmax applied to the scores, then NMS for each class.

    Args:
        loc: [N, M, 4]; scores: [N, M, C]; prior_box, prior_box_var: [M, 4].
        nms_threshold, nms_top_k, keep_top_k, score_threshold, nms_eta, background_label: as for ``multiclass_nms``.
        return_index: also return the row of each box, int32 [No, 1].

    Returns:
        Rows (label, score, x0, y0, x1, y1), one LoD level; [[-1]] if nothing is detected.
    """
    decoded = box_coder(prior_box, prior_box_var, loc, code_type="decode_center_size")
    probabilities = emit("softmax", {"X": scores}, scores.dtype)
    turned = transpose(probabilities, perm=[0, 2, 1])
    turned.stop_gradient = True
    attrs = {
        "background_label": background_label,
        "nms_threshold": nms_threshold,
        "nms_top_k": nms_top_k,
        "keep_top_k": keep_top_k,
        "score_threshold": score_threshold,
        "nms_eta": nms_eta,
    }
    inputs = {"Scores": turned, "BBoxes": decoded}
    if not return_index:
        return emit("multiclass_nms", inputs, decoded.dtype, attrs, layer="detection_output", stop_gradient=True)
    outputs = [("Out", decoded.dtype, True), ("Index", "int64", True)]  # holds int32, as in Fluid
    out, index = emit_many("multiclass_nms2", inputs, outputs, attrs, layer="detection_output")
    return out, index


def _flat(x: Variable) -> Variable:
    return flatten(x=x, axis=2)


def ssd_loss(
    location: Variable,
    confidence: Variable,
    gt_box: Variable,
    gt_label: Variable,
    prior_box: Variable,
    prior_box_var: Variable | None = None,
    background_label: int = 0,
    overlap_threshold: float = 0.5,
    neg_pos_ratio: float = 3.0,
    neg_overlap: float = 0.5,
    loc_loss_weight: float = 1.0,
    conf_loss_weight: float = 1.0,
    match_type: str = "per_prediction",
    mining_type: str = "max_negative",
    normalize: bool = True,
    sample_size: int | None = None,
) -> Variable:
    """SSD's loss [N, 1]: conf_loss_weight * cross entropy + loc_loss_weight * smooth L1, over matched priors and the
    hardest negatives; with ``normalize``, divided by the number of matched priors.

    Args:
        location: [N, M, 4]; confidence: [N, M, C]; prior_box, prior_box_var: [M, 4].
        gt_box: [G, 4]; gt_label: int32 [G, 1]; both with one LoD level.
        overlap_threshold: as for ``bipartite_match``; neg_pos_ratio: number of negatives per positive; neg_overlap: the
            overlap below which a prior may be a negative.
        mining_type: only ``max_negative``; ``sample_size`` applies to hard_example mining, which is not supported.

    Raises:
        ValueError: any other ``mining_type``.
    """
    if mining_type != "max_negative":
        raise ArgumentError(f"Only support mining_type == max_negative now, received {mining_type!r}. Pass that.")
    helper = LayerHelper("ssd_loss")
    confidence_shape = emit("shape", {"Input": confidence}, "int32")
    overlap = iou_similarity(x=gt_box, y=prior_box)
    matched, distance = bipartite_match(overlap, match_type, overlap_threshold)
    gt_label = reshape(x=gt_label, shape=(len(gt_label.shape) - 1) * (0,) + (-1, 1))
    gt_label.stop_gradient = True
    label, _ = target_assign(gt_label, matched, mismatch_value=background_label)
    confidence = _flat(confidence)
    # The confidence loss of every prior decides which negatives count.
    cost = softmax_with_cross_entropy(confidence, _constant(_flat(cast(x=label, dtype="int64"))))
    row_shape = _constant(slice_(confidence_shape, axes=[0], starts=[0], ends=[2]))
    cost = _constant(reshape(x=cost, shape=(-1, 0), actual_shape=row_shape))
    negatives, updated = _mined(helper, cost, matched, distance, neg_pos_ratio, neg_overlap, mining_type, sample_size)
    encoded = box_coder(prior_box, prior_box_var, gt_box, code_type="encode_center_size")
    target_box, location_weight = target_assign(encoded, updated, mismatch_value=background_label)
    label, confidence_weight = target_assign(
        gt_label, updated, negative_indices=negatives, mismatch_value=background_label
    )
    label = _constant(cast(x=_flat(label), dtype="int64"))
    confidence_loss = softmax_with_cross_entropy(confidence, label) * _constant(_flat(confidence_weight))
    location_loss = smooth_l1(_flat(location), _constant(_flat(target_box)))
    location_weight = _constant(_flat(location_weight))
    location_loss = location_loss * location_weight
    loss = conf_loss_weight * confidence_loss + loc_loss_weight * location_loss
    loss = reduce_sum(reshape(x=loss, shape=(-1, 0), actual_shape=row_shape), dim=1, keep_dim=True)
    return loss / reduce_sum(location_weight) if normalize else loss


def _constant(x: Variable) -> Variable:
    x.stop_gradient = True
    return x


def _mined(
    helper: LayerHelper,
    cost: Variable,
    matched: Variable,
    distance: Variable,
    neg_pos_ratio: float,
    neg_overlap: float,
    mining_type: str,
    sample_size: int | None,
) -> tuple[Variable, Variable]:
    negatives = helper.create_variable_for_type_inference("int32")
    updated = helper.create_variable_for_type_inference(matched.dtype)
    helper.append_op(
        type="mine_hard_examples",
        inputs={"ClsLoss": cost, "MatchIndices": matched, "MatchDist": distance},
        outputs={"NegIndices": negatives, "UpdatedMatchIndices": updated},
        attrs={
            "neg_pos_ratio": neg_pos_ratio,
            "neg_dist_threshold": neg_overlap,
            "mining_type": mining_type,
            "sample_size": sample_size or 0,
        },
    )
    return negatives, updated


def multi_box_head(
    inputs: Sequence[Variable],
    image: Variable,
    base_size: int,
    num_classes: int,
    aspect_ratios: Sequence[Any],
    min_ratio: int | None = None,
    max_ratio: int | None = None,
    min_sizes: Sequence[Any] | None = None,
    max_sizes: Sequence[Any] | None = None,
    steps: Sequence[float] | None = None,
    step_w: Sequence[float] | None = None,
    step_h: Sequence[float] | None = None,
    offset: float = 0.5,
    variance: Sequence[float] = [0.1, 0.1, 0.2, 0.2],  # noqa: B006
    flip: bool = True,
    clip: bool = False,
    kernel_size: int = 1,
    pad: int = 0,
    stride: int = 1,
    name: str | None = None,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[Variable, Variable, Variable, Variable]:
    """SSD's heads: prior boxes for each feature map, and convolutions that predict their offsets and class scores.

    Args:
        inputs: feature maps [N, C_i, H_i, W_i]; image: [N, C, height, width].
        base_size, min_ratio, max_ratio: determine the sizes if ``min_sizes`` is not given: a tenth and a fifth of
            ``base_size`` for the first map, then equally spaced ratios in percent.
        aspect_ratios, min_sizes, max_sizes: a number or a list for each map.
        steps, step_w, step_h: spacing of the cells for each map.
        kernel_size, pad, stride: of the convolutions; others as for ``prior_box``.

    Returns:
        Offsets [N, M, 4], scores [N, M, num_classes], boxes [M, 4], variances [M, 4].

    Raises:
        ValueError: a list has the wrong length, or there are fewer than three maps and no ``min_sizes``.
    """
    if not isinstance(inputs, (list, tuple)):
        raise ArgumentError(f"inputs should be a list or tuple, received {type(inputs).__name__}. Pass feature maps.")
    count = len(inputs)
    if min_sizes is None:
        min_sizes, max_sizes = _ratio_sizes(count, base_size, min_ratio, max_ratio)
    _check_lengths(count, aspect_ratios=aspect_ratios, step_w=step_w, step_h=step_h, steps=steps)
    if steps is not None:
        step_w = step_h = steps
    boxes: list[Variable] = []
    spreads: list[Variable] = []
    found: tuple[list[Variable], list[Variable]] = ([], [])
    for i, map_ in enumerate(inputs):
        sizes = _listed(min_sizes[i]), _listed(max_sizes[i]) if max_sizes else None
        step = [step_w[i] if step_w else 0.0, step_h[i] if step_h else 0.0]
        ratios = _listed(aspect_ratios[i]) if aspect_ratios is not None else []
        order = min_max_aspect_ratios_order
        box, spread = prior_box(map_, image, *sizes, ratios, variance, flip, clip, step, offset, None, order)
        boxes.append(box)
        spreads.append(spread)
        for maps, width in zip(found, (4, num_classes), strict=True):
            maps.append(_predicted(map_, box.shape[2] * width, kernel_size, stride, pad))
    return _joined(boxes, spreads, *found, num_classes)


def _predicted(map_: Variable, width: int, kernel_size: int, stride: int, pad: int) -> Variable:
    """[N, cells * width]: the predictions of a convolution for the cells of a feature map."""
    out = conv2d(map_, width, kernel_size, stride=stride, padding=pad)
    return flatten(transpose(out, perm=[0, 2, 3, 1]), axis=1)


def _joined(
    boxes: list[Variable], spreads: list[Variable], offsets: list[Variable], scores: list[Variable], classes: int
) -> tuple[Variable, Variable, Variable, Variable]:
    if len(boxes) == 1:
        box, spread = boxes[0], spreads[0]
        location, confidence = offsets[0], scores[0]
    else:
        pairs = [(flatten(b, axis=3), flatten(s, axis=3)) for b, s in zip(boxes, spreads, strict=True)]
        box, spread = concat([p[0] for p in pairs]), concat([p[1] for p in pairs])
        location = reshape(concat(offsets, axis=1), shape=[0, -1, 4])
        confidence = reshape(concat(scores, axis=1), shape=[0, -1, classes])
    box.stop_gradient = True
    spread.stop_gradient = True
    return location, confidence, box, spread


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _ratio_sizes(
    count: int, base_size: int, min_ratio: int | None, max_ratio: int | None
) -> tuple[list[float], list[float]]:
    if count <= 2 or min_ratio is None or max_ratio is None:
        raise ArgumentError(
            f"multi_box_head: without min_sizes expected min_ratio, max_ratio and at least 3 feature maps, received"
            f" {min_ratio}, {max_ratio} and {count}. Pass min_sizes and max_sizes."
        )
    step = int(math.floor((max_ratio - min_ratio) / (count - 2)))
    low, high = [base_size * 0.10], [base_size * 0.20]
    for ratio in range(min_ratio, max_ratio + 1, step):
        low.append(base_size * ratio / 100.0)
        high.append(base_size * (ratio + step) / 100.0)
    return low, high


def _check_lengths(count: int, **lists: Sequence[Any] | None) -> None:
    for what, values in lists.items():
        if values is not None and len(values) != count:
            raise ArgumentError(
                f"multi_box_head: {what} should have one entry for each of the {count} feature maps, received"
                f" {len(values)}. Make their lengths equal."
            )
