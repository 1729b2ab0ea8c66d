"""Anchors against ground truth, for training: rpn_target_assign and retinanet_target_assign.

The number of anchors selected depends on the data, so these ops run on the host, image by image.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lowering.dtypes import INT32
from lowering.ops.detection.pixel_boxes import encode, generator, images, joined, pairwise, sample
from lowering.program import VarInfo
from lowering.registry import Value, op
from lowering.values import data_of, exact

# Overlaps nearer than this count as equal to the best overlap of a ground truth.
_EPSILON = 1e-5


@dataclass(frozen=True)
class Chosen:
    """The selection for one image, as positions among its anchors and ground truths."""

    location: np.ndarray  # anchors whose boxes are trained, stand-ins first
    score: np.ndarray  # anchors whose scores are trained, foreground first
    truth: np.ndarray  # the ground truth of each of ``location``
    foreground: int  # how many of ``score`` are foreground
    weight: np.ndarray  # [len(location), 4]: zero for a stand-in


def _infer(op_view, var_of):
    anchor = var_of(op_view.inputs["Anchor"][0])
    dtype = anchor.dtype if anchor is not None else None
    shapes = {
        "LocationIndex": VarInfo((-1,), INT32, 0),
        "ScoreIndex": VarInfo((-1,), INT32, 0),
        "TargetBBox": VarInfo((-1, 4), dtype, 0),
        "TargetLabel": VarInfo((-1, 1), INT32, 0),
        "BBoxInsideWeight": VarInfo((-1, 4), dtype, 0),
        "ForegroundNumber": VarInfo((-1, 1), INT32, 0),
    }
    return {name: info for slot, info in shapes.items() for name in op_view.outputs.get(slot) or ()}


def _overlapping(overlap: np.ndarray, positive: float) -> np.ndarray:
    """Anchors whose overlap with some ground truth reaches ``positive``, or that are the closest to one."""
    if not overlap.shape[1]:
        return np.zeros(0, np.int64)
    nearest = (np.abs(overlap - overlap.max(axis=0, initial=0)) < _EPSILON).any(axis=1)
    return np.flatnonzero(nearest | (overlap.max(axis=1) >= positive))


def _choose(overlap: np.ndarray, positive: float, negative: float, limits=None, rng=None) -> Chosen:
    """Foreground and background anchors; ``limits`` bound the number of foregrounds and the total, None for no bounds.

    An anchor that is closest to its ground truth but overlaps by less than ``negative`` becomes background; the box
    trained in its place is that of the first foreground anchor, with weight zero, as in Fluid.
    """
    dtype = overlap.dtype
    near = _overlapping(overlap, positive)
    far = np.flatnonzero(overlap.max(axis=1, initial=0) < negative)
    if limits is not None:
        near = near[sample(near, limits[0], rng)]
        far = far[sample(far, limits[1] - len(near), rng)]
    both = np.isin(near, far)
    foreground = near[~both]
    stand_ins = np.repeat(near[:1], int(both.sum()))
    location = np.concatenate([stand_ins, foreground])
    weight = np.repeat(np.r_[np.zeros(len(stand_ins)), np.ones(len(foreground))].astype(dtype)[:, None], 4, axis=1)
    truth = overlap[location].argmax(axis=1) if overlap.shape[1] else np.zeros(0, np.int64)
    return Chosen(location, np.concatenate([foreground, far]), truth, len(foreground), weight)


def _inside(anchors: np.ndarray, info: np.ndarray, margin: float) -> np.ndarray:
    """Positions of the anchors that extend beyond the image by less than ``margin``; all if it is negative."""
    if margin < 0:
        return np.arange(len(anchors))
    low = (anchors[:, :2] >= -margin).all(axis=1)
    return np.flatnonzero(low & (anchors[:, 2] < info[1] + margin) & (anchors[:, 3] < info[0] + margin))


def _truths(gt_boxes: Value, is_crowd: Value, im_info: Value):
    """(ground-truth boxes in the scaled image, which of them are not crowds, image info) for each image."""
    info = np.asarray(data_of(exact(im_info)))
    for boxes, crowd, row in zip(images(gt_boxes), images(is_crowd), info, strict=True):
        alone = crowd.reshape(-1) == 0
        yield boxes[alone] * row[2], alone, row


_OUTPUTS = "LocationIndex ScoreIndex TargetBBox TargetLabel BBoxInsideWeight"
_HOST = {"diff": "", "lod": None, "kind": "host", "infer": _infer}


@op(out=_OUTPUTS, **_HOST)
def rpn_target_assign(
    anchor: Value,
    gt_boxes: Value,
    is_crowd: Value,
    im_info: Value,
    *,
    rpn_batch_size_per_im: int = 256,
    rpn_straddle_thresh: float,
    rpn_positive_overlap: float = 0.7,
    rpn_negative_overlap: float = 0.3,
    rpn_fg_fraction: float = 0.25,
    use_random: bool = True,
    key,
):
    """Select anchors and targets for training a region proposal network; one LoD level, image by image.

    Anchor [A, 4]; GtBoxes [G, 4] and IsCrowd [G] with LoD; ImInfo [N, 3] (height, width, scale). An anchor is
    foreground if it overlaps a ground truth by ``rpn_positive_overlap`` or is the closest to one, background below
    ``rpn_negative_overlap``; at most ``rpn_batch_size_per_im`` are sampled, ``rpn_fg_fraction`` of them foreground.
    LocationIndex, ScoreIndex: positions in [N * A]; TargetBBox [., 4] deltas, TargetLabel [., 1] 1 or 0.
    Runs on the host.
    """
    anchors = np.asarray(data_of(exact(anchor)))
    rng = generator(key, use_random)
    limits = (int(rpn_fg_fraction * rpn_batch_size_per_im), rpn_batch_size_per_im)
    limits = limits if rpn_fg_fraction > 0 and rpn_batch_size_per_im > 0 else None
    location, score, target, label, weight = [], [], [], [], []
    for i, (truths, _, info) in enumerate(_truths(gt_boxes, is_crowd, im_info)):
        inside = _inside(anchors, info, rpn_straddle_thresh)
        overlap = pairwise(anchors[inside], truths)
        found = _choose(overlap, rpn_positive_overlap, rpn_negative_overlap, limits, rng)
        location.append(inside[found.location] + i * len(anchors))
        score.append(inside[found.score] + i * len(anchors))
        target.append(encode(anchors[inside[found.location]], truths[found.truth]))
        label.append((np.arange(len(found.score)) < found.foreground)[:, None])
        weight.append(found.weight)
    whole = [joined(part, np.int32) for part in (location, score, label)]
    return whole[0], whole[1], joined(target), whole[2], joined(weight)


@op(out=_OUTPUTS + " ForegroundNumber", **_HOST)
def retinanet_target_assign(
    anchor: Value,
    gt_boxes: Value,
    gt_labels: Value,
    is_crowd: Value,
    im_info: Value,
    *,
    positive_overlap: float = 0.5,
    negative_overlap: float = 0.4,
):
    """As rpn_target_assign, for all anchors, without sampling: TargetLabel is the class, 0 for background.

    GtLabels [G, 1] (from 1). ForegroundNumber [N, 1] is the number of boxes trained in each image plus one, the
    divisor of the focal loss. Runs on the host.
    """
    anchors = np.asarray(data_of(exact(anchor)))
    location, score, target, label, weight, count = [], [], [], [], [], []
    labels = list(images(gt_labels))
    for i, (truths, alone, _) in enumerate(_truths(gt_boxes, is_crowd, im_info)):
        found = _choose(pairwise(anchors, truths), positive_overlap, negative_overlap)
        location.append(found.location + i * len(anchors))
        score.append(found.score + i * len(anchors))
        target.append(encode(anchors[found.location], truths[found.truth]))
        classes = np.zeros((len(found.score), 1), np.int32)
        own = labels[i].reshape(-1)[alone]
        classes[: found.foreground, 0] = own[found.truth[len(found.truth) - found.foreground :]]
        label.append(classes)
        weight.append(found.weight)
        count.append(np.array([[len(found.location) + 1]]))
    whole = [joined(part, np.int32) for part in (location, score, label, count)]
    return whole[0], whole[1], joined(target), whole[2], joined(weight), whole[3]
