"""The base classes of the kinds of fleet."""

from __future__ import annotations

import abc
from typing import Any

from fluidjax.base.places import CPUPlace
from fluidjax.contrib.mixed_precision.decorator import OptimizerWithMixedPrecision
from fluidjax.executor import Executor
from fluidjax.incubate.fleet.base.mode import Mode
from fluidjax.incubate.fleet.base.role_maker import MPISymetricRoleMaker as MPISymetricRoleMaker
from fluidjax.incubate.fleet.base.role_maker import RoleMakerBase
from fluidjax.incubate.fleet.base.role_maker import UserDefinedRoleMaker as UserDefinedRoleMaker
from fluidjax.optimizer.base import Optimizer

__all__ = ["DistributedOptimizer", "Fleet", "Mode"]


class Fleet(abc.ABC):
    """All processes of a job, as seen by one of them; call ``init`` first.

    Args:
        mode: a ``Mode``.
    """

    def __init__(self, mode: int) -> None:
        self._is_initialized = False
        self._mode = mode
        self._optimizer: Any = None
        self._role_maker: Any = None
        self._executor: Any = None

    def init(self, role_maker: RoleMakerBase | None = None) -> None:
        """Take this process's role from a role maker. Raises TypeError unless given one."""
        if not isinstance(role_maker, RoleMakerBase):
            raise TypeError(
                f"role_maker must be an instance of RoleMakerBase: received a {type(role_maker).__name__}; pass a"
                " PaddleCloudRoleMaker() or UserDefinedRoleMaker(...)"
            )
        self._executor = Executor(CPUPlace())
        self._role_maker = role_maker
        self._role_maker.generate_role()
        self._is_initialized = True

    def is_first_worker(self) -> bool:
        """Whether this process is worker 0."""
        return self._role_maker.is_first_worker()

    def worker_index(self) -> int:
        """The index of this worker."""
        return self._role_maker.worker_index()

    def worker_num(self) -> int:
        """The number of workers."""
        return self._role_maker.worker_num()

    def is_worker(self) -> bool:
        """Whether this process is a worker."""
        return self._role_maker.is_worker()

    def worker_endpoints(self, to_string: bool = False) -> Any:
        """The endpoints of all workers, as a list or a comma-separated string."""
        endpoints = self._role_maker.get_trainer_endpoints()
        return ",".join(endpoints) if to_string else endpoints

    def server_num(self) -> int:
        """The number of servers."""
        return len(self._role_maker.get_pserver_endpoints())

    def server_index(self) -> int:
        """The index of this server."""
        return self._role_maker.server_index()

    def server_endpoints(self, to_string: bool = False) -> Any:
        """The endpoints of all servers, as a list or a comma-separated string."""
        endpoints = self._role_maker.get_pserver_endpoints()
        return ",".join(endpoints) if to_string else endpoints

    def is_server(self) -> bool:
        """Whether this process is a server."""
        return self._role_maker.is_server()

    def split_files(self, files: list[str]) -> list[str]:
        """This worker's share of a list: five files for two workers are split into three and two."""
        if not isinstance(files, list):
            raise TypeError("files should be a list of file need to be read.")
        size, more = divmod(len(files), self.worker_num())
        index = self.worker_index()
        begin = index * size + min(index, more)
        return files[begin : begin + size + (index < more)]

    def barrier_worker(self) -> None:
        """Wait for all workers."""
        self._role_maker.barrier_worker()

    def all_reduce_worker(self, input: Any, output: Any) -> None:
        """Sum an array over all workers into ``output``."""
        self._role_maker.all_reduce_worker(input, output)

    @abc.abstractmethod
    def init_worker(self) -> None:
        """Prepare a worker for training."""

    @abc.abstractmethod
    def init_server(self, model_dir: str | None = None) -> None:
        """Prepare a server."""

    @abc.abstractmethod
    def run_server(self) -> None:
        """Serve."""

    @abc.abstractmethod
    def stop_worker(self) -> None:
        """Finish a worker after training."""

    @abc.abstractmethod
    def distributed_optimizer(self, optimizer: Any, strategy: Any = None) -> Any:
        """An optimizer whose ``minimize`` also creates the programs of this process."""

    @abc.abstractmethod
    def save_inference_model(
        self,
        executor: Any,
        dirname: str,
        feeded_var_names: Any,
        target_vars: Any,
        main_program: Any = None,
        export_for_deployment: bool = True,
    ) -> None:
        """Save a model for inference."""

    @abc.abstractmethod
    def save_persistables(self, executor: Any, dirname: str, main_program: Any = None) -> None:
        """Save all persistable variables."""


class DistributedOptimizer(abc.ABC):
    """Base class of fleet optimizers.

    Args:
        optimizer: the optimizer to wrap; raises TypeError for anything else.
        strategy: the strategy of the fleet.
    """

    def __init__(self, optimizer: Any, strategy: Any = None) -> None:
        if not isinstance(optimizer, (Optimizer, OptimizerWithMixedPrecision)):
            raise TypeError("optimizer must be an instance of Optimizer")
        self._optimizer = optimizer
        self._strategy = strategy

    @abc.abstractmethod
    def backward(
        self,
        loss: Any,
        startup_program: Any = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
        callbacks: Any = None,
    ) -> Any:
        """The first half of ``minimize``: gradients."""

    @abc.abstractmethod
    def apply_gradients(self, params_grads: Any) -> Any:
        """The second half of ``minimize``: updates."""

    @abc.abstractmethod
    def minimize(
        self,
        losses: Any,
        scopes: Any = None,
        startup_programs: Any = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
    ) -> Any:
        """Write the ops that minimize a loss, and create the programs of this process."""
