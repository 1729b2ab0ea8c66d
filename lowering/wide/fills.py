"""Numbers that unused positions hold while an op runs, so that it takes all others before them."""

from __future__ import annotations

from typing import Any

import numpy as np


def lowest(dtype: Any) -> Any:
    """Nothing is smaller."""
    return -np.inf if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).min


def highest(dtype: Any) -> Any:
    """Nothing is larger."""
    return np.inf if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).max


def unordered(dtype: Any) -> Any:
    """Nothing comes after it in rising order, where NaN is last."""
    return np.nan if np.issubdtype(dtype, np.floating) else highest(dtype)
