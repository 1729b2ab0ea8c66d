"""``extend_with_decoupled_weight_decay``: derives AdamW from Adam, and likewise for any optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fluidjax import layers
from fluidjax.framework import Operator, Program, Variable, name_scope
from fluidjax.optimizer.base import Optimizer, Pair

__all__ = ["extend_with_decoupled_weight_decay"]


class DecoupledWeightDecay(Optimizer):
    """Mixin for an optimizer class: before the update, ``coeff`` times its old value is subtracted from a parameter.

    Args:
        coeff: a float, or a Variable of shape [1].
        apply_decay_param_fun: a predicate on parameter names that selects those to decay; all if None.
        kwargs: arguments of the optimizer.

    Raises:
        TypeError: ``coeff`` has another type.
    """

    def __init__(
        self,
        coeff: float | Variable = 0.0,
        apply_decay_param_fun: Callable[[str], bool] | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(coeff, (float, Variable)):
            raise TypeError(
                f"weight decay: coeff is {coeff!r} of type {type(coeff).__name__}; expected a float or a Variable. "
                "Write 1.0 instead of 1"
            )
        self._params_name: set[str] = set()
        self._apply_decay_param_fun = apply_decay_param_fun
        self._coeff = coeff
        super().__init__(**kwargs)

    def _scale_parameters(self, params_and_grads: list[Pair]) -> list[tuple[Variable, Variable, Variable]]:
        """(parameter, gradient, coeff * parameter) for each parameter that decays."""
        if isinstance(self._coeff, float) and self._coeff == 0.0:
            return []
        decays = self._apply_decay_param_fun
        scaled = []
        for param, grad in params_and_grads:
            if grad is None or (decays is not None and not decays(param.name)):
                continue
            with param.block.program._optimized_guard([param, grad]), name_scope("weight decay"):
                scaled.append((param, grad, param * self._coeff))
            self._params_name.add(param.name)
        return scaled

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
    ) -> tuple[list[Operator], list[Pair]]:
        """The optimizer's ``minimize``, with the decay before the updates."""
        pairs = self.backward(
            loss=loss, startup_program=startup_program, parameter_list=parameter_list, no_grad_set=no_grad_set
        )
        for param, grad, scaled in self._scale_parameters(pairs):
            with param.block.program._optimized_guard([param, grad]), name_scope("weight decay"):
                layers.assign(input=layers.elementwise_sub(x=param, y=scaled), output=param)
        updates = self.apply_optimize(loss=loss, startup_program=startup_program, params_grads=pairs)
        return updates, pairs

    def __str__(self) -> str:
        return f"Weight Decay, params: {','.join(sorted(self._params_name))}"


def extend_with_decoupled_weight_decay(base_optimizer: type[Optimizer]) -> type[Optimizer]:
    """A subclass of ``base_optimizer`` with weight decay decoupled from the gradients.

    Its arguments are ``weight_decay`` (a float, or a Variable of shape [1]), ``apply_decay_param_fun`` (a predicate on
    parameter names, or None) and, by keyword, those of ``base_optimizer``:
    ``extend_with_decoupled_weight_decay(fluid.optimizer.Adam)(weight_decay=0.01, learning_rate=0.1)``.

    Raises:
        TypeError: ``base_optimizer`` is not an optimizer class.
    """
    if not (isinstance(base_optimizer, type) and issubclass(base_optimizer, Optimizer)):
        raise TypeError(
            f"extend_with_decoupled_weight_decay: got {base_optimizer!r}; expected a class of fluid.optimizer. Pass "
            "the class, not an instance"
        )

    def __init__(
        self: Any,
        weight_decay: float | Variable,
        apply_decay_param_fun: Callable[[str], bool] | None = None,
        **kwargs: Any,
    ) -> None:
        DecoupledWeightDecay.__init__(self, weight_decay, apply_decay_param_fun, **kwargs)

    name = "OptimizerWithDecoupledWeightDecay"
    return type(name, (DecoupledWeightDecay, base_optimizer), {"__init__": __init__, "__doc__": base_optimizer.__doc__})
