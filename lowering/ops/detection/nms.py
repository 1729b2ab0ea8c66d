"""Non-maximum suppression. The number of boxes kept depends on the data, so these run on the host, on unpadded rows.

An image without boxes left is an empty sequence; a batch without any box is a single row [[-1]], as in Fluid.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from lowering.ops.detection import roomy_levels
from lowering.ops.detection import roomy_nms as roomy
from lowering.ops.detection.match import host
from lowering.ops.detection.polygon_overlap import polygon_overlap
from lowering.program import PADDLE_2, VarInfo
from lowering.registry import Value, op
from lowering.values import LoDArray, data_of, exact

Kept = list[tuple[int, int]]  # (class, box) of one image


def overlaps(box: np.ndarray, others: np.ndarray, normalized: bool) -> np.ndarray:
    """Intersection over union of one box with others [k, 4]; inverted boxes have no area.

    It is NaN if both have no area and touch, and for boxes that are not finite: Fluid suppresses such boxes.
    Boxes with 8 or more coordinates are convex polygons (x0, y0, x1, y1, ...).
    """
    if box.shape[-1] != 4:
        return np.asarray([polygon_overlap(box.reshape(-1, 2), other.reshape(-1, 2)) for other in others])
    extra = 0 if normalized else 1

    def area(b: np.ndarray) -> np.ndarray:
        w, h = b[..., 2] - b[..., 0], b[..., 3] - b[..., 1]
        return np.where((w < 0) | (h < 0), 0, (w + extra) * (h + extra))

    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    apart = (others[:, 0] > box[2]) | (others[:, 2] < box[0]) | (others[:, 1] > box[3]) | (others[:, 3] < box[1])
    with np.errstate(all="ignore"):
        sides = high - low + extra
        common = sides[:, 0] * sides[:, 1]
        return np.where(apart, 0, common / (area(box) + area(others) - common))


def suppress(
    boxes: np.ndarray,
    scores: np.ndarray,
    threshold: float,
    *,
    limit: float = -np.inf,
    top: int = -1,
    eta: float = 1.0,
    normalized: bool = True,
    most: int = -1,
) -> list[int]:
    """Indices of the boxes kept, best first: those that overlap no better one by more than ``threshold``.

    Only the ``top`` best scores above ``limit`` are considered; with eta < 1, a threshold above 0.5 is multiplied by
    eta after each box kept. Stops once ``most`` are kept.
    """
    rest = np.argsort(-scores, kind="stable")
    rest = rest[scores[rest] > limit]
    rest = rest[:top] if top > -1 else rest
    worst = np.full(len(rest), -np.inf)  # the largest overlap of each candidate with a box kept
    kept: list[int] = []
    while len(rest) and len(kept) != most:
        kept.append(int(rest[0]))
        if eta < 1 and threshold > 0.5:
            threshold *= eta
        worst = np.maximum(worst[1:], overlaps(boxes[rest[0]], boxes[rest[1:]], normalized))
        free = worst <= threshold  # not of NaN
        rest, worst = rest[1:][free], worst[free]
    return kept


def _images(bboxes: Value, scores: Value) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """(boxes [C or 1, M, 4], scores [C, M], index of the first row) image by image, from either form of input."""
    score, box = np.asarray(data_of(exact(scores))), np.asarray(data_of(exact(bboxes)))
    if score.ndim == 3:
        for i in range(score.shape[0]):
            yield box[i][None], score[i], i * box.shape[1]
        return
    _, offsets = host(scores)
    for start, end in zip(offsets[:-1], offsets[1:], strict=True):
        yield box[start:end].swapaxes(0, 1), score[start:end].T, int(start)


def best(kept: Kept, scores: np.ndarray, top: int, by_index: bool) -> Kept:
    """At most ``top`` of the boxes kept, class by class; ``by_index`` orders the boxes of a class by index."""
    fits = top <= -1 or len(kept) <= top
    chosen = kept if fits else sorted(kept, key=lambda pair: -scores[pair])[:top]
    return sorted(chosen, key=(lambda pair: pair) if by_index else (lambda pair: pair[0]))


def _by_class(boxes: np.ndarray, scores: np.ndarray, background: int, **options) -> Kept:
    kept: Kept = []
    for label in range(scores.shape[0]):
        if label == background:
            continue
        own = boxes[label if boxes.shape[0] > 1 else 0]
        kept += [(label, i) for i in suppress(own, scores[label], **options)]
    return kept


def detections(found: list[tuple[np.ndarray, np.ndarray, Kept]], dtype: np.dtype, *, placeholder: bool) -> LoDArray:
    """Rows (label, score, box) of all images under one LoD level."""
    rows = [
        [label, scores[label, i], *boxes[label if boxes.shape[0] > 1 else 0, i]]
        for boxes, scores, kept in found
        for label, i in kept
    ]
    offsets = np.cumsum([0, *(len(kept) for _, _, kept in found)]).astype(np.int32)
    if rows:
        return LoDArray(np.asarray(rows, dtype), (offsets,))
    width = found[0][0].shape[-1] + 2 if found else 6
    if placeholder:
        return LoDArray(np.full((1, 1), -1, dtype), (np.array([0, 1], np.int32),))
    return LoDArray(np.zeros((0, width), dtype), (offsets,))


def infer_detections(op_view, var_of, level=1):
    """Shapes of the rows (label, score, box) that suppression leaves, and of their indices."""
    boxes, scores = (var_of(op_view.inputs[slot][0]) for slot in ("BBoxes", "Scores"))
    width = boxes.shape[-1] + 2 if boxes is not None and boxes.shape else -1
    # Fluid declares as many rows as there are boxes, whatever will be left of them.
    rows = boxes.shape[1] if boxes is not None and scores is not None and len(scores.shape) == 3 else -1
    found = {op_view.outputs["Out"][0]: VarInfo((rows, width), boxes.dtype if boxes is not None else 5, level)}
    for name in op_view.outputs.get("Index") or ():
        found[name] = VarInfo((rows, 1), None, 1)
    return found


def _multiclass(bboxes, scores, background_label, score_threshold, nms_top_k, keep_top_k, **options):
    flat = np.ndim(data_of(scores)) == 2
    found, starts = [], []
    for boxes, score, start in _images(bboxes, scores):
        kept = _by_class(boxes, score, background_label, limit=score_threshold, top=nms_top_k, **options)
        found.append((boxes, score, best(kept, score, keep_top_k, flat)))
        starts.append(start)
    return found, starts


@op(diff="", lod=None, kind="host", moves="late", slots={"bboxes": "BBoxes"}, infer=infer_detections)
def multiclass_nms(
    bboxes: Value,
    scores: Value,
    *,
    background_label: int = 0,
    score_threshold: float,
    nms_top_k: int,
    nms_threshold: float = 0.3,
    nms_eta: float = 1.0,
    keep_top_k: int,
    normalized: bool = True,
):
    """NMS for each class, then the ``keep_top_k`` best: rows (label, score, x0, y0, x1, y1), one LoD level.

    BBoxes [N, M, 4] with Scores [N, C, M]; or both with LoD, [rows, C, 4] and [rows, C]. Without any detection, the
    result is [[-1]]. Runs on the host.
    """
    options = {"threshold": nms_threshold, "eta": nms_eta, "normalized": normalized}
    found, _ = _multiclass(bboxes, scores, background_label, score_threshold, nms_top_k, keep_top_k, **options)
    return detections(found, data_of(bboxes).dtype, placeholder=True)


multiclass_nms.with_room(roomy.multiclass)


@op(out="Out Index~", diff="", lod=None, kind="host", moves="late", slots={"bboxes": "BBoxes"}, infer=infer_detections)
def multiclass_nms2(
    bboxes: Value,
    scores: Value,
    *,
    background_label: int = 0,
    score_threshold: float,
    nms_top_k: int,
    nms_threshold: float = 0.3,
    nms_eta: float = 1.0,
    keep_top_k: int,
    normalized: bool = True,
):
    """As multiclass_nms, with Index [No, 1], the row of each box in BBoxes flattened to [-1, 4]; may have no rows."""
    options = {"threshold": nms_threshold, "eta": nms_eta, "normalized": normalized}
    return with_index(bboxes, scores, background_label, score_threshold, nms_top_k, keep_top_k, **options)


multiclass_nms2.with_room(roomy.multiclass)


def with_index(bboxes, scores, *args, **options) -> tuple[LoDArray, LoDArray]:
    """The boxes kept, and the row of each in BBoxes; arguments as for ``_multiclass``."""
    found, starts = _multiclass(bboxes, scores, *args, **options)
    out = detections(found, data_of(bboxes).dtype, placeholder=False)
    flat = np.ndim(data_of(scores)) == 2
    index = [
        (start + i) * boxes.shape[0] + label if flat else start + i
        for start, (boxes, _, kept) in zip(starts, found, strict=True)
        for label, i in kept
    ]
    return out, LoDArray(np.asarray(index, np.int32).reshape(-1, 1), out.lod)


def _decayed(boxes: np.ndarray, scores: np.ndarray, normalized: bool, sigma: float | None) -> np.ndarray:
    """Matrix NMS: scores in decreasing order, each decayed by the better boxes it overlaps."""
    count = len(boxes)
    iou = np.zeros((count, count))
    for i in range(1, count):
        iou[i, :i] = np.nan_to_num(overlaps(boxes[i], boxes[:i], normalized), nan=0.0)
    worst = iou.max(axis=1, initial=0)
    decay = np.ones(count)
    for i in range(1, count):
        if sigma is not None:
            ratios = np.exp((worst[:i] ** 2 - iou[i, :i] ** 2) * sigma)
        else:
            with np.errstate(divide="ignore", invalid="ignore"):  # boxes on top of each other
                ratios = (1 - iou[i, :i]) / (1 - worst[:i])
        decay[i] = np.fmin.reduce(ratios, initial=1.0)
    return scores * decay


@op(
    out="Out Index RoisNum?",
    diff="",
    lod=None,
    kind="host",
    moves="late",
    slots={"bboxes": "BBoxes"},
    infer=infer_detections,
    newer="rois_num",
)
def matrix_nms(
    bboxes: Value,
    scores: Value,
    *,
    background_label: int = 0,
    score_threshold: float,
    post_threshold: float = 0.0,
    nms_top_k: int,
    keep_top_k: int,
    normalized: bool = True,
    use_gaussian: bool = False,
    gaussian_sigma: float = 2.0,
    ctx,
):
    """NMS by decayed scores: s_i min_j f(iou_ij) / f(max_k iou_jk) over better j.

    f(x) = 1 - x, or exp(-sigma x^2) with ``use_gaussian``.

    Rows (label, decayed score, box) above ``post_threshold``, best first, with one LoD level, which Paddle 2 replaces
    by RoisNum. Runs on the host.
    """
    sigma = gaussian_sigma if use_gaussian else None
    rows, index, offsets = [], [], [0]
    for boxes, score, start in _images(bboxes, scores):
        found = []
        for label in range(score.shape[0]):
            order = np.argsort(-score[label], kind="stable")
            order = order[score[label][order] > score_threshold]
            order = order[:nms_top_k] if nms_top_k > -1 else order
            if label == background_label or not len(order):
                continue
            decayed = _decayed(boxes[0][order], score[label][order], normalized, sigma)
            found += [(label, s, i) for s, i in zip(decayed, order, strict=True) if s > post_threshold]
        found.sort(key=lambda item: -item[1])
        found = found[:keep_top_k] if keep_top_k > -1 else found
        rows += [[label, s, *boxes[0][i]] for label, s, i in found]
        index += [start + i for _, _, i in found]
        offsets.append(len(rows))
    lod = (np.asarray(offsets, np.int32),)
    data = np.asarray(rows, data_of(bboxes).dtype).reshape(-1, data_of(bboxes).shape[-1] + 2)
    at = np.asarray(index, np.int32).reshape(-1, 1)
    if ctx.release >= PADDLE_2:
        return data, at, counts(lod)
    return LoDArray(data, lod), LoDArray(at, lod), counts(lod)


matrix_nms.with_room(roomy.matrix)


def counts(lod: tuple[np.ndarray, ...]) -> np.ndarray:
    """The number of rows of each image, int32 [N]: used by Paddle 2 alongside, and later instead of, a LoD."""
    return np.diff(lod[0]).astype(np.int32)


def _merged(boxes: np.ndarray, scores: np.ndarray, threshold: float, normalized: bool) -> tuple[np.ndarray, np.ndarray]:
    """Locality-aware merging: runs of overlapping neighbours are merged into one box, weighted by score."""
    boxes, scores = boxes.copy(), scores.copy()
    current, kept = -1, np.zeros(len(boxes), bool)
    for i in range(len(boxes)):
        if current >= 0 and overlaps(boxes[i], boxes[current][None], normalized)[0] > threshold:
            total = scores[i] + scores[current]
            boxes[current] = (boxes[i] * scores[i] + boxes[current] * scores[current]) / total
            scores[current] = total
        else:
            current = i
            kept[i] = True
    scores[~kept] = -np.inf
    return boxes, scores


@op(diff="", lod=None, kind="host", moves="late", slots={"bboxes": "BBoxes"}, infer=partial(infer_detections, level=0))
def locality_aware_nms(
    bboxes: Value,
    scores: Value,
    *,
    background_label: int = -1,
    score_threshold: float,
    nms_top_k: int,
    nms_threshold: float = 0.3,
    nms_eta: float = 1.0,
    keep_top_k: int,
    normalized: bool = True,
):
    """multiclass_nms after merging overlapping neighbours, weighted by score (EAST). Runs on the host."""
    found = []
    for boxes, score, _ in _images(bboxes, scores):
        pairs = [_merged(boxes[0], s, nms_threshold, normalized) for s in score]
        boxes, score = np.stack([p[0] for p in pairs]), np.stack([p[1] for p in pairs])
        options = {"threshold": nms_threshold, "eta": nms_eta, "normalized": normalized}
        kept: Kept = []
        for label in range(len(score)):
            if label != background_label:
                own = suppress(boxes[label], score[label], limit=score_threshold, top=nms_top_k, **options)
                kept += [(label, i) for i in own]
        found.append((boxes, score, best(kept, score, keep_top_k, False)))
    return detections(found, data_of(bboxes).dtype, placeholder=True)


locality_aware_nms.with_room(roomy_levels.locality_aware)
