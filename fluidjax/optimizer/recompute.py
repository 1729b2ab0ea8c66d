"""RecomputeOptimizer: trades computation for activation memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from fluidjax.backward import append_backward
from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Operator, Program, Variable, default_startup_program, program_guard
from fluidjax.optimizer.base import Optimizer, Pair
from fluidjax.optimizer.eager import refuse


class RecomputeOptimizer(Optimizer):
    """Wraps an optimizer; activations between checkpoints are not kept but recomputed in the backward pass.

    Call ``_set_checkpoints`` with Variables (or names) that cut the network into segments, then ``minimize``.

    Args:
        optimizer: the optimizer that updates the parameters.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        refuse("RecomputeOptimizer")
        self._optimizer = optimizer
        self._checkpoints: list[Variable | str] | None = None
        self._learning_rate = optimizer._learning_rate
        self._learning_rate_map = optimizer._learning_rate_map

    def _set_checkpoints(self, checkpoints: list[Variable | str]) -> None:
        """Set the Variables to keep; without any, nothing is recomputed.

        Raises TypeError unless given a list of Variables or names.
        """
        if not isinstance(checkpoints, (list, tuple)) or not all(isinstance(c, (Variable, str)) for c in checkpoints):
            raise TypeError(
                f"_set_checkpoints: got {checkpoints!r}; expected a list of Variables or names. Pass for example the "
                "outputs of every second layer"
            )
        self._checkpoints = list(checkpoints)

    def load(self, stat_dict: Mapping[str, Any]) -> NoReturn:
        """Always raises NotImplementedError: as in Fluid, state is loaded by ``fluid.load`` or ``fluid.io``."""
        error = NotImplementedError("load function is not supported by Recompute Optimizer for now")
        error.add_note(
            "RecomputeOptimizer has no state of its own to load; expected the state of a program. Use fluid.load or "
            "fluid.io.load_persistables on the program"
        )
        raise error

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
        callbacks: list[Callable[..., None]] | None = None,
    ) -> list[Pair]:
        """Append the backward pass, recomputing activations between checkpoints.

        Raises:
            ValueError: no checkpoints were set.
        """
        if self._checkpoints is None:
            raise ArgumentError(
                "RecomputeOptimizer has no checkpoints; expected the Variables to keep. Call _set_checkpoints first"
            )
        inner = self._optimizer
        inner._dtype = loss.dtype
        parameters = list(parameter_list) if parameter_list else getattr(inner, "_parameter_list", None)
        with program_guard(loss.block.program, startup_program or default_startup_program()):
            no_grad = inner._get_no_grad_set(loss, no_grad_set)
            return append_backward(loss, parameters, no_grad, callbacks, checkpoints=self._checkpoints)

    def apply_gradients(self, params_grads: list[Pair]) -> list[Operator]:
        """See the wrapped optimizer."""
        return self._optimizer.apply_gradients(params_grads)

    def apply_optimize(
        self, loss: Variable, startup_program: Program | None, params_grads: list[Pair]
    ) -> list[Operator]:
        """See the wrapped optimizer."""
        return self._optimizer.apply_optimize(loss, startup_program=startup_program, params_grads=params_grads)

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
    ) -> tuple[list[Operator], list[Pair]]:
        """Append the ops of one training step. Arguments and results as for ``Optimizer.minimize``."""
        params_grads = self.backward(
            loss, startup_program=startup_program, parameter_list=parameter_list, no_grad_set=no_grad_set
        )
        return self.apply_optimize(loss, startup_program, params_grads), params_grads

    def __getattr__(self, name: str) -> Any:
        """Delegate all other attributes to the wrapped optimizer."""
        if name == "_optimizer":
            raise AttributeError(name)
        return getattr(self._optimizer, name)
