"""Per-element step sizes from past gradients: Adagrad, DecayedAdagrad, Adadelta, RMSProp, Ftrl."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fluidjax.clip import GradientClipBase
from fluidjax.framework import Block, Operator, Variable
from fluidjax.optimizer.base import Optimizer, Pair, check_given
from fluidjax.regularizer import WeightDecayRegularizer


class _WithMoment(Optimizer):
    """An optimizer with one moment per parameter."""

    _moment_acc_str = "moment"
    _moment_start = 0.0

    def _create_accumulators(self, block: Block, parameters: list[Variable]) -> None:
        for param in parameters:
            self._add_accumulator(self._moment_acc_str, param, fill_value=self._moment_start)

    def _append_moment(self, block: Block, param_and_grad: Pair, attrs: dict[str, Any]) -> Operator:
        return self._append_update(block, param_and_grad, attrs, {"Moment": self._moment_acc_str})


class AdagradOptimizer(_WithMoment):
    """moment += grad^2; param -= learning_rate * grad / (sqrt(moment) + epsilon).

    Args:
        learning_rate: a float, or a Variable of shape [1].
        epsilon: avoids division by zero.
        parameter_list: the parameters to update; all trainable ones if None.
        regularization: weight decay for parameters without their own regularizer.
        grad_clip: gradient clipping.
        name: included in the names of the accumulators.
        initial_accumulator_value: initial value of the moments.

    Examples:
        >>> loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), 1))
        >>> ops, grads = fluid.optimizer.Adagrad(learning_rate=0.1).minimize(loss)
        >>> [op.type for op in ops]
        ['adagrad', 'adagrad']
    """

    def __init__(
        self,
        learning_rate: float | Variable,
        epsilon: float = 1e-06,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
        initial_accumulator_value: float = 0.0,
    ) -> None:
        check_given(self, learning_rate=learning_rate, epsilon=epsilon)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self.type = "adagrad"
        self._epsilon = epsilon
        self._moment_start = initial_accumulator_value

    def _append_optimize_op(self, block: Block, param_and_grad: Pair) -> Operator:
        return self._append_moment(block, param_and_grad, {"epsilon": self._epsilon})


class DecayedAdagradOptimizer(_WithMoment):
    """moment = decay * moment + (1 - decay) * grad^2; param -= learning_rate * grad / (sqrt(moment) + epsilon).

    Args:
        learning_rate: a float, or a Variable of shape [1].
        decay: decay rate of the moment.
        epsilon: avoids division by zero.
        parameter_list: the parameters to update; all trainable ones if None.
        regularization: weight decay for parameters without their own regularizer.
        grad_clip: gradient clipping.
        name: included in the names of the accumulators.
    """

    def __init__(
        self,
        learning_rate: float | Variable,
        decay: float = 0.95,
        epsilon: float = 1e-06,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        check_given(self, learning_rate=learning_rate, decay=decay, epsilon=epsilon)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self.type = "decayed_adagrad"
        self._decay = decay
        self._epsilon = epsilon

    def _append_optimize_op(self, block: Block, param_and_grad: Pair) -> Operator:
        return self._append_moment(block, param_and_grad, {"epsilon": self._epsilon, "decay": self._decay})


class AdadeltaOptimizer(Optimizer):
    """G = rho * G + (1 - rho) * grad^2; d = -sqrt((U + epsilon) / (G + epsilon)) * grad;

    U = rho * U + (1 - rho) * d^2; param += d. As in Fluid, the learning rate is not used.

    Args:
        learning_rate: a float, or a Variable of shape [1].
        epsilon: avoids division by zero.
        rho: decay rate of G and U.
        parameter_list: the parameters to update; all trainable ones if None.
        regularization: weight decay for parameters without their own regularizer.
        grad_clip: gradient clipping.
        name: included in the names of the accumulators.
    """

    _avg_squared_grad_acc_str = "_avg_squared_grad"
    _avg_squared_update_acc_str = "_avg_squared_update"

    def __init__(
        self,
        learning_rate: float | Variable,
        epsilon: float = 1e-06,
        rho: float = 0.95,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        check_given(self, ValueError, learning_rate=learning_rate, epsilon=epsilon, rho=rho)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self.type = "adadelta"
        self._epsilon = epsilon
        self._rho = rho

    def _create_accumulators(self, block: Block, parameters: list[Variable]) -> None:
        for param in parameters:
            self._add_accumulator(self._avg_squared_grad_acc_str, param)
            self._add_accumulator(self._avg_squared_update_acc_str, param)

    def _append_optimize_op(self, block: Block, param_and_grad: Pair) -> Operator:
        attrs = {"epsilon": self._epsilon, "rho": self._rho}
        states = {
            "AvgSquaredGrad": self._avg_squared_grad_acc_str,
            "AvgSquaredUpdate": self._avg_squared_update_acc_str,
        }
        return self._append_update(block, param_and_grad, attrs, states, rate=False)


class RMSPropOptimizer(Optimizer):
    """square = rho * square + (1 - rho) * grad^2; m = momentum * m + learning_rate * grad / sqrt(square + epsilon);

    param -= m. With ``centered``, mean = rho * mean + (1 - rho) * grad, and mean^2 is subtracted from ``square`` under
    the root.

    Args:
        learning_rate: a float, or a Variable of shape [1].
        rho: decay rate of the averages.
        epsilon: avoids division by zero.
        momentum: decay rate of m.
        centered: whether to divide by the standard deviation.
        parameter_list: the parameters to update; all trainable ones if None.
        regularization: weight decay for parameters without their own regularizer.
        grad_clip: gradient clipping.
        name: included in the names of the accumulators.
    """

    _momentum_acc_str = "momentum"
    _mean_square_acc_str = "mean_square"
    _mean_grad_acc_str = "mean_grad"

    def __init__(
        self,
        learning_rate: float | Variable,
        rho: float = 0.95,
        epsilon: float = 1e-06,
        momentum: float = 0.0,
        centered: bool = False,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        check_given(self, TypeError, learning_rate=learning_rate)
        check_given(self, ValueError, rho=rho, epsilon=epsilon, momentum=momentum)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self.type = "rmsprop"
        self._rho = rho
        self._epsilon = epsilon
        self._momentum = momentum
        self._centered = centered

    def _create_accumulators(self, block: Block, parameters: list[Variable]) -> None:
        for param in parameters:
            self._add_accumulator(self._momentum_acc_str, param)
            self._add_accumulator(self._mean_square_acc_str, param)
            self._add_accumulator(self._mean_grad_acc_str, param)

    def _append_optimize_op(self, block: Block, param_and_grad: Pair) -> Operator:
        attrs = {
            "epsilon": self._epsilon,
            "decay": self._rho,
            "momentum": self._momentum,
            "centered": self._centered,
        }
        states = {
            "Moment": self._momentum_acc_str,
            "MeanSquare": self._mean_square_acc_str,
            "MeanGrad": self._mean_grad_acc_str,
        }
        return self._append_update(block, param_and_grad, attrs, states)


class FtrlOptimizer(Optimizer):
    """FTRL (follow the regularized leader): a parameter stays exactly 0 until its gradients outweigh ``l1``.

    S' = S + grad^2; L += grad - (S'^-p - S^-p) / learning_rate * param with p = lr_power;
    param = (l1 * sign(L) - L) / (S'^-p / learning_rate + 2 * l2) where |L| > l1, else 0.

    Args:
        learning_rate: a float, or a Variable of shape [1].
        l1, l2: strengths of the regularisation.
        lr_power: p.
        parameter_list: the parameters to update; all trainable ones if None.
        regularization: weight decay for parameters without their own regularizer.
        grad_clip: gradient clipping.
        name: included in the names of the accumulators.
    """

    _squared_acc_str = "squared"
    _linear_acc_str = "linear"

    def __init__(
        self,
        learning_rate: float | Variable,
        l1: float = 0.0,
        l2: float = 0.0,
        lr_power: float = -0.5,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        check_given(self, TypeError, learning_rate=learning_rate)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self.type = "ftrl"
        self._l1 = l1
        self._l2 = l2
        self._lr_power = lr_power

    def _create_accumulators(self, block: Block, parameters: list[Variable]) -> None:
        for param in parameters:
            self._add_accumulator(self._squared_acc_str, param)
            self._add_accumulator(self._linear_acc_str, param)

    def _append_optimize_op(self, block: Block, param_and_grad: Pair) -> Operator:
        attrs = {"l1": self._l1, "l2": self._l2, "lr_power": self._lr_power}
        states = {"SquaredAccumulator": self._squared_acc_str, "LinearAccumulator": self._linear_acc_str}
        outs = {"SquaredAccumulator": "SquaredAccumOut", "LinearAccumulator": "LinearAccumOut"}
        return self._append_update(block, param_and_grad, attrs, states, outs=outs)


Adagrad = AdagradOptimizer
DecayedAdagrad = DecayedAdagradOptimizer
Adadelta = AdadeltaOptimizer
RMSProp = RMSPropOptimizer
Ftrl = FtrlOptimizer
