"""WeightedAverage, the predecessor of fluid.metrics."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

__all__ = ["WeightedAverage"]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, np.ndarray) and value.shape == (1,))


class WeightedAverage:
    """sum(value weight) / sum(weight), of numbers or arrays; superseded by ``fluid.metrics.Accuracy``."""

    def __init__(self) -> None:
        warnings.warn(
            "The WeightedAverage is deprecated, please use fluid.metrics.Accuracy instead.", Warning, stacklevel=2
        )
        self.reset()

    def reset(self) -> None:
        """Discard all values."""
        self.numerator: Any = None
        self.denominator: Any = None

    def add(self, value: Any, weight: Any) -> None:
        """Add a value. Raises ValueError unless it is a number or array and the weight is a number."""
        if not _is_number(value) and not isinstance(value, np.ndarray):
            raise ValueError(
                f"The 'value' must be a number(int, float) or a numpy ndarray, received {type(value).__name__}."
                " Fetch it with return_numpy=True."
            )
        if not _is_number(weight):
            raise ValueError(f"The 'weight' must be a number(int, float), received {weight!r}. Convert it.")
        if self.numerator is None or self.denominator is None:
            self.numerator, self.denominator = value * weight, weight
        else:
            self.numerator = self.numerator + value * weight
            self.denominator = self.denominator + weight

    def eval(self) -> Any:
        """The average. Raises ValueError if no value was added."""
        if self.numerator is None or self.denominator is None:
            raise ValueError("There is no data to be averaged in WeightedAverage. Call add first.")
        return self.numerator / self.denominator
