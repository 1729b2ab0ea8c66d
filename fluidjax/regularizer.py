"""Weight decay: ops that add the gradient of a penalty to that of a parameter."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from fluidjax.base.enums import VarType
from fluidjax.base.errors import ArgumentError
from fluidjax.base.mode import in_dygraph_mode
from fluidjax.base.unknown import unknown_name
from fluidjax.framework import Block, Variable, name_scope
from fluidjax.framework.names import NEW_GRAD_SUFFIX

__all__ = ["L1Decay", "L2Decay", "L1DecayRegularizer", "L2DecayRegularizer"]

_log = logging.getLogger(__name__)


class WeightDecayRegularizer:
    """Base class of regularizers."""

    def __call__(self, param: Variable, grad: Variable, block: Block) -> Any:
        """Write the gradient of the penalty on `param`."""
        raise TypeError(f"{type(self).__name__} adds no penalty. Use L1Decay or L2Decay.")

    def _check(self, block: Block) -> None:
        if not isinstance(block, Block):
            raise TypeError(f"{type(self).__name__}: the block is {block!r}. Expected a Block. Pass grad.block.")


def _penalty(param: Variable, block: Block) -> Variable:
    return block.create_var(dtype=param.dtype, shape=param.shape, lod_level=param.lod_level)


class L2DecayRegularizer(WeightDecayRegularizer):
    """The penalty c / 2 * sum(w^2): adds c * w to the gradient of w.

    Examples:
        >>> w = fluid.layers.create_parameter([2], "float32", "w", default_initializer=fluid.initializer.Constant(1.0))
        >>> sgd = fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L2Decay(0.5))
        >>> ops, grads = sgd.minimize(fluid.layers.reduce_sum(w))  # each gradient: 1 + 0.5 * w
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> startup, step = exe.run(fluid.default_startup_program()), exe.run(fluid.default_main_program())
        >>> print(np.array(fluid.global_scope().find_var("w").get_tensor()).round(3))
        [0.85 0.85]
    """

    def __init__(self, regularization_coeff: float = 0.0) -> None:
        if regularization_coeff is None:
            raise ArgumentError("L2Decay: the coefficient is None. Expected a number.")
        self._regularization_coeff = regularization_coeff

    def __call__(self, param: Variable, grad: Variable, block: Block) -> Variable:
        """Write c * param; returns it."""
        self._check(block)
        decay = _penalty(param, block)
        block.append_op(
            type="scale", inputs={"X": param}, outputs={"Out": decay}, attrs={"scale": self._regularization_coeff}
        )
        return decay

    def __str__(self) -> str:
        return f"L2Decay, regularization_coeff={self._regularization_coeff:f}"


class L1DecayRegularizer(WeightDecayRegularizer):
    """The penalty c * sum(|w|): adds c * sign(w) to the gradient of w."""

    def __init__(self, regularization_coeff: float = 0.0) -> None:
        if regularization_coeff is None:
            raise ArgumentError("L1Decay: the coefficient is None. Expected a number.")
        self._regularization_coeff = regularization_coeff

    def __call__(self, param: Variable, grad: Variable, block: Block) -> Variable:
        """Write c * sign(param); returns it."""
        self._check(block)
        decay = _penalty(param, block)
        block.append_op(type="sign", inputs={"X": param}, outputs={"Out": decay})
        block.append_op(
            type="scale", inputs={"X": decay}, outputs={"Out": decay}, attrs={"scale": self._regularization_coeff}
        )
        return decay

    def __str__(self) -> str:
        return f"L1Decay, regularization_coeff={self._regularization_coeff:f}"


def append_regularization_ops(
    parameters_and_grads: Sequence[tuple[Any, Any]], regularization: WeightDecayRegularizer | None = None
) -> list[tuple[Any, Any]]:
    """Add the gradients of the penalties; a parameter's own regularizer overrides `regularization`.

    Returns pairs of parameter and gradient; sparse gradients are replaced by dense ones.
    """
    own = [p for p, _ in parameters_and_grads if getattr(p, "regularizer", None) is not None]
    if own and regularization is not None:
        _log.info(
            "The parameters %s keep their own regularizers, so the optimizer's (%s) does not act on them.",
            ", ".join(p.name for p in own),
            regularization,
        )
    result: list[tuple[Any, Any]] = []
    with name_scope("regularization"):
        for param, grad in parameters_and_grads:
            if grad is None:
                result.append((param, grad))
                continue
            with param.block.program._optimized_guard([param, grad]):
                result.append((param, _regularized(param, grad, regularization)))
    return result


def _regularized(param: Any, grad: Variable, default: WeightDecayRegularizer | None) -> Variable:
    own = getattr(param, "regularizer", None)
    regularizer = default if own is None else own
    if regularizer is None:
        return grad
    penalty = regularizer(param, grad, grad.block)
    out = grad
    if grad.type == VarType.SELECTED_ROWS or in_dygraph_mode():  # in eager mode a gradient stays what backward gave
        out = grad.block.create_var(
            name=None if in_dygraph_mode() else grad.name + NEW_GRAD_SUFFIX,
            dtype=param.dtype,
            shape=param.shape,
            lod_level=param.lod_level,
            type=VarType.LOD_TENSOR,
        )
    grad.block.append_op(type="sum", inputs={"X": [grad, penalty]}, outputs={"Out": [out]})
    return out


L1Decay = L1DecayRegularizer
L2Decay = L2DecayRegularizer

__getattr__ = unknown_name(__name__)
