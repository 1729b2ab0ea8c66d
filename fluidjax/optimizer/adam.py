"""The Adam family: Adam, Adamax, Lamb."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fluidjax.base.enums import VarType
from fluidjax.clip import GradientClipBase
from fluidjax.framework import Block, Operator, Variable, name_scope
from fluidjax.optimizer.base import Optimizer, Pair, check_given
from fluidjax.regularizer import WeightDecayRegularizer


class AdamOptimizer(Optimizer):
    """Adam: m1 = beta1 * m1 + (1 - beta1) * grad; m2 = beta2 * m2 + (1 - beta2) * grad^2; at step t:

    param -= learning_rate * sqrt(1 - beta2^t) / (1 - beta1^t) * m1 / (sqrt(m2) + epsilon * sqrt(1 - beta2^t)).

    Args:
        learning_rate: a float, or a Variable of shape [1].
        beta1, beta2: decay rates of the moments; floats, or Variables of shape [1].
        epsilon: avoids division by zero.
        parameter_list: the parameters to update; all trainable ones if None.
        regularization: weight decay for parameters without their own regularizer.
        grad_clip: gradient clipping.
        name: included in the names of the accumulators.
        lazy_mode: for a sparse gradient, update only the rows it contains, including their moments.

    Examples:
        >>> x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
        >>> loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
        >>> ops, grads = fluid.optimizer.Adam(learning_rate=0.001).minimize(loss)
        >>> [parameter.name for parameter, gradient in grads]
        ['fc_0.w_0', 'fc_0.b_0']
    """

    _moment1_acc_str = "moment1"
    _moment2_acc_str = "moment2"
    _beta1_pow_acc_str = "beta1_pow_acc"
    _beta2_pow_acc_str = "beta2_pow_acc"

    def __init__(
        self,
        learning_rate: float | Variable = 0.001,
        beta1: float | Variable = 0.9,
        beta2: float | Variable = 0.999,
        epsilon: float = 1e-08,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
        lazy_mode: bool = False,
    ) -> None:
        check_given(self, learning_rate=learning_rate, beta1=beta1, beta2=beta2, epsilon=epsilon)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self.type = "adam"
        self._beta1 = beta1
        self._beta2 = beta2
        self._epsilon = epsilon
        self._lazy_mode = lazy_mode

    def _create_accumulators(self, block: Block, parameters: list[Variable]) -> None:
        starts = {
            self._beta1_pow_acc_str: 0.9 if isinstance(self._beta1, Variable) else self._beta1,
            self._beta2_pow_acc_str: 0.999 if isinstance(self._beta2, Variable) else self._beta2,
        }
        for param in parameters:
            self._add_accumulator(self._moment1_acc_str, param)
            self._add_accumulator(self._moment2_acc_str, param)
            for name, value in starts.items():
                self._add_accumulator(name, param, fill_value=value, shape=[1], type=VarType.LOD_TENSOR, device="cpu")

    def _state(self, param: Variable) -> dict[str, Variable]:
        return {
            "Moment1": self._get_accumulator(self._moment1_acc_str, param),
            "Moment2": self._get_accumulator(self._moment2_acc_str, param),
            "Beta1Pow": self._get_accumulator(self._beta1_pow_acc_str, param),
            "Beta2Pow": self._get_accumulator(self._beta2_pow_acc_str, param),
        }

    def _append_optimize_op(self, block: Block, param_and_grad: Pair) -> Operator:
        param, grad = param_and_grad
        state = self._state(param)
        inputs: dict[str, Any] = {"Param": param, "Grad": grad, **state}
        inputs["LearningRate"] = self._create_param_lr(param_and_grad)
        attrs: dict[str, Any] = {
            "epsilon": self._epsilon,
            "lazy_mode": self._lazy_mode,
            "min_row_size_to_use_multithread": 1000,
        }
        for name, beta in (("beta1", self._beta1), ("beta2", self._beta2)):
            if isinstance(beta, Variable):
                inputs[f"{name.capitalize()}Tensor"] = beta
            else:
                attrs[name] = beta
        outputs = {"ParamOut": param, **{f"{slot}Out": var for slot, var in state.items()}}
        return block.append_op(type=self.type, inputs=inputs, outputs=outputs, attrs=attrs, stop_gradient=True)


class AdamaxOptimizer(Optimizer):
    """Adamax: m = beta1 * m + (1 - beta1) * grad; u = max(beta2 * u + epsilon, |grad|); at step t:

    param -= learning_rate / (1 - beta1^t) * m / u.

    Args:
        learning_rate: a float, or a Variable of shape [1].
        beta1, beta2: decay rates of m and u.
        epsilon: avoids division by zero.
        parameter_list: the parameters to update; all trainable ones if None.
        regularization: weight decay for parameters without their own regularizer.
        grad_clip: gradient clipping.
        name: included in the names of the accumulators.
    """

    _moment_acc_str = "moment"
    _inf_norm_acc_str = "inf_norm"
    _beta1_pow_acc_str = "beta1_pow_acc"

    def __init__(
        self,
        learning_rate: float | Variable = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-08,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        check_given(self, learning_rate=learning_rate, beta1=beta1, beta2=beta2, epsilon=epsilon)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self.type = "adamax"
        self._beta1 = beta1
        self._beta2 = beta2
        self._epsilon = epsilon

    def _create_accumulators(self, block: Block, parameters: list[Variable]) -> None:
        for param in parameters:
            self._add_accumulator(self._moment_acc_str, param)
            self._add_accumulator(self._inf_norm_acc_str, param)
            self._add_accumulator(self._beta1_pow_acc_str, param, fill_value=self._beta1, shape=[1])

    def _append_optimize_op(self, block: Block, param_and_grad: Pair) -> Operator:
        param, grad = param_and_grad
        moment = self._get_accumulator(self._moment_acc_str, param)
        norm = self._get_accumulator(self._inf_norm_acc_str, param)
        return block.append_op(
            type=self.type,
            inputs={
                "Param": param,
                "Grad": grad,
                "LearningRate": self._create_param_lr(param_and_grad),
                "Moment": moment,
                "InfNorm": norm,
                "Beta1Pow": self._get_accumulator(self._beta1_pow_acc_str, param),
            },
            outputs={"ParamOut": param, "MomentOut": moment, "InfNormOut": norm},
            attrs={"beta1": self._beta1, "beta2": self._beta2, "epsilon": self._epsilon},
            stop_gradient=True,
        )

    def _finish_update(self, block: Block, parameters_and_grads: list[Pair]) -> None:
        """Advance the power of beta1 for each parameter."""
        for pair in parameters_and_grads:
            param, grad = pair
            if grad is None or not param.trainable:
                continue
            with param.block.program._optimized_guard(pair), name_scope("adamx"):
                power = self._get_accumulator(self._beta1_pow_acc_str, param)
                block.append_op(
                    type="scale",
                    inputs={"X": power},
                    outputs={"Out": power},
                    attrs={"scale": self._beta1},
                    stop_gradient=True,
                )


class LambOptimizer(AdamOptimizer):
    """LAMB: m1, m2 as in Adam; r = m1 / (sqrt(m2) + epsilon) + lamb_weight_decay * param;

    param -= learning_rate * |param| / |r| * r (the ratio is 1 where a norm is 0). As in Fluid, the moments are not
    bias-corrected.

    Args:
        learning_rate: a float, or a Variable of shape [1].
        lamb_weight_decay: weight decay applied within the update.
        beta1, beta2: decay rates of the moments.
        epsilon: avoids division by zero.
        parameter_list: the parameters to update; all trainable ones if None.
        regularization: weight decay for parameters without their own regularizer.
        grad_clip: gradient clipping.
        exclude_from_weight_decay_fn: a predicate on parameters; True disables ``lamb_weight_decay``.
        name: included in the names of the accumulators.
    """

    def __init__(
        self,
        learning_rate: float | Variable = 0.001,
        lamb_weight_decay: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-06,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        exclude_from_weight_decay_fn: Callable[[Variable], bool] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, parameter_list, regularization, grad_clip, name)
        check_given(self, lamb_weight_decay=lamb_weight_decay)
        self.type = "lamb"
        self._weight_decay = lamb_weight_decay
        self._exclude_from_weight_decay_fn = exclude_from_weight_decay_fn

    def _append_optimize_op(self, block: Block, param_and_grad: Pair) -> Operator:
        block.program._use_lamb = True
        param, grad = param_and_grad
        state = self._state(param)
        excluded = self._exclude_from_weight_decay_fn is not None and self._exclude_from_weight_decay_fn(param)
        return block.append_op(
            type=self.type,
            inputs={
                "Param": param,
                "Grad": grad,
                "LearningRate": self._create_param_lr(param_and_grad),
                **state,
            },
            outputs={"ParamOut": param, "Moment1Out": state["Moment1"], "Moment2Out": state["Moment2"]},
            attrs={
                "beta1": self._beta1,
                "beta2": self._beta2,
                "epsilon": self._epsilon,
                "weight_decay": 0.0 if excluded else self._weight_decay,
            },
            stop_gradient=True,
        )


Adam = AdamOptimizer
Adamax = AdamaxOptimizer
Lamb = LambOptimizer
