"""Data-parallel training: the processes involved, and a layer that averages gradients over them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fluidjax.base.enums import VarType
from fluidjax.base.unknown import unknown_name
from fluidjax.dygraph.layers import Layer
from fluidjax.execution.devices.processes import join
from fluidjax.framework import Variable
from fluidjax.layers import concat, reshape

__all__ = ["prepare_context", "ParallelEnv", "DataParallel"]


class ParallelStrategy:
    """The processes of a data-parallel job.

    Attributes:
        nranks: number of processes.
        local_rank: rank of this process.
        trainer_endpoints: their addresses.
        current_endpoint: address of this process.
    """

    def __init__(self) -> None:
        self.nranks = 1
        self.local_rank = 0
        self.trainer_endpoints: list[str] = []
        self.current_endpoint = ""


class ParallelEnv:
    """The processes of a data-parallel job, as described by the launcher in environment variables.

    Examples:
        >>> env = fluid.dygraph.ParallelEnv()
        >>> env.nranks, env.local_rank
        (1, 0)
    """

    def __init__(self) -> None:
        self._nranks = int(os.getenv("PADDLE_TRAINERS_NUM", "1"))
        self._local_rank = int(os.getenv("PADDLE_TRAINER_ID", "0"))
        self._dev_id = int(os.getenv("FLAGS_selected_gpus", "0"))
        self._trainer_endpoints = os.getenv("PADDLE_TRAINER_ENDPOINTS", "").split(",")
        self._current_endpoint = os.getenv("PADDLE_CURRENT_ENDPOINT", "")

    @property
    def nranks(self) -> int:
        """The number of processes."""
        return self._nranks

    @property
    def local_rank(self) -> int:
        """The rank of this process."""
        return self._local_rank

    @property
    def dev_id(self) -> int:
        """The index of this process's device."""
        return self._dev_id

    @property
    def current_endpoint(self) -> str:
        """The address of this process."""
        return self._current_endpoint

    @property
    def trainer_endpoints(self) -> list[str]:
        """The addresses of all processes."""
        return self._trainer_endpoints


Env = ParallelEnv


def prepare_context(strategy: ParallelStrategy | None = None) -> ParallelStrategy | None:
    """Connect the processes of a data-parallel job; returns None if there is only one.

    Args:
        strategy: the processes; by default those described by the launcher in the environment.

    Raises RuntimeError if this process has already computed something, ValueError if an endpoint is missing.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     print(fluid.dygraph.prepare_context())  # one process
        None
    """
    if strategy is None:
        env = ParallelEnv()
        strategy = ParallelStrategy()
        strategy.nranks, strategy.local_rank = env.nranks, env.local_rank
        strategy.trainer_endpoints, strategy.current_endpoint = env.trainer_endpoints, env.current_endpoint
    if strategy.nranks < 2:
        return None
    if len(strategy.trainer_endpoints) != strategy.nranks:
        raise ValueError(
            f"prepare_context: {strategy.nranks} processes have {len(strategy.trainer_endpoints)} endpoints"
            f" ({strategy.trainer_endpoints}). Expected one of each. Start the script with fluidjax launch, which sets"
            " PADDLE_TRAINER_ENDPOINTS."
        )
    join(strategy.trainer_endpoints, strategy.local_rank)
    return strategy


class DataParallel(Layer):
    """A layer whose gradients are averaged over the processes of a data-parallel job.

    Args:
        layers: the layer.
        strategy: the result of ``prepare_context``, or a ParallelStrategy.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     strategy = fluid.dygraph.prepare_context() or fluid.dygraph.parallel.ParallelStrategy()
        ...     net = fluid.dygraph.DataParallel(fluid.dygraph.Linear(2, 1), strategy)
        ...     loss = net.scale_loss(fluid.layers.mean(net(fluid.layers.ones([3, 2], "float32"))))
        ...     loss.backward()
        ...     net.apply_collective_grads()
        ...     print(net.parameters()[0].gradient().ravel())
        [1. 1.]
    """

    def __init__(self, layers: Layer, strategy: ParallelStrategy | None) -> None:
        super().__init__(layers.full_name() + "_data_parallel")
        self._layers = layers
        self._strategy = strategy

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call the wrapped layer."""
        return self._layers(*inputs, **kwargs)

    def _ranks(self) -> int:
        if self._strategy is None:
            raise AttributeError(
                "DataParallel: its strategy is None, as prepare_context() gives it for one process, and has no "
                "nranks. Pass fluid.dygraph.parallel.ParallelStrategy(), or use the layer without DataParallel."
            )
        return self._strategy.nranks

    def scale_loss(self, loss: Variable) -> Variable:
        """Divide the loss by the number of processes."""
        ranks = self._ranks()
        return loss / ranks if ranks > 1 else loss

    def apply_collective_grads(self) -> None:
        """Sum each parameter's gradient over all processes; a no-op for a single process.

        Raises:
            TypeError: a gradient is sparse.
            RuntimeError: the processes are not connected.
        """
        if self._ranks() < 2:
            return
        joined = join(self._strategy.trainer_endpoints, self._strategy.local_rank)  # type: ignore[union-attr]
        grads = [grad for p in self.parameters() if p.trainable and (grad := p._grad_ivar()) is not None]
        for grad in grads:
            if grad.type == VarType.SELECTED_ROWS:
                raise TypeError(
                    f"DataParallel: the gradient {grad.name} is sparse. Expected dense ones, which are summed over"
                    " processes. Make its embedding with is_sparse=False."
                )
        for grad, total in zip(grads, joined.sums([g.numpy() for g in grads]), strict=True):  # type: ignore[union-attr]
            grad.set_value(np.asarray(total))

    # What Fluid's own steps are made of, under the names that scripts know.

    def _coalesce_tensors(self, var_groups: Mapping[Any, list[Any]]) -> list[tuple[Any, list[Any], Any]]:
        """For each group: its variables as one of rank 1, the variables, and their shapes."""
        return [
            (concat([reshape(var, [-1]) for var in group]), group, [list(var.shape) for var in group])
            for group in var_groups.values()
        ]

    def _split_tensors(self, coalesced_grads_and_grad_vars: Iterable[tuple[Any, list[Any], Any]]) -> None:
        """Give the variables of each group their parts of the coalesced one, in their shapes."""
        for coalesced, group, shapes in coalesced_grads_and_grad_vars:
            ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
            for var, part, shape in zip(group, np.split(coalesced.numpy(), ends[:-1]), shapes, strict=True):
                var.set_value(part.reshape(shape))

    def _reshape_inplace(self, x: Any, shape: list[int]) -> None:
        """Give a variable another shape of as many elements."""
        other: Any = reshape(x, shape)
        x._value = other._value

    def state_dict(
        self, destination: Any = None, include_sublayers: bool = True, structured_name_prefix: str = ""
    ) -> dict[str, Any]:
        """The state of the wrapped layer, under its own names."""
        return self._layers.state_dict(destination, include_sublayers, structured_name_prefix)

    def set_dict(
        self, stat_dict: dict[str, Any], include_sublayers: bool = True, use_structured_name: bool = True
    ) -> None:
        """Set the parameters of the wrapped layer."""
        self._layers.set_dict(stat_dict, include_sublayers, use_structured_name)

    def load_dict(
        self, stat_dict: dict[str, Any], include_sublayers: bool = True, use_structured_name: bool = True
    ) -> None:
        """The same as ``set_dict``."""
        self.set_dict(stat_dict, include_sublayers, use_structured_name)


__getattr__ = unknown_name(__name__)
