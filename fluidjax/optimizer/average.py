"""Averages of parameters over training: ModelAverage and ExponentialMovingAverage."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from fluidjax import layers, unique_name
from fluidjax.framework import Block, Program, Variable, default_main_program, name_scope, program_guard
from fluidjax.layer_helper import LayerHelper
from fluidjax.optimizer.base import Optimizer
from fluidjax.optimizer.eager import refuse
from fluidjax.regularizer import WeightDecayRegularizer

_SUMS = ("sum_1", "sum_2", "sum_3")
_COUNTS = ("num_accumulates", "old_num_accumulates", "num_updates")


def _averaged(program: Program) -> list[Variable]:
    """The parameters to average: all except those with ``do_model_average=False``."""
    return [p for p in program.global_block().all_parameters() if p.do_model_average is not False]


class _Averages:
    """Averages that stand in for the parameters while they are applied.

    Attributes:
        apply_program: puts them in place of the parameters, whose values it keeps.
        restore_program: puts these back.
    """

    apply_program: Program
    restore_program: Program

    @contextlib.contextmanager
    def apply(self, executor: Any, need_restore: bool = True) -> Iterator[None]:
        """Context manager: replace parameters by averages; on exit, restore them unless ``need_restore`` is False."""
        executor.run(self.apply_program)
        try:
            yield
        finally:
            if need_restore:
                self.restore(executor)

    def restore(self, executor: Any) -> None:
        """Restore the values the parameters had before ``apply``."""
        executor.run(self.restore_program)


class ModelAverage(Optimizer, _Averages):
    """Averages each parameter over a window of recent updates.

    Create it after ``minimize`` of another optimizer; every run of the main program then accumulates the parameters.
    Within ``with model_average.apply(executor):``, the parameters have their averaged values.

    The window spans ``average_window_rate`` * (number of updates), but at least ``min_average_window`` and at most
    ``max_average_window`` updates.

    Args:
        average_window_rate: window size as a fraction of all updates.
        min_average_window: minimum number of updates in the window.
        max_average_window: maximum number of updates in the window.
        regularization: not used.
        name: part of the names of the sums.
    """

    def __init__(
        self,
        average_window_rate: float,
        min_average_window: int = 10000,
        max_average_window: int = 10000,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
    ) -> None:
        refuse("ModelAverage")
        super().__init__(0.0, regularization=regularization, name=name)
        self.average_window = average_window_rate
        self.min_average_window = min_average_window
        self.max_average_window = max_average_window
        self.params_grads = [(param, self._backup(param)) for param in _averaged(default_main_program())]
        for pair in self.params_grads:
            with pair[0].block.program._optimized_guard(pair), name_scope("move_average"):
                self._append_average_accumulate_op(pair[0])
        self.apply_program = Program()
        with program_guard(main_program=self.apply_program):
            for pair in self.params_grads:
                self._add_average_apply_op(self.apply_program.global_block(), pair)
        self.restore_program = Program()
        with program_guard(main_program=self.restore_program):
            for pair in self.params_grads:
                self._add_average_restore_op(self.restore_program.global_block(), pair)

    @staticmethod
    def _backup(param: Variable) -> Variable:
        """The variable that keeps the trained value while the average is in use."""
        return param.block.create_var(
            name=unique_name.generate_with_ignorable_key(f"{param.name}.tmp"),
            dtype=param.dtype,
            persistable=False,
            stop_gradient=True,
        )

    def _append_average_accumulate_op(self, param: Variable) -> None:
        self.helper = LayerHelper("average_accumulate")
        state = {name: self._add_accumulator(name, param) for name in _SUMS}
        for name in _COUNTS:
            state[name] = self._add_accumulator(name, param, dtype="int64", shape=[1])
        self.helper.append_op(
            type="average_accumulates",
            inputs={"param": param, **{f"in_{name}": var for name, var in state.items()}},
            outputs={f"out_{name}": var for name, var in state.items()},
            attrs={
                "average_window": self.average_window,
                "min_average_window": self.min_average_window,
                "max_average_window": self.max_average_window,
            },
            stop_gradient=True,
        )

    def _add_average_apply_op(self, block: Block, pair: tuple[Variable, Variable]) -> None:
        """backup = param; param = (sum_1 + sum_2 + sum_3) / (num_accumulates + old_num_accumulates)."""
        param, backup = (block._clone_variable(var) for var in pair)
        state = {name: block._clone_variable(self._get_accumulator(name, param)) for name in (*_SUMS, *_COUNTS)}
        layers.assign(input=param, output=backup)
        count = layers.sum(x=[state["num_accumulates"], state["old_num_accumulates"]])
        total = layers.sum(x=[state[name] for name in _SUMS])
        dtype = "float32" if self._dtype is None else self._dtype
        count, total = layers.cast(x=count, dtype=dtype), layers.cast(x=total, dtype=dtype)
        divide = LayerHelper("elementwise_div")  # takes a name, as a layer does
        divide.append_op(type="elementwise_div", inputs={"X": total, "Y": count}, outputs={"Out": param})

    def _add_average_restore_op(self, block: Block, pair: tuple[Variable, Variable]) -> None:
        param, backup = (block._clone_variable(var) for var in pair)
        layers.assign(input=backup, output=param)


class ExponentialMovingAverage(_Averages):
    """ema = decay * ema + (1 - decay) * param at each step; the value applied is ema / (1 - decay^steps).

    Create it after ``minimize`` and call ``update()`` once, to append the ops to the main program. With
    ``thres_steps``, the decay at each step is min(decay, (thres_steps + 1) / (thres_steps + 10)).

    Args:
        decay: decay rate of the average.
        thres_steps: a Variable with the number of steps, or None.
        name: prefix of the names of the averages.
    """

    def __init__(self, decay: float = 0.999, thres_steps: Variable | None = None, name: str | None = None) -> None:
        refuse("ExponentialMovingAverage")
        self._decay = decay
        self._thres_steps = thres_steps
        self._name = name or ""
        self._decay_var = self._get_ema_decay()
        self._step_counter_name = "@EMA_STEP_COUNTER@"
        self._params_tmps = [(param, self._backup(param)) for param in _averaged(default_main_program())]
        self._ema_vars: dict[str, Variable] = {}
        for pair in self._params_tmps:
            with pair[0].block.program._optimized_guard(pair), name_scope("moving_average"):
                self._ema_vars[pair[0].name] = self._create_ema_vars(pair[0])
        self.apply_program = Program()
        with program_guard(main_program=self.apply_program):
            self._write_apply(self.apply_program.global_block())
        self.restore_program = Program()
        with program_guard(main_program=self.restore_program):
            self._write_restore(self.restore_program.global_block())

    def _backup(self, param: Variable) -> Variable:
        return param.block.create_var(
            name=unique_name.generate(f"{self._name}{param.name}.ema_tmp"),
            dtype=param.dtype,
            persistable=False,
            stop_gradient=True,
        )

    def _get_ema_decay(self) -> Variable:
        with default_main_program()._lr_schedule_guard():
            decay = layers.create_global_var(
                shape=[1], value=self._decay, dtype="float32", persistable=True, name="scheduled_ema_decay_rate"
            )
            if self._thres_steps is not None:
                rising = (self._thres_steps + 1.0) / (self._thres_steps + 10.0)
                with layers.Switch() as switch:
                    with switch.case(rising < self._decay):
                        layers.assign(rising, decay)
                    with switch.default():
                        layers.assign(np.array([self._decay], dtype=np.float32), decay)
        return decay

    def _create_ema_vars(self, param: Variable) -> Variable:
        return layers.create_global_var(
            name=unique_name.generate(f"{self._name}{param.name}_ema"),
            shape=list(param.shape),
            value=0.0,
            dtype=param.dtype,
            persistable=True,
        )

    def _write_apply(self, block: Block) -> None:
        """backup = param; param = ema, bias-corrected once a step has been made."""
        steps, power = self._steps_and_power(block)
        for pair in self._params_tmps:
            param, backup = (block._clone_variable(var) for var in pair)
            ema = block._clone_variable(self._ema_vars[param.name])
            layers.assign(input=param, output=backup)
            with layers.Switch() as switch:
                with switch.case(steps > 0):
                    layers.assign(output=ema, input=ema / (1.0 - power))
            layers.assign(input=ema, output=param)

    def _steps_and_power(self, block: Block) -> tuple[Variable, Variable]:
        steps = layers.create_global_var(
            name=self._step_counter_name, shape=[1], value=0, dtype="int64", persistable=True
        )
        steps = layers.cast(steps, "float32")
        return steps, layers.elementwise_pow(block._clone_variable(self._decay_var), steps)

    def _write_restore(self, block: Block) -> None:
        for pair in self._params_tmps:
            param, backup = (block._clone_variable(var) for var in pair)
            layers.assign(input=backup, output=param)

    def update(self) -> None:
        """Append the ops that update the averages to the main program. Call it once, on the training program."""
        layers.autoincreased_step_counter(counter_name=self._step_counter_name)
        for pair in self._params_tmps:
            param = pair[0]
            with param.block.program._optimized_guard(pair), name_scope("moving_average"):
                ema = self._ema_vars[param.name]
                layers.assign(input=ema * self._decay_var + param * (1 - self._decay_var), output=ema)
