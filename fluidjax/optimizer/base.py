"""Optimizer, the base class: learning rates, accumulators, and the sequence of ops that ``minimize`` appends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from fluidjax import unique_name
from fluidjax.backward import append_backward
from fluidjax.backward.paths import no_grad_names
from fluidjax.base import mode
from fluidjax.base.enums import VarType
from fluidjax.base.errors import ArgumentError
from fluidjax.base.mode import current_tracer, in_dygraph_mode
from fluidjax.base.places import CPUPlace
from fluidjax.base.scope import global_scope
from fluidjax.clip import GradientClipBase, append_gradient_clip_ops, error_clip_callback
from fluidjax.framework import (
    Block,
    Operator,
    Program,
    Variable,
    default_main_program,
    default_startup_program,
    device_guard,
    name_scope,
    program_guard,
)
from fluidjax.framework.distributed_table import find_distributed_lookup_table
from fluidjax.initializer import Constant
from fluidjax.layer_helper import LayerHelper
from fluidjax.optimizer.eager import EagerUpdates, check_settings, takes_a_clip
from fluidjax.regularizer import WeightDecayRegularizer, append_regularization_ops

Pair = tuple[Any, Any]  # (Parameter, its gradient Variable or None)


def check_given(optimizer: Optimizer, error: type[Exception] = AssertionError, **settings: Any) -> None:
    """Raise ``error`` for a setting that is None."""
    for name, value in settings.items():
        if value is None:
            raise error(f"{name} is not set: {type(optimizer).__name__} expects a number. Leave it out for the default")


class Optimizer(EagerUpdates):
    """Appends to a program the ops that compute gradients and update parameters.

    Args:
        learning_rate: a float, or a Variable of shape [1] computed by a schedule.
        parameter_list: the parameters to update; all trainable ones if None.
        regularization: weight decay for parameters without their own regularizer.
        grad_clip: gradient clipping, applied before weight decay.
        name: included in the names of the accumulators.

    Raises:
        TypeError: an argument has the wrong type (as in Fluid, this includes a learning rate of type int).
    """

    def __init__(
        self,
        learning_rate: float | Variable,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        if in_dygraph_mode():
            check_settings(self, learning_rate, parameter_list)
        elif not isinstance(learning_rate, (float, Variable)):
            raise TypeError(
                f"{type(self).__name__}: learning_rate is {learning_rate!r} of type {type(learning_rate).__name__}; "
                "expected a float or a Variable. Write 1.0 instead of 1, or pass a schedule of fluid.layers"
            )
        if grad_clip is not None and not isinstance(grad_clip, GradientClipBase):
            raise TypeError(
                f"{type(self).__name__}: grad_clip is {grad_clip!r} of type {type(grad_clip).__name__}; expected a "
                "GradientClipByValue, GradientClipByNorm or GradientClipByGlobalNorm. Pass one of fluid.clip"
            )
        self._parameter_list = list(parameter_list) if parameter_list else None
        self._name = name
        self.regularization = regularization
        self._grad_clip = grad_clip
        self._learning_rate = learning_rate
        self._dtype: Any = None
        # Learning-rate Variable of each program the optimizer was used in.
        self._learning_rate_map: dict[Program, Variable] = {}
        if isinstance(learning_rate, Variable) and not in_dygraph_mode():
            self._learning_rate_map[learning_rate.block.program] = learning_rate
        # accumulator name -> parameter name -> Variable
        self._accumulators: dict[str, dict[str, Variable]] = defaultdict(dict)
        self.helper: Any = None  # a LayerHelper while ops are written
        self._opti_name_list: list[str] = []
        self._param_device_map: dict[str, str | None] = {}
        self.type = ""

    # What subclasses say.

    def _create_accumulators(self, block: Block, parameters: list[Variable]) -> None:
        """Create the state of each parameter."""

    def _append_optimize_op(self, block: Block, param_and_grad: Pair) -> Operator:
        """Append the op that updates one parameter."""
        raise TypeError(
            f"{type(self).__name__} updates nothing; expected an optimizer such as SGD or Adam. Use one of "
            "fluid.optimizer"
        )

    def _append_update(
        self,
        block: Block,
        param_and_grad: Pair,
        attrs: Mapping[str, Any] | None = None,
        states: Mapping[str, str] | None = None,
        *,
        outs: Mapping[str, str] | None = None,
        rate: bool = True,
    ) -> Operator:
        """Append an op of the optimizer's type that updates a parameter and its state in place.

        Args:
            states: maps input slots to accumulator names; the output slot has ``Out`` appended, or is in ``outs``.
            rate: whether the op takes the learning rate.
        """
        param, grad = param_and_grad
        held = {slot: self._get_accumulator(name, param) for slot, name in (states or {}).items()}
        inputs: dict[str, Any] = {"Param": param, "Grad": grad, **held}
        if rate:
            inputs["LearningRate"] = self._create_param_lr(param_and_grad)
        outputs = {(outs or {}).get(slot, f"{slot}Out"): var for slot, var in held.items()}
        return block.append_op(
            type=self.type,
            inputs=inputs,
            outputs={"ParamOut": param, **outputs},
            attrs=dict(attrs or {}),
            stop_gradient=True,
        )

    def _finish_update(self, block: Block, parameters_and_grads: list[Pair]) -> None:
        """Append the ops that follow all updates."""

    # Learning rates.

    def _create_global_learning_rate(self) -> None:
        if mode.tracer is not None:
            self._eager_rate(self._dtype)
            return
        program = default_main_program()
        if program in self._learning_rate_map:
            return
        if not isinstance(self._learning_rate, float):
            raise TypeError(
                f"{type(self).__name__}: the learning rate {self._learning_rate!r} belongs to another program than "
                "the one being minimized; expected one of that program. Build the schedule under its program_guard"
            )
        self._learning_rate_map[program] = _global_variable(
            unique_name.generate("learning_rate"), [1], self._learning_rate, self._dtype or VarType.FP32
        )

    def _global_learning_rate(self, program: Program | None = None) -> Variable | None:
        """The learning-rate Variable of a program, or None if not yet created."""
        return self._learning_rate_map.get(default_main_program() if program is None else program)

    def _create_param_lr(self, param_and_grad: Pair) -> Any:
        """The learning rate of one parameter: the global rate times the parameter's own factor."""
        factor = param_and_grad[0].optimize_attr["learning_rate"]
        if isinstance(factor, Variable):
            return factor
        rate = self._global_learning_rate()
        if factor == 1.0:
            return rate
        if in_dygraph_mode():
            return rate * factor
        with default_main_program()._lr_schedule_guard(is_with_opt=True), name_scope("scale_with_param_lr"):
            return rate * factor

    # Accumulators.

    def _add_accumulator(
        self,
        name: str,
        param: Variable,
        dtype: Any = None,
        fill_value: float = 0.0,
        shape: list[int] | None = None,
        type: VarType | None = None,
        device: str | None = None,
    ) -> Variable:
        """Create a persistable Variable associated with ``param``, initialised to ``fill_value``."""
        if self._name is not None:
            name = f"{self._name}_{name}"
        if in_dygraph_mode():
            kind, sizes = param.type if type is None else type, param.shape if shape is None else shape
            settings = {"persistable": True, "dtype": dtype or param.dtype, "type": kind, "shape": sizes}
            return self._eager_accumulator(name, param, fill_value, settings)
        if param.name in self._accumulators[name]:
            raise ArgumentError(
                f"accumulator {name} of parameter {param.name} exists already; expected one of each kind. Use a new "
                f"{self.__class__.__name__} for another program"
            )
        helper = self.helper
        var = helper.create_global_variable(
            name=unique_name.generate(f"{param.name}_{name}"),
            persistable=True,
            dtype=dtype or param.dtype,
            type=param.type if type is None else type,
            shape=param.shape if shape is None else shape,
            belong_to_optimizer=True,
        )
        self._opti_name_list.append(var.name)
        with device_guard(device or self._param_device_map.get(param.name)):
            helper.set_variable_initializer(var, initializer=Constant(value=float(fill_value)))
        self._accumulators[name][param.name] = var
        return var

    def _get_accumulator(self, name: str, param: Variable) -> Variable:
        if self._name is not None:
            name = f"{self._name}_{name}"
        var = self._accumulators.get(name, {}).get(param.name)
        if var is None:
            raise ArgumentError(
                f"accumulator {name} of parameter {param.name} does not exist; expected one made by minimize. Call "
                "minimize (or apply_gradients) first"
            )
        return var

    # What users call.

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
        callbacks: list[Callable[..., None]] | None = None,
    ) -> list[Pair]:
        """The first half of ``minimize``: append the ops that compute gradients.

        Args:
            loss: a Variable of shape [1].
            startup_program: where to initialise state; None: the default one.
            parameter_list: the parameters to update; None: the optimizer's own list, or all trainable ones.
            no_grad_set: Variables (or names) through which no gradient is propagated.
            callbacks: as for ``append_backward``; None: the error clips of variables.

        Returns:
            [(parameter, gradient)].

        Raises:
            ValueError: ``loss`` is not of shape [1].
        """
        if in_dygraph_mode():
            return self._eager_gradients()
        if tuple(loss.shape) != (1,):
            raise ArgumentError(
                f"minimize: the loss {loss.name!r} has shape {tuple(loss.shape)}; expected (1,). Reduce it with "
                "fluid.layers.mean or reduce_sum"
            )
        self._dtype = loss.dtype
        callbacks = [error_clip_callback] if callbacks is None else callbacks
        parameters = parameter_list or self._parameter_list
        with program_guard(loss.block.program, startup_program or default_startup_program()):
            return append_backward(loss, parameters, self._get_no_grad_set(loss, no_grad_set), callbacks)

    def _get_no_grad_set(self, loss: Variable, no_grad_set: Iterable[Variable | str] | None) -> set[str]:
        """Names of the variables through which no gradient is propagated: those given, and parameters not trained."""
        names = no_grad_names(no_grad_set)
        parameters = loss.block.program.global_block().all_parameters()
        return names | {p.name for p in parameters if not p.trainable}

    def apply_gradients(self, params_grads: list[Pair]) -> list[Operator]:
        """The second half of ``minimize``: clip, apply weight decay, update; writes to the default main program.

        Args:
            params_grads: [(parameter, gradient)], as returned by ``backward``.

        Returns:
            The update ops.
        """
        if in_dygraph_mode():
            return self._eager_apply(params_grads)
        pairs, table = self._take_distributed_table(sorted(params_grads, key=lambda pair: pair[0].name))
        pairs = append_gradient_clip_ops(pairs) if self._grad_clip is None else self._grad_clip(pairs)
        pairs = append_regularization_ops(pairs, self.regularization)
        return self._create_optimization_pass(pairs) + table

    def _take_distributed_table(self, pairs: list[Pair]) -> tuple[list[Pair], list[Operator]]:
        """(the pairs without the distributed lookup table, its update): plain SGD without clipping or weight decay,
        as performed by the servers on its rows.
        """
        program = default_main_program()
        name = find_distributed_lookup_table(program)
        found = [pair for pair in pairs if pair[0].name == name]
        return [pair for pair in pairs if pair[0].name != name], [self._descend(program, pair) for pair in found]

    def _descend(self, program: Program, pair: Pair) -> Operator:
        param, grad = pair
        with program._optimized_guard(pair), name_scope("optimizer"):
            self._create_global_learning_rate()
            inputs = {"Param": param, "Grad": grad, "LearningRate": self._create_param_lr(pair)}
            return program.global_block().append_op(type="sgd", inputs=inputs, outputs={"ParamOut": param})

    def apply_optimize(
        self, loss: Variable, startup_program: Program | None, params_grads: list[Pair]
    ) -> list[Operator]:
        """``apply_gradients`` in the program of ``loss``; under ``dygraph.guard()``, an immediate update.

        ``minimize`` calls it in both modes, so a subclass that overrides it extends every step.
        """
        if mode.tracer is not None:
            return self._eager_apply(params_grads)
        with program_guard(loss.block.program, startup_program or default_startup_program()):
            return self.apply_gradients(params_grads)

    @takes_a_clip
    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
    ) -> tuple[list[Operator], list[Pair]]:
        """Append the ops of one training step to the program of ``loss``: gradients, clipping, weight decay, updates.

        Arguments and errors as for ``backward``.

        Returns:
            (the update ops, [(parameter, gradient)]).
        """
        if mode.tracer is not None:
            return self._eager_minimize(loss, startup_program, parameter_list)
        if not isinstance(loss, Variable):
            raise AssertionError(
                f"The loss should be an Variable: minimize received {loss!r} of type {type(loss).__name__}. Pass the"
                " result of a layer"
            )
        parameters = parameter_list or self._parameter_list
        params_grads = self.backward(
            loss, startup_program=startup_program, parameter_list=parameters, no_grad_set=no_grad_set
        )
        return self.apply_optimize(loss, startup_program, params_grads), params_grads

    def _create_optimization_pass(self, parameters_and_grads: list[Pair]) -> list[Operator]:
        block = _update_block()
        start = len(block.ops)
        self.helper = LayerHelper(self.__class__.__name__)
        trainable = [p for p, _ in parameters_and_grads if p.trainable]
        self._param_device_map = _devices(block, {p.name for p in trainable})
        self._create_accumulators(block, trainable)
        self._create_global_learning_rate()
        for pair in parameters_and_grads:
            param, grad = pair
            if grad is None:
                continue
            with param.block.program._optimized_guard(pair), name_scope("optimizer"):
                if param.trainable:
                    with device_guard(self._param_device_map.get(param.name)):
                        self._append_optimize_op(block, pair)
        self._finish_update(block, parameters_and_grads)
        return block._slice_ops(start, len(block.ops))

    # State.

    def get_opti_var_name_list(self) -> list[str]:
        """The names of all accumulators."""
        return self._opti_name_list

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of the accumulators in the current scope, by name."""
        if in_dygraph_mode():
            return self._eager_state()
        return {name: np.array(global_scope().var(name).get_tensor()) for name in self._opti_name_list}

    def set_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Set the accumulators in the current scope.

        Raises ValueError if one is missing from ``state_dict``.
        """
        if in_dygraph_mode():
            self._eager_set(state_dict)
            return
        if not isinstance(state_dict, Mapping):
            raise ArgumentError(f"set_dict takes a dict, received {state_dict!r}. Pass what state_dict() gave.")
        missing = [name for name in self._opti_name_list if name not in state_dict]
        if missing:
            raise ArgumentError(
                f"set_dict: the state lacks {', '.join(missing)}; expected {', '.join(self._opti_name_list)}. Give the "
                "state_dict of an optimizer of the same kind and program"
            )
        for name in self._opti_name_list:
            global_scope().var(name).get_tensor().set(np.asarray(state_dict[name]), CPUPlace())

    def current_step_lr(self) -> float | np.float32:
        """The learning rate of the next step (with a schedule: of the last one).

        A number passed to the optimizer is returned unchanged; a rate read from a variable is a float32.
        """
        if in_dygraph_mode():
            return self._eager_step_lr()
        rate = self._global_learning_rate()
        found = global_scope().find_var(rate.name) if rate is not None else None
        if found is not None and found.get_tensor()._is_initialized():
            return np.asarray(found.get_tensor()).reshape(-1)[0]
        if isinstance(self._learning_rate, float):
            return self._learning_rate
        raise RuntimeError(
            f"the learning rate {self._learning_rate.name!r} has no value yet; expected one after a run of the startup "
            "program or a step. Run it first"
        )

    def clear_gradients(self) -> None:
        """Zero the gradients of all trained parameters; a no-op in static mode, where gradients last a single run."""
        if in_dygraph_mode():
            current_tracer().clear_gradients(self._eager_parameters())


def _update_block() -> Block:
    """The block for updates: the global block or, inside a branch, the block of its gradients."""
    program = default_main_program()
    current = program.current_block()
    if current.idx == 0:
        return current
    if current.backward_block_idx == -1:
        raise ArgumentError(
            f"minimize inside block {current.idx}: it has no gradient block; expected a loss computed in this branch. "
            "Call minimize where the loss is computed, or outside of the branch"
        )
    return program.block(current.backward_block_idx)


def _devices(block: Block, names: set[str]) -> dict[str, str | None]:
    """The device of the first op that reads each variable."""
    found: dict[str, str | None] = {}
    for op in block.ops:
        for name in op.input_arg_names:
            if name in names and name not in found:
                found[name] = (op.attr("op_device") or None) if op.has_attr("op_device") else None
    return found


def _global_variable(name: str, shape: list[int], value: float, dtype: Any) -> Variable:
    """A persistable variable of the global block, which the startup program fills with ``value``."""
    helper = LayerHelper("global_var")
    var = helper.create_global_variable(dtype=dtype, shape=shape, persistable=True, name=name, stop_gradient=True)
    helper.set_variable_initializer(var, initializer=Constant(value=float(value)))
    return var
