"""Schedules that advance with every step: the rate is a closed-form function of ``step_num``.

In all of them, ``learning_rate`` is a float or a Variable of shape [1], ``begin`` the number of the first step and
``step`` the increment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidjax.framework import Variable
from fluidjax.layers._schedules.base import LearningRateDecay


class PiecewiseDecay(LearningRateDecay):
    """``values[i]`` while ``step_num < boundaries[i]``, the last value afterwards."""

    def __init__(
        self, boundaries: Sequence[float], values: Sequence[float], begin: int, step: int = 1, dtype: Any = "float32"
    ) -> None:
        super().__init__(begin, step, dtype)
        self.boundaries = boundaries
        self.values = values
        self.vars = list(values)

    def step(self) -> float:
        """The value on the interval containing ``step_num``."""
        for boundary, value in zip(self.boundaries, self.vars, strict=False):
            if self.step_num < boundary:
                return value
        return self.vars[-1]


class _PeriodicDecay(LearningRateDecay):
    """A rate that depends on ``step_num / decay_steps``, rounded down if ``staircase``."""

    def __init__(
        self,
        learning_rate: float | Variable,
        decay_steps: int,
        decay_rate: float,
        staircase: bool = False,
        begin: int = 0,
        step: int = 1,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(begin, step, dtype)
        self.learning_rate = learning_rate
        self.decay_steps = decay_steps
        self.decay_rate = decay_rate
        self.staircase = staircase
        self._operations += bool(staircase)

    def _decayed(self, periods: Any) -> Any:
        """The rate after so many periods, computed in their dtype."""
        raise NotImplementedError

    def step(self) -> Variable:
        """The rate at ``step_num``, a Variable of shape [1]."""
        periods = self._in_dtype(self.step_num / self.decay_steps)
        return self._variable(self._decayed(np.floor(periods) if self.staircase else periods))


class NaturalExpDecay(_PeriodicDecay):
    """learning_rate * exp(-decay_rate * step_num / decay_steps)."""

    _operations = 3

    def _decayed(self, periods: Any) -> Any:
        return self.learning_rate * self._in_dtype(math.exp(-self.decay_rate * periods))


class ExponentialDecay(_PeriodicDecay):
    """learning_rate * decay_rate ** (step_num / decay_steps)."""

    _operations = 3

    def _decayed(self, periods: Any) -> Any:
        return self.learning_rate * self.decay_rate**periods


class InverseTimeDecay(_PeriodicDecay):
    """learning_rate / (1 + decay_rate * step_num / decay_steps)."""

    _operations = 4

    def _decayed(self, periods: Any) -> Any:
        return self.learning_rate / (1 + self.decay_rate * periods)


class PolynomialDecay(LearningRateDecay):
    """(learning_rate - end_learning_rate) * (1 - step_num / decay_steps) ** power + end_learning_rate.

    ``step_num`` is capped at ``decay_steps``; with ``cycle``, the decay restarts instead, over periods of twice, three
    times ... ``decay_steps``.
    """

    def __init__(
        self,
        learning_rate: float | Variable,
        decay_steps: int,
        end_learning_rate: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        begin: int = 0,
        step: int = 1,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(begin, step, dtype)
        self.learning_rate = learning_rate
        self.decay_steps = decay_steps
        self.end_learning_rate = end_learning_rate
        self.power = power
        self.cycle = cycle
        self._operations = 9 if cycle else 6

    def step(self) -> Variable:
        """The rate at ``step_num``, a Variable of shape [1]."""
        if self.cycle:
            length = self.decay_steps * self._in_dtype(max(1, math.ceil(self.step_num / self.decay_steps)))
            passed = self.step_num / length
        else:
            passed = self._in_dtype(min(self.step_num, self.decay_steps)) * self._in_dtype(1 / self.decay_steps)
        end = self.end_learning_rate
        return self._variable((self.learning_rate - end) * (1 - passed) ** self.power + end)


class CosineDecay(LearningRateDecay):
    """learning_rate * 0.5 * (cos(epoch * pi / epochs) + 1), epoch = floor(step_num / step_each_epoch).

    The rate rises again after ``epochs``, as it does in Fluid.
    """

    _operations = 6

    def __init__(
        self,
        learning_rate: float | Variable,
        step_each_epoch: int,
        epochs: int,
        begin: int = 0,
        step: int = 1,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(begin, step, dtype)
        self.learning_rate = learning_rate
        self.step_each_epoch = step_each_epoch
        self.epochs = epochs

    def step(self) -> Variable:
        """The rate at ``step_num``, a Variable of shape [1]."""
        epoch = np.floor(self._in_dtype(self.step_num / self.step_each_epoch))
        angle = epoch * math.pi * self._in_dtype(1 / self.epochs)
        return self._variable(self.learning_rate * 0.5 * (self._in_dtype(math.cos(angle)) + 1))


class NoamDecay(LearningRateDecay):
    """learning_rate * d_model ** -0.5 * min(step_num ** -0.5, warmup_steps ** -1.5 * step_num), from step 1 on."""

    _operations = 2

    def __init__(
        self,
        d_model: float,
        warmup_steps: float,
        begin: int = 1,
        step: int = 1,
        dtype: Any = "float32",
        learning_rate: float | Variable = 1.0,
    ) -> None:
        super().__init__(begin, step, dtype)
        self.learning_rate = learning_rate
        self.d_model = d_model
        self.warmup_steps = warmup_steps

    def step(self) -> Variable:
        """The rate at ``step_num``, a Variable of shape [1]. Raises ZeroDivisionError at step 0."""
        least = self._in_dtype(min(self.step_num**-0.5, self.warmup_steps**-1.5 * self.step_num))
        return self._variable(self.learning_rate * self.d_model**-0.5 * least)


class LinearLrWarmup(LearningRateDecay):
    """(end_lr - start_lr) / warmup_steps * step_num before ``warmup_steps``, then ``learning_rate``.

    ``start_lr`` affects the slope only, as in Fluid 1.8. A schedule passed as ``learning_rate`` advances with every
    call, including during the warm-up.

    Raises TypeError if ``learning_rate`` is neither a number nor a schedule.
    """

    def __init__(
        self,
        learning_rate: Any,
        warmup_steps: int,
        start_lr: float,
        end_lr: float,
        begin: int = 1,
        step: int = 1,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(begin, step, dtype)
        if not isinstance(learning_rate, (int, float, LearningRateDecay)):
            raise TypeError(
                "LinearLrWarmup: the type of learning_rate should be [int, float or LearningRateDecay], the current "
                f"type is {learning_rate}. Pass a number or a schedule."
            )
        if start_lr >= end_lr:
            raise AssertionError(
                f"LinearLrWarmup: end_lr {end_lr} must be greater than start_lr {start_lr}. Swap them, or drop the "
                "warm-up."
            )
        self.learning_rate = learning_rate
        self.warmup_steps = warmup_steps
        self.lr_ratio_before_warmup = (float(end_lr) - float(start_lr)) / float(warmup_steps)

    def step(self) -> Any:
        """The rate at ``step_num``: a number during warm-up, then the value of ``learning_rate``."""
        later = self.learning_rate() if isinstance(self.learning_rate, LearningRateDecay) else self.learning_rate
        if self.step_num < self.warmup_steps:
            return self.lr_ratio_before_warmup * self.step_num
        return later
