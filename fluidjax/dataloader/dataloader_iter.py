"""How the samples of a batch become arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["default_collate_fn"]


def default_collate_fn(batch: Sequence[Any]) -> list[np.ndarray]:
    """Stack a list of samples field by field: [(x0, y0), (x1, y1)] -> [stacked x0, x1; stacked y0, y1]."""
    if isinstance(batch[0], np.ndarray):
        return [np.stack(batch, axis=0)]
    return [np.stack([np.asarray(value) for value in field], axis=0) for field in zip(*batch, strict=True)]
