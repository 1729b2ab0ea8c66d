"""``decorate``: an optimizer that trains in mixed precision."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fluidjax import layers, unique_name
from fluidjax.contrib.mixed_precision.fp16_lists import AutoMixedPrecisionLists
from fluidjax.contrib.mixed_precision.fp16_utils import (
    rewrite_program,
    update_loss_scaling,
    update_role_var_grad,
)
from fluidjax.framework import Operator, Program, Variable, default_main_program, default_startup_program
from fluidjax.optimizer.base import Optimizer, Pair

__all__ = ["decorate", "AutoMixedPrecisionLists"]


class OptimizerWithMixedPrecision:
    """Wraps an optimizer: rewrites the program to 16 bits, scales the loss and unscales the gradients.

    Created by ``decorate``, which documents the arguments.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        amp_lists: AutoMixedPrecisionLists,
        init_loss_scaling: float,
        use_dynamic_loss_scaling: bool,
        incr_every_n_steps: int,
        decr_every_n_nan_or_inf: int,
        incr_ratio: float,
        decr_ratio: float,
    ) -> None:
        self._optimizer = optimizer
        self._amp_lists = amp_lists
        self._params_grads: list[Pair] | None = None
        self._train_program = default_main_program()
        self._startup_prog = default_startup_program()
        self._scaled_loss: Variable | None = None
        self._loss_scaling = _state("loss_scaling", init_loss_scaling, "float32")
        self._use_dynamic_loss_scaling = use_dynamic_loss_scaling
        if use_dynamic_loss_scaling:
            self._incr_every_n_steps = layers.fill_constant([1], "int32", incr_every_n_steps)
            self._decr_every_n_nan_or_inf = layers.fill_constant([1], "int32", decr_every_n_nan_or_inf)
            self._incr_ratio = incr_ratio
            self._decr_ratio = decr_ratio
            self._num_good_steps = _state("num_good_steps", 0, "int32")
            self._num_bad_steps = _state("num_bad_steps", 0, "int32")
        if isinstance(optimizer._learning_rate, float):
            # Of the parameters' type, not of the loss's.
            rate = _state("learning_rate", float(optimizer._learning_rate), "float32")
            optimizer._learning_rate_map[default_main_program()] = rate

    def get_loss_scaling(self) -> Variable:
        """The loss scaling factor, float32 [1]."""
        return self._loss_scaling

    def get_scaled_loss(self) -> Variable | None:
        """The scaled loss; None before ``backward``."""
        return self._scaled_loss

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
        callbacks: list[Callable[..., None]] | None = None,
    ) -> list[Pair]:
        """Rewrite the program, scale the loss and append the backward pass.

        Returns:
            [(parameter, gradient of the unscaled loss)].
        """
        rewrite_program(self._train_program, self._amp_lists)
        self._scaled_loss = loss * self._loss_scaling
        self._params_grads = self._optimizer.backward(
            self._scaled_loss, startup_program, parameter_list, no_grad_set, callbacks
        )
        update_role_var_grad(self._train_program, self._params_grads)
        pairs = []
        for pair in self._params_grads:
            with self._train_program._optimized_guard(pair):
                pairs.append((pair[0], pair[1] / self._loss_scaling))
        return pairs

    def apply_gradients(self, scaled_params_grads: list[Pair]) -> list[Operator]:
        """Update the loss scaling, zero gradients after an overflow, and update the parameters.

        A step whose gradients are not all finite is made with zero gradients.
        """
        if self._use_dynamic_loss_scaling:
            total = layers.reduce_sum(layers.concat([layers.reduce_sum(grad) for _, grad in scaled_params_grads]))
            is_finite = layers.isfinite(total)
            update_loss_scaling(
                is_finite,
                self._loss_scaling,
                self._num_good_steps,
                self._num_bad_steps,
                self._incr_every_n_steps,
                self._decr_every_n_nan_or_inf,
                self._incr_ratio,
                self._decr_ratio,
            )
            with layers.Switch() as switch:
                with switch.case(is_finite):
                    pass
                with switch.default():
                    for _, grad in scaled_params_grads:
                        layers.assign(layers.zeros_like(grad), grad)
        return self._optimizer.apply_gradients(scaled_params_grads)

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
    ) -> tuple[list[Operator], list[Pair]]:
        """``backward`` and ``apply_gradients``. Returns (the update ops, [(parameter, gradient)])."""
        pairs = self.backward(
            loss, startup_program=startup_program, parameter_list=parameter_list, no_grad_set=no_grad_set
        )
        return self.apply_gradients(pairs), pairs


def _state(name: str, value: float, dtype: str) -> Variable:
    return layers.create_global_var(
        name=unique_name.generate(name), shape=[1], value=value, dtype=dtype, persistable=True
    )


def decorate(
    optimizer: Optimizer,
    amp_lists: AutoMixedPrecisionLists | None = None,
    init_loss_scaling: float = 32768,
    incr_every_n_steps: int = 1000,
    decr_every_n_nan_or_inf: int = 2,
    incr_ratio: float = 2.0,
    decr_ratio: float = 0.8,
    use_dynamic_loss_scaling: bool = True,
) -> OptimizerWithMixedPrecision:
    """Wrap an optimizer so that ``minimize`` trains in mixed precision. Call it in the program to be trained.

    Args:
        optimizer: updates the (float32) parameters.
        amp_lists: which ops compute in 16 bits; the defaults if None. Its ``dtype`` may be set to bfloat16.
        init_loss_scaling: the initial scaling factor.
        incr_every_n_steps: number of consecutive steps with finite gradients after which the factor increases.
        decr_every_n_nan_or_inf: number of consecutive steps without, after which it decreases.
        incr_ratio, decr_ratio: the multipliers.
        use_dynamic_loss_scaling: whether the factor changes at all.
    """
    return OptimizerWithMixedPrecision(
        optimizer,
        AutoMixedPrecisionLists() if amp_lists is None else amp_lists,
        init_loss_scaling,
        use_dynamic_loss_scaling,
        incr_every_n_steps,
        decr_every_n_nan_or_inf,
        incr_ratio,
        decr_ratio,
    )
