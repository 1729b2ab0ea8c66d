"""LookaheadOptimizer: slow weights that follow the fast ones every k steps."""

from __future__ import annotations

from typing import Any

from fluidjax import layers
from fluidjax.base.errors import ArgumentError
from fluidjax.framework import (
    Block,
    Operator,
    Program,
    Variable,
    default_startup_program,
    program_guard,
)
from fluidjax.optimizer.base import Optimizer, Pair
from fluidjax.optimizer.eager import refuse


class LookaheadOptimizer:
    """Every k steps: slow = alpha * fast + (1 - alpha) * slow, from which the fast weights continue.

    The slow weights of parameter ``w`` are stored in the persistable variable ``w@SLOW``.

    Args:
        inner_optimizer: the optimizer that updates the fast weights.
        alpha: step size of the slow weights, in [0, 1].
        k: number of fast steps per slow step, a positive int.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(self, inner_optimizer: Optimizer, alpha: float = 0.5, k: int = 5) -> None:
        refuse("LookaheadOptimizer")
        if inner_optimizer is None:
            raise ArgumentError(
                "LookaheadOptimizer: inner_optimizer is None; expected an optimizer. Pass for example SGD(0.1)"
            )
        if not 0.0 <= alpha <= 1.0:
            raise ArgumentError(
                f"LookaheadOptimizer: alpha is {alpha}; expected a number in [0, 1]. Choose for example 0.5"
            )
        if not (isinstance(k, int) and k > 0):
            raise ArgumentError(f"LookaheadOptimizer: k is {k!r}; expected a positive int. Choose for example 5")
        self.inner_optimizer = inner_optimizer
        self.alpha = alpha
        self.k = k
        self.type = "lookahead"

    def minimize(self, loss: Variable, startup_program: Program | None = None) -> tuple[list[Operator], list[Pair]]:
        """Append the inner optimizer's step and the update of the slow weights.

        Returns:
            The result of the inner optimizer's ``minimize``.
        """
        result = self.inner_optimizer.minimize(loss, startup_program=startup_program)
        startup = default_startup_program() if startup_program is None else startup_program
        block = loss.block
        names = [param.name for param in block.all_parameters()]
        slow = {name: _slow_weight(block, startup.global_block(), name) for name in names}
        with program_guard(block.program, startup):
            self._append_step(block, slow)
        return result

    def _append_step(self, block: Block, slow: dict[str, Variable]) -> None:
        def constant(name: str, value: float, dtype: str) -> Variable:
            return layers.create_global_var(name=name, shape=[1], value=value, dtype=dtype, persistable=True)

        k = constant("lookahead_k", int(self.k), "int32")
        alpha = constant("lookahead_alpha", float(self.alpha), "float32")
        step = constant("lookahead_step", 0, "int32")
        layers.increment(x=step, value=1.0, in_place=True)
        zero = layers.fill_constant(shape=[1], dtype="float32", value=0.0)
        one = layers.fill_constant(shape=[1], dtype="float32", value=1.0)
        is_turn: Any = layers.elementwise_mod(step, k) == zero
        with layers.Switch() as switch:
            with switch.case(is_turn):
                for name, slow_var in slow.items():
                    fast_var = block.var(name)
                    near = layers.elementwise_mul(fast_var, alpha)
                    far = layers.elementwise_mul(slow_var, layers.elementwise_sub(one, alpha))
                    mixed = layers.elementwise_add(near, far)
                    layers.assign(input=mixed, output=slow_var)
                    layers.assign(input=mixed, output=fast_var)
            with switch.default():
                pass


def _slow_weight(block: Block, startup: Block, name: str) -> Variable:
    """``<name>@SLOW``, initialised as a copy of the parameter."""
    fast = startup.var(name)
    settings = {"name": f"{name}@SLOW", "shape": fast.shape, "dtype": fast.dtype, "persistable": True}
    startup.append_op(type="assign", inputs={"X": fast}, outputs={"Out": startup.create_var(**settings)})
    return block.create_var(**settings)
