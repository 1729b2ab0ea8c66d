"""Schedules that advance by ``epoch()``, and one that waits for a loss to plateau."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fluidjax.base.errors import ArgumentError, explain
from fluidjax.framework import Variable
from fluidjax.layers._schedules.base import LearningRateDecay, check_falls, check_kind


class _LearningRateEpochDecay(LearningRateDecay):
    """A rate computed by ``get_lr`` from ``base_lr`` and the number of epochs."""

    counts_steps = False

    def __init__(self, learning_rate: float, dtype: Any = None) -> None:
        check_kind(type(self).__name__, "learning_rate", learning_rate, float, int)
        if learning_rate < 0:
            raise ArgumentError(f"Invalid learning rate: {learning_rate}. Expected 0 or more. Give a positive one.")
        self.base_lr = float(learning_rate)
        self.epoch_num = 0
        self.dtype = "float32" if dtype is None else dtype
        self.learning_rate = self.get_lr()

    def _state_keys(self) -> None:
        self.keys = ["epoch_num", "learning_rate"]

    def __call__(self) -> Variable:
        """The rate in this epoch as a Variable of shape [1]."""
        if not isinstance(self.learning_rate, Variable):
            self.learning_rate = self.create_lr_var(self.learning_rate)
        return self.learning_rate

    def first_rate(self) -> Variable:
        """The rate in this epoch."""
        return self()

    def epoch(self, epoch: int | None = None) -> None:
        """Advance to the next epoch, or to the given one."""
        self.epoch_num = self.epoch_num + 1 if epoch is None else epoch
        self.learning_rate = self.get_lr()

    def _fallen(self, decay_rate: float, times: int) -> Any:
        """base_lr * decay_rate ** times, in the rate's dtype."""
        return self.base_lr * self._in_dtype(decay_rate) ** self._in_dtype(times)

    def get_lr(self) -> Any:
        """The rate at ``epoch_num``, a float or a Variable of shape [1]."""
        raise NotImplementedError(f"{type(self).__name__} has no get_lr(): define it, and return the epoch's rate.")


