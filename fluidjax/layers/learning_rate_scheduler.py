"""Learning-rate schedules: each writes ops that compute the rate from a step counter.

The counter ``@LR_DECAY_COUNTER@`` is incremented at the start of every run of the program, from 0 (noam_decay: 1).
All return a Variable of shape [1] to pass to an optimizer as its learning rate; in eager mode, they return the schedule
itself, an object called by the optimizer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Variable, default_main_program, in_dygraph_mode
from fluidjax.layers import control_flow, nn, ops, tensor
from fluidjax.layers._schedules import steps
from fluidjax.layers._schedules.base import LearningRateDecay
from fluidjax.writing.checks import check_type

_Rate = float | Variable
_Schedule = Variable | LearningRateDecay

__all__ = [
    "exponential_decay", "natural_exp_decay", "inverse_time_decay", "polynomial_decay", "piecewise_decay", "noam_decay",
    "cosine_decay", "linear_lr_warmup",
]  # fmt: skip


def _decay_step_counter(begin: int = 0) -> Variable:
    """The number of the current step, counted from ``begin``, as float32 [1]."""
    step = nn.autoincreased_step_counter(counter_name="@LR_DECAY_COUNTER@", begin=begin, step=1)
    return tensor.cast(step, "float32")


def noam_decay(d_model: float, warmup_steps: float, learning_rate: float = 1.0) -> _Schedule:
    """learning_rate * d_model^-0.5 * min(step^-0.5, warmup_steps^-1.5 * step), with step starting at 1.

    Args:
        d_model: the width of the model.
        warmup_steps: number of steps during which the rate rises.
        learning_rate: scale factor; a float or a Variable of shape [1].
    """
    if in_dygraph_mode():
        return steps.NoamDecay(d_model, warmup_steps, learning_rate=learning_rate)
    with default_main_program()._lr_schedule_guard():
        step = _decay_step_counter(1)
        falling = step**-0.5
        rising = (warmup_steps**-1.5) * step
        return learning_rate * (d_model**-0.5) * nn.elementwise_min(falling, rising)


def exponential_decay(learning_rate: _Rate, decay_steps: int, decay_rate: float, staircase: bool = False) -> _Schedule:
    """learning_rate * decay_rate^(step / decay_steps); with ``staircase``, the exponent is rounded down.

    Args:
        learning_rate: the initial rate, a float or a Variable of shape [1].
        decay_steps: number of steps after which the rate has been multiplied by ``decay_rate``.
        decay_rate: the decay factor.
        staircase: whether the rate falls in discrete steps.
    """
    if in_dygraph_mode():
        return steps.ExponentialDecay(learning_rate, decay_steps, decay_rate, staircase)
    with default_main_program()._lr_schedule_guard():
        return learning_rate * (decay_rate ** _periods(decay_steps, staircase))


def natural_exp_decay(learning_rate: _Rate, decay_steps: int, decay_rate: float, staircase: bool = False) -> _Schedule:
    """learning_rate * exp(-decay_rate * step / decay_steps); with ``staircase``, the quotient is rounded down.

    Args:
        learning_rate: the initial rate, a float or a Variable of shape [1].
        decay_steps: length of the decay period.
        decay_rate: the decay constant.
        staircase: whether the rate falls in discrete steps.
    """
    if in_dygraph_mode():
        return steps.NaturalExpDecay(learning_rate, decay_steps, decay_rate, staircase)
    with default_main_program()._lr_schedule_guard():
        return learning_rate * ops.exp(-1 * decay_rate * _periods(decay_steps, staircase))


def inverse_time_decay(learning_rate: _Rate, decay_steps: int, decay_rate: float, staircase: bool = False) -> _Schedule:
    """learning_rate / (1 + decay_rate * step / decay_steps); with ``staircase``, the quotient is rounded down.

    Args:
        learning_rate: the initial rate, a float or a Variable of shape [1].
        decay_steps: length of the decay period.
        decay_rate: the decay constant.
        staircase: whether the rate falls in discrete steps.
    """
    if in_dygraph_mode():
        return steps.InverseTimeDecay(learning_rate, decay_steps, decay_rate, staircase)
    with default_main_program()._lr_schedule_guard():
        return learning_rate / (1 + decay_rate * _periods(decay_steps, staircase))


def _periods(decay_steps: int, staircase: bool) -> Variable:
    quotient = _decay_step_counter() / decay_steps
    return ops.floor(quotient) if staircase else quotient


def polynomial_decay(
    learning_rate: _Rate,
    decay_steps: int,
    end_learning_rate: float = 0.0001,
    power: float = 1.0,
    cycle: bool = False,
) -> _Schedule:
    """(learning_rate - end_learning_rate) * (1 - step / decay_steps)^power + end_learning_rate.

    The rate is constant after ``decay_steps``; with ``cycle``, the decay restarts over periods of ``decay_steps`` times
    1, 2, 3 ...

    Args:
        learning_rate: the initial rate, a float or a Variable of shape [1].
        decay_steps: number of steps over which the rate falls.
        end_learning_rate: the final rate.
        power: exponent of the polynomial.
        cycle: whether to restart.
    """
    if in_dygraph_mode():
        return steps.PolynomialDecay(learning_rate, decay_steps, end_learning_rate, power, cycle)
    with default_main_program()._lr_schedule_guard():
        step = _decay_step_counter()
        length: float | Variable = decay_steps
        if cycle:
            periods = ops.ceil(step / decay_steps)
            zero = tensor.fill_constant(shape=[1], dtype="float32", value=0.0)
            one = tensor.fill_constant(shape=[1], dtype="float32", value=1.0)
            is_first: Any = step == zero
            with control_flow.Switch() as switch:
                with switch.case(is_first):
                    tensor.assign(input=one, output=periods)
            length = decay_steps * periods
        else:
            last = tensor.fill_constant(shape=[1], dtype="float32", value=float(decay_steps))
            step = nn.elementwise_min(x=step, y=last)
        return (learning_rate - end_learning_rate) * ((1 - step / length) ** power) + end_learning_rate


def piecewise_decay(boundaries: Sequence[float], values: Sequence[float]) -> _Schedule:
    """values[i] from step boundaries[i-1] up to boundaries[i], and values[-1] after the last boundary.

    Args:
        boundaries: increasing step numbers.
        values: the rates, one more than boundaries.

    Raises:
        ValueError: the lengths do not match.

    Examples:
        >>> rate = fluid.layers.piecewise_decay([2, 4], [0.1, 0.01, 0.001])
        >>> exe = fluid.Executor()
        >>> startup = exe.run(fluid.default_startup_program())
        >>> ["%.3f" % exe.run(fetch_list=[rate])[0] for _ in range(5)]
        ['0.100', '0.100', '0.010', '0.010', '0.001']
    """
    if len(values) - len(boundaries) != 1:
        raise ArgumentError(
            f"piecewise_decay: {len(boundaries)} boundaries and {len(values)} values; expected one value more than "
            "boundaries. Give the rate before each boundary and the last one"
        )
    if in_dygraph_mode():
        return steps.PiecewiseDecay(boundaries, values, 0)
    with default_main_program()._lr_schedule_guard():
        step = _decay_step_counter()
        rate = tensor.create_global_var(shape=[1], value=0.0, dtype="float32", persistable=True, name="learning_rate")
        with control_flow.Switch() as switch:
            for boundary, value in zip(boundaries, values, strict=False):
                limit = tensor.fill_constant(shape=[1], dtype="float32", value=float(boundary), force_cpu=True)
                constant = tensor.fill_constant(shape=[1], dtype="float32", value=float(value))
                with switch.case(step < limit):
                    tensor.assign(constant, rate)
            constant = tensor.fill_constant(shape=[1], dtype="float32", value=float(values[-1]))
            with switch.default():
                tensor.assign(constant, rate)
        return rate


def cosine_decay(learning_rate: _Rate, step_each_epoch: int, epochs: int) -> _Schedule:
    """learning_rate * 0.5 * (cos(epoch * pi / epochs) + 1), epoch = floor(step / step_each_epoch).

    Args:
        learning_rate: the initial rate, a float or a Variable of shape [1].
        step_each_epoch: number of steps per epoch.
        epochs: number of epochs after which the rate reaches 0.

    Raises TypeError for a rate that is neither a float nor a Variable.
    """
    check_type(learning_rate, "learning_rate", (float, Variable), "cosine_decay")
    if in_dygraph_mode():
        return steps.CosineDecay(learning_rate, step_each_epoch, epochs)
    with default_main_program()._lr_schedule_guard():
        epoch = ops.floor(_decay_step_counter() / step_each_epoch)
        return learning_rate * 0.5 * (ops.cos(epoch * math.pi / epochs) + 1)


def linear_lr_warmup(learning_rate: _Rate, warmup_steps: int, start_lr: float, end_lr: float) -> _Schedule:
    """start_lr + (end_lr - start_lr) * step / warmup_steps before step ``warmup_steps``, then ``learning_rate``.

    Args:
        learning_rate: the rate after warm-up, a float or the Variable of another schedule.
        warmup_steps: number of steps during which the rate rises.
        start_lr: the rate at step 0.
        end_lr: the rate at the end of the warm-up.
    """
    if in_dygraph_mode():
        return steps.LinearLrWarmup(learning_rate, warmup_steps, start_lr, end_lr)
    dtype = learning_rate.dtype if isinstance(learning_rate, Variable) else "float32"
    rise = float(end_lr) - float(start_lr)
    with default_main_program()._lr_schedule_guard():
        rate = tensor.create_global_var(
            shape=[1], value=0.0, dtype=dtype, persistable=True, name="learning_rate_warmup"
        )
        step = _decay_step_counter()
        with control_flow.Switch() as switch:
            with switch.case(step < warmup_steps):
                tensor.assign(start_lr + rise * (step / float(warmup_steps)), rate)
            with switch.default():
                if not isinstance(learning_rate, Variable):
                    learning_rate = tensor.fill_constant(shape=[1], dtype=dtype, value=float(learning_rate))
                tensor.assign(learning_rate, rate)
    return rate
