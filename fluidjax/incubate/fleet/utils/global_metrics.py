"""Metrics of a click model, from sums over all workers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_WIDTH = 0.01  # of the predictions that share a bucket
_CERTAIN = 0.05  # the relative error below which a bucket counts


def area_under_curve(positives: Any, negatives: Any) -> float:
    """The area under the ROC curve.

    Args:
        positives: [n], number of examples with label 1 predicted as i / n.
        negatives: [n], of label 0.

    Returns:
        The area; 0.5 if a label is missing.
    """
    pos, neg = (np.asarray(counts, np.float64)[::-1] for counts in (positives, negatives))
    reached = np.cumsum(pos)
    area, pairs = float(np.sum(neg * (2 * reached - pos) / 2)), float(pos.sum() * neg.sum())
    return area / pairs if pairs else 0.5


def bucket_error(positives: Any, negatives: Any) -> float:
    """The deviation of clicks from predictions, averaged over buckets weighted by their numbers of examples.

    A bucket collects neighbouring predictions until it is statistically certain enough, or wider than 0.01.

    Args:
        positives: [n], number of examples with label 1 predicted as i / n.
        negatives: [n], of label 0.
    """
    start, shows, predicted, clicks = -1.0, 0.0, 0.0, 0.0
    error = counted = 0.0
    for i, (click, other) in enumerate(zip(positives, negatives, strict=True)):
        rate = i / len(positives)
        if abs(rate - start) > _WIDTH:
            start, shows, predicted, clicks = rate, 0.0, 0.0, 0.0
        shows, predicted, clicks = shows + click + other, predicted + rate * (click + other), clicks + click
        if shows == 0 or predicted == 0:
            continue
        mean = predicted / shows
        if math.sqrt((1 - mean) / (mean * shows)) < _CERTAIN:
            error, counted, start = error + abs(clicks / shows / mean - 1) * shows, counted + shows, -1.0
    return error / counted if counted else 0.0


def figures(positives: Any, negatives: Any, sums: dict[str, Any]) -> list[Any]:
    """All metrics of a click model.

    Args:
        positives: [n], number of examples with label 1 predicted as i / n.
        negatives: [n], of label 0.
        sums: of squared and absolute errors (sqrerr, abserr), predictions (prob, q), clicks (pos), examples (total).

    Returns:
        AUC, bucket error, mean absolute error, root mean squared error, actual and predicted click-through rate, their
        ratio (0 if nothing is predicted), the mean of q, and the number of examples.
    """
    total, clicked = sums["total"], sums["pos"] / sums["total"]
    predicted = sums["prob"] / total
    return [
        area_under_curve(positives, negatives),
        bucket_error(positives, negatives),
        sums["abserr"] / total,
        math.sqrt(sums["sqrerr"] / total),
        clicked,
        predicted,
        clicked / predicted if predicted > 1e-6 else 0.0,
        sums["q"] / total,
        int(total),
    ]
