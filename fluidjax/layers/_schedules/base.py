"""The base of all schedules: a step counter, the rate computed from it, and saved state."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidjax import unique_name
from fluidjax.base.enums import to_numpy_dtype, to_var_type
from fluidjax.base.errors import ArgumentError, explain
from fluidjax.base.mode import current_tracer
from fluidjax.framework import Variable
from fluidjax.layers.tensor import create_global_var


class LearningRateDecay:
    """A learning rate that depends on the step: each call, one per ``minimize``, returns the rate and advances.

    Custom schedules override ``step``.

    Args:
        begin: the initial value of ``step_num``.
        step: the increment of ``step_num``.
        dtype: dtype of the rate.
    """

    counts_steps = True  # whether optimizers save ``step_num``
    _operations = 0  # ops by which Fluid computes the rate; each result takes a name

    def __init__(self, begin: int = 0, step: int = 1, dtype: Any = "float32") -> None:
        self.step_num = begin
        self.step_size = step
        self.dtype = dtype

    def __call__(self) -> Any:
        """The rate at this step as a Variable of shape [1]; advances the schedule by one step."""
        rate = self.step()
        if isinstance(rate, float):
            rate = self.create_lr_var(rate)
        self.step_num = _sum(self.step_num, self.step_size)
        return rate

    def first_rate(self) -> Any:
        """The initial rate, a number or a Variable; does not advance the schedule."""
        return self.step()

    def create_lr_var(self, lr: float) -> Variable:
        """The rate as a Variable of shape [1]: a value rather than an op, so that every step runs the same ops.

        In static mode it is a variable of the program with that rate in every run, as in Fluid.
        """
        name, tracer = unique_name.generate("learning_rate"), current_tracer()
        if tracer is None:
            return create_global_var([1], float(lr), self.dtype, name=name)
        return tracer.to_variable(np.array([float(lr)], to_numpy_dtype(to_var_type(self.dtype))), name)

    def _in_dtype(self, number: float) -> Any:
        """The number as a NumPy scalar of the rate's dtype: Fluid's ops compute rates in it, to its last bit."""
        return to_numpy_dtype(to_var_type(self.dtype)).type(number)

    def _variable(self, rate: Any) -> Variable:
        """The rate, with the names taken that Fluid's computation of it takes."""
        tracer = current_tracer()
        if tracer is not None:
            tracer.draw(self._operations)
        return rate if isinstance(rate, Variable) else self.create_lr_var(rate)

    def step(self) -> Any:
        """The rate at ``step_num``: a float, or a Variable of shape [1]."""
        raise NotImplementedError(f"{type(self).__name__} has no step(): define it, and return the rate of step_num.")

    def _state_keys(self) -> None:
        """Set ``keys``, the names of the attributes saved by ``state_dict``."""
        self.keys = ["step_num"]

    def state_dict(self) -> dict[str, Any]:
        """The state of the schedule as plain numbers."""
        self._state_keys()
        return {key: _number(self.__dict__[key], key) for key in self.keys if key in self.__dict__}

    def set_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state returned by ``state_dict``. Raises RuntimeError for a missing key."""
        self._state_keys()
        for key in self.keys:
            if key not in state_dict:
                raise RuntimeError(
                    explain(
                        f"Please check whether state_dict is correct for {type(self).__name__}",
                        f"a value for each of {self.keys}",
                        f"Can't find [ {key} ] in {sorted(state_dict)}",
                        "pass what state_dict() of a schedule of this class gave",
                    )
                )
            self.__dict__[key] = state_dict[key]


def _sum(number: Any, step: Any) -> Any:
    """number + step; from a saved number, an ``int32``, an ``int64``, as saved states of Fluid hold it."""
    return (np.int64(number) if isinstance(number, np.int32) else number) + step


def _number(value: Any, key: str) -> Any:
    return value.numpy().reshape(-1)[0] if isinstance(value, Variable) else value


def check_kind(owner: str, name: str, value: Any, *kinds: type) -> None:
    """Raise TypeError unless an argument is of one of the given types."""
    if not isinstance(value, kinds):
        expected = ", ".join(kind.__name__ for kind in kinds)
        raise TypeError(
            explain(
                f"The type of '{name}' in '{owner}' must be '{expected}', but received {type(value)}",
                f"a {expected}",
                repr(value),
                "convert it",
            )
        )


def check_falls(decay_rate: float) -> None:
    """Raise ValueError unless the decay factor is below 1."""
    if decay_rate >= 1.0:
        raise ArgumentError(
            explain("decay_rate should be < 1.0", "a factor below 1", repr(decay_rate), "give its inverse")
        )
