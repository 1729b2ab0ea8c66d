"""detection_map: mean average precision of detections, accumulated over batches; a host op, its state being ragged."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from lowering.dtypes import FP32
from lowering.program import VarInfo
from lowering.registry import Value, op
from lowering.values import LoDArray, data_of

POINTS = 11
Hits = dict[int, list[tuple[float, int]]]  # class -> (score, 0 or 1) in the order met


def _offsets(value: Any) -> np.ndarray:
    if isinstance(value, LoDArray) and value.lod:
        return np.asarray(value.lod[0])
    return np.array([0, len(data_of(value))])


def _overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of boxes x1, y1, x2, y2."""
    if b[0] > a[2] or b[2] < a[0] or b[1] > a[3] or b[3] < a[1]:
        return 0.0
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    inter = sides[0] * sides[1]
    areas = [(v[2] - v[0]) * (v[3] - v[1]) for v in (a, b)]
    return float(inter / (areas[0] + areas[1] - inter))


def _read_state(pos_count: Any, true_pos: Any, false_pos: Any) -> tuple[dict[int, int], Hits, Hits]:
    counts = {i: int(n) for i, n in enumerate(np.asarray(data_of(pos_count)).reshape(-1)) if n}
    return counts, _read_hits(true_pos), _read_hits(false_pos)


def _read_hits(value: Any) -> Hits:
    rows, offsets = np.asarray(data_of(value)), _offsets(value)
    hits: Hits = defaultdict(list)
    for label, (start, stop) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        hits[label] += [(float(score), int(flag)) for score, flag in rows[start:stop]]
    return hits


def _truth(rows: np.ndarray) -> dict[int, list[tuple[np.ndarray, bool]]]:
    """class -> (box, difficult) of one image's label rows [class, (difficult,) x1, y1, x2, y2]."""
    found = defaultdict(list)
    for row in rows:
        difficult = row.shape[0] == 6 and abs(row[1]) >= 1e-6
        found[int(row[0])].append((row[-4:], bool(difficult)))
    return found


def _judge(detections: list[np.ndarray], truth: list, threshold: float, evaluate_difficult: bool) -> list:
    """(score, whether it is correct) of one image's detections of a class, by decreasing score (in the given order
    if there is no ground truth); each ground truth is matched once.
    """
    if not truth:
        return [(float(row[1]), 0) for row in detections]
    taken, judged = [False] * len(truth), []
    for row in sorted(detections, key=lambda r: -r[1]):
        box = np.clip(row[2:6], 0, 1)
        overlaps = [_overlap(box, other) for other, _ in truth]
        best = int(np.argmax(overlaps)) if overlaps else -1
        if best < 0 or overlaps[best] <= threshold:
            judged.append((float(row[1]), 0))
        elif evaluate_difficult or not truth[best][1]:
            judged.append((float(row[1]), 0 if taken[best] else 1))
            taken[best] = True
    return judged


def _average_precision(hits: list, misses: list, positives: int, ap_type: str) -> float:
    order = sorted(range(len(hits)), key=lambda i: -hits[i][0])
    tp = np.cumsum([hits[i][1] for i in order])
    fp = np.cumsum([misses[i][1] for i in order])
    precision, recall = tp / np.maximum(tp + fp, 1), tp / positives
    if ap_type == "11point":
        return float(sum(precision[recall >= j / 10.0].max(initial=0.0) for j in range(POINTS)) / POINTS)
    steps = np.diff(recall, prepend=0.0)
    return float(np.sum(precision * np.where(np.abs(steps) > 1e-6, np.abs(steps), 0)))


def _write_hits(hits: Hits, class_num: int, dtype: np.dtype) -> LoDArray:
    rows = [pair for label in range(class_num) for pair in hits.get(label, ())]
    lengths = [len(hits.get(label, ())) for label in range(class_num)]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return LoDArray(np.array(rows, dtype).reshape(-1, 2), (offsets,))


def _infer(op, var_of):
    return {op.outputs["MAP"][0]: VarInfo((1,), FP32, 0)}


OUTPUTS = "AccumPosCount AccumTruePos AccumFalsePos MAP"


@op(out=OUTPUTS, slots={"map": "MAP"}, diff=(), lod=None, kind="host", moves="late", infer=_infer)
def detection_map(
    detect_res: Value,
    label: Value,
    has_state: Value = None,
    pos_count: Value = None,
    true_pos: Value = None,
    false_pos: Value = None,
    *,
    class_num: int,
    background_label: int = 0,
    overlap_threshold: float = 0.5,
    evaluate_difficult: bool = True,
    ap_type: str = "integral",
):
    """MAP [1] = mean over classes of the average precision of DetectRes [M, 6] (class, score, box) against Label.

    The classes are those with ground truth; as in Fluid, one is skipped if its *number* of objects is background_label.
    A detection is correct if it overlaps its best match by more than overlap_threshold and is the first to do so. The
    state holds positives per class [class_num, 1] and, with one sequence per class, (score, 1 or 0) of each detection.
    Fractions have the dtype of DetectRes.
    """
    counts: dict[int, int] = {}
    hits: Hits = defaultdict(list)
    misses: Hits = defaultdict(list)
    if has_state is not None and int(np.asarray(data_of(has_state)).reshape(-1)[0]):
        counts, hits, misses = _read_state(pos_count, true_pos, false_pos)
    found, truth_rows = np.asarray(data_of(detect_res)), np.asarray(data_of(label))
    starts, truth_starts = _offsets(detect_res), _offsets(label)
    for image in range(len(truth_starts) - 1):
        truth = _truth(truth_rows[truth_starts[image] : truth_starts[image + 1]])
        for cls, boxes in truth.items():
            counted = len(boxes) if evaluate_difficult else sum(not difficult for _, difficult in boxes)
            if counted:
                counts[cls] = counts.get(cls, 0) + counted
        rows = found[starts[image] : starts[image + 1]]
        for cls in sorted({int(r[0]) for r in rows}):
            mine = [r for r in rows if int(r[0]) == cls]
            judged = _judge(mine, truth.get(cls, []), overlap_threshold, evaluate_difficult)
            hits[cls] += judged
            misses[cls] += [(score, 1 - right) for score, right in judged]
    average = [
        _average_precision(hits[cls], misses[cls], counts[cls], ap_type) if hits.get(cls) else 0.0
        for cls in sorted(counts)
        if counts[cls] != background_label
    ]
    positives = np.array([counts.get(cls, 0) for cls in range(class_num)], np.int32).reshape(-1, 1)
    mean = np.array([sum(average) / len(average) if average else 0.0], found.dtype)
    return positives, *(_write_hits(pairs, class_num, found.dtype) for pairs in (hits, misses)), mean
