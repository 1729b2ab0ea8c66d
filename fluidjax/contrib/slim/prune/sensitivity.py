"""How much of a metric is lost, as a function of the ratio of filters that a layer loses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fluidjax.base.optional import optional

Table = dict[str, dict[str, Any]]  # parameter -> {"pruned_percent": ratios, "loss": as many, "size": filters}
_AT_ZERO = 5  # how often the point (0, 0), which is certain, counts in the fit


def ratios(delta: float) -> list[float]:
    """The multiples of ``delta`` below 1, each rounded to 0.01 before the next is added."""
    found, ratio = [], round(delta, 2)
    while ratio < 1:
        found.append(ratio)
        ratio = round(ratio + delta, 2)
    return found


def fitted(entry: Mapping[str, Any]) -> np.ndarray:
    """The coefficients, highest first, of the cubic with the least squared error from the measured losses."""
    optimize = optional("scipy.optimize", "SensitivePruneStrategy fits curves", "scipy")
    ratio = np.array([0.0] * _AT_ZERO + list(entry["pruned_percent"]))
    loss = np.array([0.0] * _AT_ZERO + list(entry["loss"]))
    # Fewer than four ratios do not determine a cubic: from this start it is the one that Paddle takes.
    return optimize.leastsq(lambda cubic: np.polyval(cubic, ratio) - loss, [10.0] * 4)[0]


def ratio_at(cubic: np.ndarray, loss: float, entry: Mapping[str, Any]) -> float:
    """A ratio in (0, 1) at which ``loss`` is reached; the largest measured one if it is nowhere.

    Of several, which only noise makes, the last that ``numpy.roots`` gives: 1.8.5's choice.
    """
    roots = np.roots([*cubic[:3], cubic[3] - loss])
    found = [float(root.real) for root in roots if np.isreal(root) and 0 < root.real < 1]
    return found[-1] if found else max(entry["pruned_percent"], default=0.0)
