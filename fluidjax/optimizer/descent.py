"""Gradient descent, with and without momentum: SGD, Momentum, LarsMomentum, Dpsgd, DGCMomentum."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from fluidjax.clip import GradientClipBase
from fluidjax.framework import Block, Operator, Variable
from fluidjax.optimizer.base import Optimizer, Pair, check_given
from fluidjax.optimizer.eager import refuse
from fluidjax.regularizer import WeightDecayRegularizer


class SGDOptimizer(Optimizer):
    """Stochastic gradient descent: param -= learning_rate * grad. A sparse gradient updates only its own rows.

    Args:
        learning_rate: a float, or a Variable of shape [1].
        parameter_list: the parameters to update; all trainable ones if None.
        regularization: weight decay for parameters without their own regularizer.
        grad_clip: gradient clipping.
        name: included in the names of the accumulators.

    Examples:
        >>> w = fluid.layers.create_parameter([2], "float32", "w", default_initializer=fluid.initializer.Constant(1.0))
        >>> ops, grads = fluid.optimizer.SGD(learning_rate=0.1).minimize(fluid.layers.reduce_sum(w * w))
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> startup, step = exe.run(fluid.default_startup_program()), exe.run(fluid.default_main_program())
        >>> print(np.array(fluid.global_scope().find_var("w").get_tensor()).round(3))
        [0.8 0.8]
    """

    def __init__(
        self,
        learning_rate: float | Variable,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        check_given(self, learning_rate=learning_rate)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self.type = "sgd"

    def _append_optimize_op(self, block: Block, param_and_grad: Pair) -> Operator:
        return self._append_update(block, param_and_grad)


class _WithVelocity(Optimizer):
    """An optimizer with one velocity per parameter."""

    _velocity_acc_str = "velocity"

    def _create_accumulators(self, block: Block, parameters: list[Variable]) -> None:
        for param in parameters:
            self._add_accumulator(self._velocity_acc_str, param)

    def _append_momentum(self, block: Block, param_and_grad: Pair, attrs: dict[str, Any]) -> Operator:
        return self._append_update(block, param_and_grad, attrs, {"Velocity": self._velocity_acc_str})


class MomentumOptimizer(_WithVelocity):
    """velocity = momentum * velocity + grad; param -= learning_rate * velocity.

    With ``use_nesterov``: param -= learning_rate * (grad + momentum * velocity).

    Args:
        learning_rate: a float, or a Variable of shape [1].
        momentum: momentum factor.
        parameter_list: the parameters to update; all trainable ones if None.
        use_nesterov: whether to use Nesterov momentum.
        regularization: weight decay for parameters without their own regularizer.
        grad_clip: gradient clipping.
        name: included in the names of the accumulators.

    Examples:
        >>> loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), 1))
        >>> ops, grads = fluid.optimizer.Momentum(learning_rate=0.1, momentum=0.9).minimize(loss)
        >>> [op.type for op in ops]
        ['momentum', 'momentum']
    """

    def __init__(
        self,
        learning_rate: float | Variable,
        momentum: float,
        parameter_list: Iterable[Variable | str] | None = None,
        use_nesterov: bool = False,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        check_given(self, learning_rate=learning_rate, momentum=momentum)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self.type = "momentum"
        self._momentum = momentum
        self._use_nesterov = bool(use_nesterov)

    def _append_optimize_op(self, block: Block, param_and_grad: Pair) -> Operator:
        attrs = {"mu": self._momentum, "use_nesterov": self._use_nesterov}
        return self._append_momentum(block, param_and_grad, attrs)


class LarsMomentumOptimizer(_WithVelocity):
    """Layer-wise adaptive rate scaling (LARS): momentum with a separate learning rate for each layer.

    local_lr = learning_rate * lars_coeff * |param| / (|grad| + lars_weight_decay * |param|);
    velocity = momentum * velocity + local_lr * (grad + lars_weight_decay * param); param -= velocity.

    Args:
        learning_rate: a float, or a Variable of shape [1].
        momentum: momentum factor.
        lars_coeff: trust coefficient.
        lars_weight_decay: weight decay applied within the update.
        parameter_list: the parameters to update; all trainable ones if None.
        regularization: weight decay for parameters without their own regularizer.
        grad_clip: gradient clipping.
        name: included in the names of the accumulators.
    """

    def __init__(
        self,
        learning_rate: float | Variable,
        momentum: float,
        lars_coeff: float = 0.001,
        lars_weight_decay: float = 0.0005,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        check_given(self, learning_rate=learning_rate, momentum=momentum)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self.type = "lars_momentum"
        self._momentum = momentum
        self._lars_coeff = float(lars_coeff)
        self._lars_weight_decay = float(lars_weight_decay)

    def _append_optimize_op(self, block: Block, param_and_grad: Pair) -> Operator:
        attrs = {
            "mu": self._momentum,
            "lars_coeff": self._lars_coeff,
            "lars_weight_decay": self._lars_weight_decay,
        }
        return self._append_momentum(block, param_and_grad, attrs)


class DpsgdOptimizer(Optimizer):
    """Differentially private SGD: param -= learning_rate * (grad / max(1, |grad| / clip) + noise / batch_size).

    ``noise`` is a single draw from N(0, sigma^2), shared by all elements of a parameter.

    Args:
        learning_rate: a float, or a Variable of shape [1].
        clip: maximum norm of a gradient.
        batch_size: divisor of the noise.
        sigma: standard deviation of the noise.
        parameter_list: the parameters to update; all trainable ones if None.
    """

    def __init__(
        self,
        learning_rate: float | Variable = 0.001,
        clip: float = 0.9,
        batch_size: float = 0.999,
        sigma: float = 1e-08,
        parameter_list: Iterable[Variable | str] | None = None,
    ) -> None:
        check_given(self, learning_rate=learning_rate, clip=clip, batch_size=batch_size, sigma=sigma)
        super().__init__(learning_rate, parameter_list)
        self.type = "dpsgd"
        self._clip = clip
        self._batch_size = batch_size
        self._sigma = sigma
        # The seed of the noise; 0 for another one each run.
        self._seed: int | None = None

    def _append_optimize_op(self, block: Block, param_and_grad: Pair) -> Operator:
        attrs = {
            "clip": self._clip,
            "batch_size": self._batch_size,
            "sigma": self._sigma,
            "seed": self._seed or 0,
        }
        return self._append_update(block, param_and_grad, attrs)


class DGCMomentumOptimizer(Optimizer):
    """Momentum with deep gradient compression, which requires NCCL and CUDA in Fluid; not available here.

    XLA reduces gradients over fast links without compression; ``MomentumOptimizer`` under
    ``CompiledProgram.with_data_parallel`` trains the same model. Creating an instance raises AssertionError, as in
    Fluid's CPU build.
    """

    def __init__(
        self,
        learning_rate: float | Variable,
        momentum: float,
        rampup_begin_step: int,
        rampup_step: int = 1,
        sparsity: Sequence[float] = [0.999],  # noqa: B006  (the signature is Fluid's; it is never written to)
        parameter_list: Iterable[Variable | str] | None = None,
        use_nesterov: bool = False,
        num_trainers: int | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        refuse("DGCMomentumOptimizer")
        self._unavailable()

    def apply_gradients(self, params_grads: list[Pair]) -> NoReturn:
        """Always raises AssertionError."""
        self._unavailable()

    def _unavailable(self) -> NoReturn:
        raise AssertionError(
            "DGCMomentumOptimizer needs Fluid's CUDA build: its gradient compression is a CUDA library; this is XLA, "
            "which has none. Use MomentumOptimizer with the same arguments; its updates are what DGC approximates"
        )


SGD = SGDOptimizer
Momentum = MomentumOptimizer
LarsMomentum = LarsMomentumOptimizer
Dpsgd = DpsgdOptimizer
