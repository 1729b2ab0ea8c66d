"""generate_proposal_labels: samples regions for training a detector's second stage. A host op: their number varies."""

from __future__ import annotations

import numpy as np

from lowering.dtypes import INT32
from lowering.ops.detection.pixel_boxes import encode, generator, images, joined, pairwise, sample, sides
from lowering.program import VarInfo
from lowering.registry import Value, op
from lowering.values import data_of, exact

# Overlaps nearer than this to the best one are as good.
_EPSILON = 1e-5
_OUTPUTS = "Rois LabelsInt32 BboxTargets BboxInsideWeights BboxOutsideWeights"


def _infer(op_view, var_of):
    """Fluid declares no LoD for what is sampled of each image."""
    rois = var_of(op_view.inputs["RpnRois"][0])
    dtype = rois.dtype if rois is not None else None
    wide = VarInfo((-1, 4 * op_view.attrs["class_nums"]), dtype, 0)
    infos = [VarInfo((-1, 4), dtype, 0), VarInfo((-1, 1), INT32, 0), wide, wide, wide]
    return {op_view.outputs[slot][0]: info for slot, info in zip(_OUTPUTS.split(), infos, strict=True)}


def _candidates(rois: np.ndarray, truths: np.ndarray, crowd: np.ndarray, scale: float, cascade: bool):
    """(boxes in the image before scaling, ground truths first; which of them are crowds).

    In a cascade the regions come from the stage before, and their first ones are the ground truths it added, which are
    not scaled; regions that were refined to nothing are dropped.
    """
    head = len(truths)
    boxes = np.concatenate([rois[:head], rois[head:] / scale] if cascade else [truths, rois / scale])
    crowds = np.concatenate([crowd != 0, np.zeros(len(boxes), bool)])[: len(boxes)]
    if not cascade:
        return boxes, crowds
    w, h = sides(boxes)
    solid = (w > 0) & (h > 0)
    return boxes[solid], crowds[solid]


def _split(overlap: np.ndarray, crowds: np.ndarray, fg_thresh: float, bg_low: float, bg_high: float):
    """Positions of foreground boxes, the ground truth of each, and positions of background boxes."""
    best = np.where(crowds, -1, overlap.max(axis=1, initial=0))
    foreground = np.flatnonzero(best >= fg_thresh)
    background = np.flatnonzero((best < fg_thresh) & (best >= bg_low) & (best < bg_high))
    near = np.abs(overlap[foreground] - best[foreground, None]) < _EPSILON
    truth = near.argmax(axis=1) if overlap.shape[1] else np.zeros(0, np.int64)
    return foreground, truth, background


def _spread(values: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """[k, 4 * classes]: the four values of each row at its class; rows of class 0 stay zero."""
    wide = np.zeros((len(labels), classes, 4), values.dtype)
    rows = np.flatnonzero(labels > 0)
    wide[rows, labels[rows]] = values[rows]
    return wide.reshape(len(labels), 4 * classes)


@op(out=_OUTPUTS, diff="", lod=None, kind="host", moves="late", infer=_infer)
def generate_proposal_labels(
    rpn_rois: Value,
    gt_classes: Value,
    is_crowd: Value,
    gt_boxes: Value,
    im_info: Value,
    *,
    batch_size_per_im: int,
    fg_fraction: float,
    fg_thresh: float,
    bg_thresh_hi: float,
    bg_thresh_lo: float,
    bbox_reg_weights: list[float],
    class_nums: int,
    use_random: bool = True,
    is_cascade_rcnn: bool = False,
    is_cls_agnostic: bool = False,
    key,
):
    """Sample regions to train on, foreground first: Rois [R, 4], LabelsInt32 [R, 1], targets, weights [R, 4 classes].

    RpnRois [., 4] and, for each image, GtBoxes [G, 4], GtClasses [G], IsCrowd [G] with LoD; ImInfo [N, 3]. A region is
    foreground if it overlaps a ground truth by ``fg_thresh``, background within [bg_thresh_lo, bg_thresh_hi); at most
    ``batch_size_per_im`` are sampled, ``fg_fraction`` of them foreground. Targets are deltas over ``bbox_reg_weights``,
    stored at the class (at 1 for all classes if ``is_cls_agnostic``). A cascade uses all regions.
    One LoD level. Runs on the host.
    """
    rng = generator(key, use_random)
    found: list[list[np.ndarray]] = []
    info = np.asarray(data_of(exact(im_info)))
    each = (images(v) for v in (rpn_rois, gt_classes, is_crowd, gt_boxes))
    for rois, classes, crowd, truths, row in zip(*each, info, strict=True):
        boxes, crowds = _candidates(rois, truths, crowd.reshape(-1), row[2], is_cascade_rcnn)
        overlap = pairwise(boxes, truths)
        foreground, truth, background = _split(overlap, crowds, fg_thresh, bg_thresh_lo, bg_thresh_hi)
        if not is_cascade_rcnn:
            some = sample(foreground, int(np.floor(batch_size_per_im * fg_fraction)), rng)
            foreground, truth = foreground[some], truth[some]
            background = background[sample(background, batch_size_per_im - len(foreground), rng)]
        labels = np.zeros(len(foreground) + len(background), np.int32)
        labels[: len(foreground)] = classes.reshape(-1)[truth]
        deltas = np.zeros((len(labels), 4), boxes.dtype)
        deltas[: len(foreground)] = encode(boxes[foreground], truths[truth], bbox_reg_weights)
        place = np.minimum(labels, 1) if is_cls_agnostic else labels
        weights = _spread(np.ones_like(deltas), place, class_nums)
        chosen = boxes[np.concatenate([foreground, background])] * row[2]
        found.append([chosen, labels[:, None], _spread(deltas, place, class_nums), weights, weights])
    return tuple(joined(parts) for parts in zip(*found, strict=True))
