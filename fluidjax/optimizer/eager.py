"""Optimizers in eager mode: gradients are available, and updates are immediate."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any, NoReturn, TypeVar

import numpy as np

from fluidjax import unique_name
from fluidjax.base import mode
from fluidjax.base.errors import explain
from fluidjax.base.mode import current_tracer, in_dygraph_mode
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.framework import Program, Variable, default_main_program
from fluidjax.initializer import Constant
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._schedules.base import LearningRateDecay
from fluidjax.optimizer.foreseen import rate_ahead
from fluidjax.regularizer import append_regularization_ops

Pair = tuple[Any, Any]  # (ParamBase, its gradient)
_gradient = itemgetter(1)  # of a pair
_Minimize = TypeVar("_Minimize", bound=Callable[..., Any])


def check_settings(optimizer: Any, learning_rate: Any, parameter_list: Any) -> None:
    """Raise AttributeError without parameters, TypeError if the learning rate is neither a float nor a schedule.

    Where layers are made as in Fluid 1.6, with a name, the optimizer finds the parameters itself, as it did then.
    """
    name = type(optimizer).__name__
    if parameter_list is None and not current_tracer().made.named:
        missing = AttributeError("parameter_list argument given to the Optimizer should not be None in dygraph mode.")
        missing.add_note(f"Expected a list of parameters, {name} got none. Pass parameter_list=layer.parameters().")
        raise missing
    if parameter_list is not None and (
        isinstance(parameter_list, Variable) or not isinstance(parameter_list, Iterable)
    ):
        raise TypeError(
            explain(
                f"{name}: the parameter_list is of type {type(parameter_list).__name__}",
                "a list of parameters",
                f"{parameter_list!r:.60}",
                "pass layer.parameters(), or put a single parameter into a list",
            )
        )
    if not isinstance(learning_rate, (float, LearningRateDecay)):
        raise TypeError(
            f"learning rate should be float or LearningRateDecay, got {type(learning_rate)} in {name}. Write 1.0 "
            "instead of 1, or pass a decay of fluid.dygraph."
        )


def refuse(name: str) -> None:
    """Raise in eager mode, which an optimizer does not support."""
    if in_dygraph_mode():
        error = Exception(f"In dygraph, don't support {name}.")
        error.add_note("It rewrites programs: expected static mode. Leave the guard, or use another optimizer.")
        raise error


def takes_a_clip(minimize: _Minimize) -> _Minimize:
    """``minimize(loss, grad_clip=...)``, as Fluid 1.5 to 1.7 had it in eager mode: a clip for one step."""

    @functools.wraps(minimize)
    def clipped(self: EagerUpdates, *args: Any, grad_clip: Any = None, **keywords: Any) -> Any:
        if grad_clip is None:
            return minimize(self, *args, **keywords)
        if not in_dygraph_mode():
            raise TypeError(
                f"minimize received grad_clip={grad_clip!r:.60} for the loss of a program; expected none, as Fluid "
                "took it in eager mode only. Give it to the optimizer when it is made"
            )
        kept, self._grad_clip = self._grad_clip, grad_clip
        try:
            return minimize(self, *args, **keywords)
        finally:
            self._grad_clip = kept

    return clipped  # type: ignore[return-value]


class EagerUpdates:
    """The eager-mode part of Optimizer."""

    type: str
    regularization: Any
    helper: Any
    _parameter_list: list[Any] | None
    _grad_clip: Any
    _learning_rate: Any
    _learning_rate_map: dict[Program, Any]
    _accumulators: dict[str, dict[str, Any]]
    _opti_name_list: list[str]
    _replay: Any = None
    _replay_form: Any = None
    _replay_names: int = 0  # how many names its results take

    def _eager_parameters(self, named: Iterable[Any] | None = None) -> Iterable[Any]:
        """Its own parameters; where it was given none, those named or all there are, if layers are made as in 1.6."""
        if self._parameter_list:
            return self._parameter_list
        made = current_tracer().made
        return (named or made.parameters()) if made.named else ()

    def _eager_gradients(self, named: Iterable[Any] | None = None) -> list[Pair]:
        """Trainable parameters that have a gradient, with that gradient."""
        return current_tracer().gradients_of(self._eager_parameters(named))

    def _eager_minimize(
        self, loss: Any, startup_program: Program | None, named: Iterable[Any] | None = None
    ) -> tuple[list[Any], list[Pair]]:
        if loss.__class__ is not VarBase and not isinstance(loss, Variable):
            raise AssertionError(f"The loss should be an Variable, received {loss!r:.60}. Pass what a layer returned.")
        tracer, parameters = mode.tracer, self._parameter_list or self._eager_parameters(named)
        promised = tracer.promised()
        if promised is not None and (known := self._eager_promised(tracer, promised, parameters)) is not None:
            return [], known
        before, tracer._train_mode = tracer._train_mode, False  # ``no_grad`` takes longer
        try:
            pairs = tracer.gradients_of(parameters)
            self.apply_optimize(loss, startup_program, pairs)  # type: ignore[attr-defined] # subclasses add to it
        finally:
            tracer._train_mode = before
        tracer.end_of_step()
        return [], pairs

    def _eager_promised(self, tracer: Any, promised: Any, parameters: Iterable[Any]) -> list[Pair] | None:
        """The pairs, if the update is the known one of a promised step, which has come with this; else None.

        There is no effect then: a schedule, which advances, is asked for its rate as ever.
        """
        replay, rate = self._replay, self._learning_rate_map.get(default_main_program())
        if replay is None or rate is None or self._learning_rate.__class__ is not float:
            return None
        pairs = promised.gradients(parameters)
        if pairs is None or self._eager_form(pairs) != self._replay_form:
            return None
        replay.rate = rate._value
        if not promised.update(replay, [*map(_gradient, pairs), rate]):
            return None
        tracer.ids["tmp"] += self._replay_names
        return pairs

    def _eager_apply(self, pairs: list[Pair]) -> list[Any]:
        """Clip, apply weight decay and update; ops identical in two successive steps are replayed, not rewritten."""
        tracer, replay = mode.tracer, self._replay
        self._create_global_learning_rate()  # type: ignore[attr-defined]
        given = [*map(_gradient, pairs), self._learning_rate_map[default_main_program()]]
        form = self._eager_form(pairs)
        if replay is not None and form is not None and form == self._replay_form:
            replay.run(tracer, given)
            tracer.ids["tmp"] += self._replay_names
            return []
        self._replay = None
        names = tracer.ids["tmp"]
        with tracer.calls() as calls:
            self._eager_write(pairs)
        if form is not None and form == self._replay_form:  # now the accumulators are there
            self._replay = tracer.replay(calls, given)
            self._replay.foresees = weakref.WeakMethod(self._rate_ahead)
            self._replay_names = tracer.ids["tmp"] - names
        self._replay_form = form
        return []

    def _eager_form(self, pairs: list[Pair]) -> Any:
        """The key that determines the ops of an update; None if it depends on code outside fluidjax."""
        clip = self._grad_clip
        parts: list[Any] = [self]
        if clip is not None:
            if clip._need_clip_func is not None:
                return None
            parts.append(clip)
        if self.regularization is not None:
            parts.append(self.regularization)
        form: list[Any] = []
        for p, g in pairs:
            regularizer = p.regularizer
            if regularizer is not None:
                parts.append(regularizer)
            form += id(p), g._held.spec, p.trainable, id(regularizer), p.optimize_attr["learning_rate"]
        settings = self._eager_settings(parts)
        return None if settings is None else form + settings

    def _eager_settings(self, parts: list[Any]) -> list[Any] | None:
        """Numbers and names that parts of the optimizer hold; None if one of these is not of fluidjax.

        What the parts hold is looked at anew only if it is not the very same as last time.
        """
        held: list[Any] = []
        for part in parts:
            held += vars(part).values()
            held.append(part.__class__)
        ids, replay = [*map(id, held)], self._replay
        if replay is not None and replay.settings is not None and replay.settings[0] == ids:
            return replay.settings[1]
        if not all([_is_ours(part.__class__) for part in parts]):
            return None
        settings = [v for v in held if _numbers[v.__class__]]
        if replay is not None:
            # What is held keeps its identity; it is not referred to in a circle.
            replay.settings = ids, settings, [each for each in held if each is not replay]
        return settings

    def _eager_write(self, pairs: list[Pair]) -> None:
        if self._grad_clip is not None:
            pairs = self._grad_clip(pairs)
        pairs = append_regularization_ops(pairs, self.regularization)
        block = default_main_program().global_block()
        self.helper = LayerHelper(type(self).__name__)
        self._create_accumulators(block, [p for p, _ in pairs if p.trainable])  # type: ignore[attr-defined]
        for pair in pairs:
            if pair[1] is not None and pair[0].trainable:
                self._append_optimize_op(block, pair)  # type: ignore[attr-defined]
        self._finish_update(block, pairs)  # type: ignore[attr-defined]

    def _eager_rate(self, dtype: Any) -> None:
        """Compute the rate of this step, advancing a schedule."""
        program = default_main_program()
        if isinstance(self._learning_rate, LearningRateDecay):
            self._learning_rate_map[program] = self._learning_rate()
        elif program not in self._learning_rate_map:
            self._learning_rate_map[program] = rate_variable(float(self._learning_rate), dtype)

    def _rate_ahead(self) -> Any:
        """The rate of the next step, a variable, if it is known already; None if not."""
        return rate_ahead(self._learning_rate)

    def _eager_accumulator(self, name: str, param: Any, fill_value: float, settings: Mapping[str, Any]) -> Any:
        found = self._accumulators[name].get(param.name)
        if found is not None:
            return found
        var = self.helper.create_global_variable(name=unique_name.generate(f"{param.name}_{name}"), **settings)
        self._opti_name_list.append(var.name)
        self.helper.set_variable_initializer(var, initializer=Constant(value=float(fill_value)))
        var._stop_gradient = True
        held = self.__dict__.get("_accumulators_holder")
        if held:
            if var.name not in held:
                raise AssertionError(
                    f"Optimizer set error, {var.name} should in state dict. Expected the state of an optimizer made in "
                    "the same order, received one of another order or of other parameters. Make the optimizers in the "
                    "same order, in a fresh guard."
                )
            var.set_value(held[var.name])
        self._accumulators[name][param.name] = var
        return var

    # State.

    def _eager_state(self) -> dict[str, Any]:
        state = {var.name: var for each in self._accumulators.values() for var in each.values()}
        if isinstance(self._learning_rate, LearningRateDecay):
            state["LR_Scheduler"] = self._learning_rate.state_dict()
            if self._learning_rate.counts_steps:
                step = np.array([self._learning_rate.step_num], np.int32)
                state["global_step"] = current_tracer().to_variable(step, "global_step")
        return state

    def _eager_set(self, state: Mapping[str, Any]) -> None:
        if isinstance(self._learning_rate, LearningRateDecay):
            self._learning_rate.set_dict(state["LR_Scheduler"])
            if self._learning_rate.counts_steps:
                self._learning_rate.step_num = _array(state["global_step"]).reshape(-1)[0]
        self._accumulators_holder = dict(state)
        for each in self._accumulators.values():
            for var in each.values():
                if var.name not in state:
                    raise AssertionError(
                        f"optimizer variable {var.name} not found: the state is of other parameters or another "
                        "optimizer. Give the state_dict of one that was made in the same order."
                    )
                var.set_value(_array(state[var.name]))

    def load(self, stat_dict: Mapping[str, Any]) -> None:
        """Set the schedule of the learning rate to a state that ``dygraph.load_persistables`` gave, as in Fluid 1.5.

        Args:
            stat_dict: states of schedules by the names of optimizers ("None" for one without a name).

        Raises KeyError if there is none under this optimizer's name; a rate that is a number stays.
        """
        if isinstance(self._learning_rate, LearningRateDecay):
            name = str(self._name)  # type: ignore[attr-defined]
            if name not in stat_dict:
                raise KeyError(
                    explain(
                        f"load: there is no schedule of an optimizer named {name!r}",
                        "the second result of load_persistables, of a folder saved with this optimizer",
                        f"the names {sorted(stat_dict)[:8]}",
                        "save it with save_persistables(state, folder, optimizer), or give both optimizers one name",
                    )
                )
            self._learning_rate.set_dict(stat_dict[name])

    def _eager_step_lr(self) -> float | np.float32:
        rate = self._learning_rate_map.get(default_main_program())
        if rate is None:
            if isinstance(self._learning_rate, float):
                return self._learning_rate
            rate = self._learning_rate.first_rate()
        return rate.numpy().reshape(-1)[0] if isinstance(rate, VarBase) else rate


@functools.cache
def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith("fluidjax.")


class _Numbers(dict[type, bool]):
    """Whether values of a class are settings that are compared: numbers and names."""

    def __missing__(self, kind: type) -> bool:
        self[kind] = found = issubclass(kind, (int, float, str))
        return found


_numbers = _Numbers()


def _array(value: Any) -> np.ndarray:
    return value.numpy() if isinstance(value, VarBase) else np.asarray(value)


def rate_variable(value: float, dtype: Any) -> Any:
    """A persistable variable of shape [1] holding a learning rate."""
    rate = current_tracer().to_variable(np.array([value], np.float32), unique_name.generate("learning_rate"))
    rate.persistable = True
    return rate


def fail_static(what: str) -> NoReturn:
    """Raise TypeError for an eager-mode schedule used in a program."""
    raise TypeError(
        explain(
            f"{what}: the learning rate is a decay object of eager mode, and this is static mode",
            "a float, or a Variable that a schedule of fluid.layers computes",
            "a LearningRateDecay",
            "use fluid.layers.exponential_decay and the like outside a guard",
        )
    )