class StepDecay(_LearningRateEpochDecay):
    """learning_rate * decay_rate ** (epoch_num // step_size).

    Raises TypeError unless step_size is an int, ValueError unless decay_rate is below 1.
    """

    _operations = 3

    def __init__(self, learning_rate: float, step_size: int, decay_rate: float = 0.1) -> None:
        check_kind("StepDecay", "step_size", step_size, int)
        check_falls(decay_rate)
        self.step_size = step_size
        self.decay_rate = decay_rate
        super().__init__(learning_rate)

    def get_lr(self) -> Variable:
        """The rate at ``epoch_num``, a Variable of shape [1]."""
        return self._variable(self._fallen(self.decay_rate, self.epoch_num // self.step_size))


class MultiStepDecay(_LearningRateEpochDecay):
    """learning_rate * decay_rate ** (number of milestones reached by ``epoch_num``).

    Raises TypeError unless milestones is a list, ValueError if they do not increase or decay_rate is not below 1.
    """

    _operations = 3

    def __init__(self, learning_rate: float, milestones: Sequence[int], decay_rate: float = 0.1) -> None:
        check_kind("MultiStepDecay", "milestones", milestones, tuple, list)
        if any(a >= b for a, b in zip(milestones, milestones[1:], strict=False)):
            raise ArgumentError(
                f"MultiStepDecay: The elements of milestones must be incremented, and they are {milestones}. Sort them."
            )
        check_falls(decay_rate)
        self.milestones = milestones
        self.decay_rate = decay_rate
        super().__init__(learning_rate)

    def get_lr(self) -> Variable:
        """The rate at ``epoch_num``, a Variable of shape [1]."""
        return self._variable(self._fallen(self.decay_rate, sum(self.epoch_num >= m for m in self.milestones)))


class LambdaDecay(_LearningRateEpochDecay):
    """learning_rate * lr_lambda(epoch_num). Raises TypeError if lr_lambda is not callable."""

    def __init__(self, learning_rate: float, lr_lambda: Callable[[int], float]) -> None:
        if not callable(lr_lambda):
            raise TypeError(
                "The type of 'lr_lambda' in 'LambdaDecay' must be 'function', but received "
                f"{type(lr_lambda)}. Pass a function of the epoch's number."
            )
        self.lr_lambda = lr_lambda
        super().__init__(learning_rate)

    def get_lr(self) -> float:
        """The rate at ``epoch_num``."""
        return self.base_lr * self.lr_lambda(self.epoch_num)


class ReduceLROnPlateau(LearningRateDecay):
    """Multiply the rate by ``decay_rate`` once the loss has not improved for more than ``patience`` calls of ``step``.

    An improvement is a loss below the best so far (``mode`` "max": above) by ``threshold``, relative to the best loss
    ("rel") or absolute ("abs"). After a reduction, ``cooldown`` calls are not counted. The rate does not fall below
    ``min_lr``, nor change by less than ``eps``.

    Raises TypeError or ValueError for invalid arguments.
    """

    def __init__(
        self,
        learning_rate: float | Variable,
        mode: str = "min",
        decay_rate: float = 0.1,
        patience: int = 10,
        verbose: bool = False,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0,
        eps: float = 1e-8,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        self.mode = _one_of("mode", mode, "min", "max")
        check_falls(decay_rate)
        self.threshold_mode = _one_of("threshold mode", threshold_mode, "rel", "abs")
        check_kind("ReduceLROnPlateau", "learning_rate", learning_rate, float, int, Variable)
        self.learning_rate: Any = learning_rate
        self.decay_rate = decay_rate
        self.patience = patience
        self.verbose = verbose
        self.threshold = threshold
        self.cooldown = cooldown
        self.min_lr = min_lr
        self.eps = eps
        self.cooldown_counter = 0
        self.best_loss: Any = None
        self.num_bad_epochs = 0
        self.epoch_num = 0

    def _state_keys(self) -> None:
        self.keys = ["cooldown_counter", "best_loss", "num_bad_epochs", "epoch_num", "learning_rate"]

    def __call__(self) -> Variable:
        """The rate as a Variable of shape [1]."""
        self.learning_rate = self._variable(self.learning_rate)
        return self.learning_rate

    def step(self, loss: Variable) -> None:  # type: ignore[override]
        """Record a loss, a Variable of shape [1], and lower the rate if due.

        Raises AssertionError for any other shape.
        """
        if list(loss.shape) != [1]:
            raise AssertionError(
                f"ReduceLROnPlateau: the loss.shape should be (1L,), but the current loss.shape is {loss.shape}. Maybe "
                "that you should call fluid.layers.mean to process it first."
            )
        self.epoch_num += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            return
        if self.best_loss is None or self._is_better(_host(loss), _host(self.best_loss)):
            self.best_loss, self.num_bad_epochs = loss, 0
        else:
            self.num_bad_epochs += 1
        if self.num_bad_epochs > self.patience:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
            self._reduce()

    def _reduce(self) -> None:
        before = np.float32(_host(self.learning_rate))
        after = max(before * np.float32(self.decay_rate), np.float32(self.min_lr))
        if before - after > self.eps:
            if self.verbose:
                print(f"Epoch {self.epoch_num}: reducing learning rate from {before} to {after}.")
            self.learning_rate = self.create_lr_var(float(after))

    def _is_better(self, current: Any, best: Any) -> bool:
        margin = best * self.threshold if self.threshold_mode == "rel" else self.threshold
        return bool(current < best - margin if self.mode == "min" else current > best + margin)


def _one_of(name: str, value: str, *choices: str) -> str:
    if value.lower() not in choices:
        raise ArgumentError(explain(f"{name} {value} is unknown!", f"one of {choices}", repr(value), "use one of them"))
    return value.lower()


def _host(value: Any) -> Any:
    return value.numpy().reshape(-1)[0] if isinstance(value, Variable) else value
