# ruff: noqa: F401  (names are gathered here)
"""Parameter servers that run programs, written by the transpiler.

fleet.init(role_maker.PaddleCloudRoleMaker())
fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), StrategyFactory.create_sync_strategy()).minimize(loss)
if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
else:
    fleet.init_worker()
    exe.run(fleet.startup_program)
    exe.run(fleet.main_program, feed=batch)
    fleet.stop_worker()
"""

from __future__ import annotations

import os
import warnings
from typing import Any

from fluidjax import io
from fluidjax.base.errors import explain
from fluidjax.communicator import Communicator
from fluidjax.compiler import CompiledProgram
from fluidjax.executor import Executor
from fluidjax.framework import Program, default_main_program, default_startup_program
from fluidjax.incubate.fleet.base.fleet_base import DistributedOptimizer, Fleet
from fluidjax.incubate.fleet.base.mode import Mode
from fluidjax.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy import (
    AsyncStrategy,
    DistributedStrategy,
    GeoStrategy,
    HalfAsyncStrategy,
    StrategyFactory,
    SyncStrategy,
    TrainerRuntimeConfig,
)
from fluidjax.optimizer.base import Optimizer
from fluidjax.transpiler.config import DistributedMode, DistributeTranspilerConfig
from fluidjax.transpiler.distribute_transpiler import DistributeTranspiler
from fluidjax.transpiler.geo_sgd_transpiler import GeoSgdTranspiler


class DistributedTranspiler(Fleet):
    """Workers and parameter servers.

    Attributes:
        main_program, startup_program: those of this process, after ``minimize``.
    """

    def __init__(self) -> None:
        super().__init__(Mode.TRANSPILER)
        self.main_program: Program | None = None
        self.startup_program: Program | None = None
        self._origin_program: Program | None = None
        self._transpile_config: Any = None
        self._transpiler: Any = None
        self._communicator: Any = None
        self._opt_info: dict[str, Any] = {}
        self.vars_info: dict[str, Any] = {}

    def init_worker(self) -> None:
        """Start the communicator; call it before the startup program runs."""
        config = self._transpile_config
        runtime = config.get_trainer_runtime_config()
        kwargs: dict[str, Any] | None = None
        if isinstance(config, GeoStrategy):
            steps = config.get_program_config().geo_sgd_need_push_nums
            kwargs = {"push_vars": self.vars_info, "trainers": self.worker_num(), "push_nums": steps}
        elif isinstance(config, SyncStrategy):
            kwargs = {"pserver_endpoints": self.server_endpoints(), "trainer_id": self.worker_index()}
        if self._communicator is not None and self._communicator.is_running():
            warnings.warn("communicator has been initialized, skip", stacklevel=2)
            return
        program = _made(self.main_program, "main_program")
        self._communicator = Communicator(program, runtime.mode, kwargs, runtime.get_communicator_flags())
        self._communicator.start()

    def init_server(self, model_dir: str | None = None) -> None:
        """Run the startup program, and load a directory written by ``save_persistables``."""
        self._executor.run(_made(self.startup_program, "startup_program"))
        if model_dir:
            if not os.path.isdir(model_dir):
                raise ValueError(f"There is no directory named {model_dir!r}: pass what save_persistables wrote")
            io.load_persistables(self._executor, model_dir, self.main_program)

    def run_server(self) -> None:
        """Serve until all workers have stopped."""
        self._executor.run(_made(self.main_program, "main_program"))

    def stop_worker(self) -> None:
        """Stop the communicator, and tell the servers that this worker is done."""
        self._communicator.stop()
        self._executor.close()

    def distributed_optimizer(self, optimizer: Any, strategy: Any = None) -> TranspilerOptimizer:
        """An optimizer whose ``minimize`` also creates the programs of this process.

        Args:
            optimizer: a fluid.optimizer.Optimizer.
            strategy: a DistributedStrategy or DistributeTranspilerConfig; the sync strategy if None.
        """
        if not isinstance(optimizer, Optimizer):
            raise ValueError("optimizer must be an instance of Optimizer")
        if not self._is_initialized:
            raise ValueError(
                "use fleet.init(role) to initialize the role of current node before optimizer.minimize(loss)"
            )
        self._optimizer = TranspilerOptimizer(optimizer, strategy)
        return self._optimizer

    def save_inference_model(
        self,
        executor: Any,
        dirname: str,
        feeded_var_names: Any,
        target_vars: Any,
        main_program: Any = None,
        export_for_deployment: bool = True,
    ) -> None:
        """Save the part of a program that computes some variables; for the job's network, with the state of servers.

        Arguments as for ``fluid.io.save_inference_model``.
        """
        _check_executor("save_inference_model", executor)
        _check_program("save_inference_model", main_program)
        if main_program is not None:
            io.save_inference_model(
                dirname, feeded_var_names, target_vars, executor, main_program, None, None, export_for_deployment
            )
            return
        io.save_inference_model(
            dirname, feeded_var_names, target_vars, executor, self._origin_program, None, None, export_for_deployment,
            True,
        )  # fmt: skip
        with open(os.path.join(dirname, "__model__"), "rb") as file:
            program = Program.parse_from_string(file.read())
        program._copy_dist_param_info_from(_made(self.main_program, "main_program"))
        self.save_persistables(executor, dirname, program)

    def save_persistables(self, executor: Any, dirname: str, main_program: Any = None) -> None:
        """Save all persistable variables, one file each; worker 0 saves the state of servers."""
        _check_executor("save_persistables", executor)
        _check_program("save_persistables", main_program)
        program = main_program or _made(self.main_program, "main_program")
        if not program._is_distributed:
            raise ValueError("main_program is for local, may not use fleet.save_persistables")
        io.save_persistables(executor, dirname, program)

    def _transpile(self, config: Any) -> None:
        self._transpile_config = _strategy_of(config)
        program_config = self._transpile_config.get_program_config()
        self._origin_program = default_main_program().clone(for_test=False)
        kind = GeoSgdTranspiler if program_config.geo_sgd_mode else DistributeTranspiler
        self._transpiler = kind(program_config)
        self._transpiler._set_server_config(self._transpile_config.get_server_runtime_config())
        own = {} if self.is_worker() else {"current_endpoint": self.server_endpoints()[self.server_index()]}
        self._transpiler.transpile(
            trainer_id=self.worker_index(),
            pservers=self.server_endpoints(to_string=True),
            trainers=self.worker_num(),
            sync_mode=program_config.sync_mode,
            **own,
        )
        if not self.is_worker():
            self.main_program, self.startup_program = self._transpiler.get_pserver_programs(own["current_endpoint"])
            return
        self.main_program = self._transpiler.get_trainer_program(wait_port=program_config.wait_port)
        self.startup_program = default_startup_program()
        if program_config.geo_sgd_mode:
            self.vars_info = self._transpiler._get_vars_info()
            self.startup_program = self._transpiler.trainer_startup_program

    def _set_opt_info(self, opt_info: dict[str, Any]) -> None:
        self._opt_info = opt_info


def _made(program: Program | None, name: str) -> Program:
    if program is None:
        raise ValueError(f"{name} is None, need invoke DistributedOptimizer.minimize first")
    return program


def _check_executor(what: str, executor: Any) -> None:
    if not isinstance(executor, Executor):
        raise TypeError(f"in fleet.{what}() function, executor must be as Executor type")


def _check_program(what: str, program: Any) -> None:
    if isinstance(program, CompiledProgram):
        raise TypeError(
            f"in fleet.{what}() function, main_program must be as Program type, CompiledProgram is not allowed"
        )


def _strategy_of(config: Any) -> DistributedStrategy:
    """The strategy corresponding to a transpiler config; strategies are returned unchanged."""
    if isinstance(config, DistributedStrategy):
        return config
    if not isinstance(config, DistributeTranspilerConfig):
        raise TypeError(
            explain(
                "fleet does not know this strategy",
                "a DistributeTranspilerConfig, SyncStrategy, HalfAsyncStrategy, AsyncStrategy or GeoStrategy",
                f"a {type(config).__name__}",
                "make one by StrategyFactory",
            )
        )
    strategy: DistributedStrategy
    if config.sync_mode:
        strategy = SyncStrategy()
    elif config.runtime_split_send_recv and config.geo_sgd_mode:
        strategy = GeoStrategy(config.geo_sgd_need_push_nums)
    elif config.runtime_split_send_recv and not config.half_async:
        strategy = AsyncStrategy()
    else:
        strategy = HalfAsyncStrategy()
    strategy.set_program_config(config)
    return strategy


fleet = DistributedTranspiler()


class TranspilerOptimizer(DistributedOptimizer):
    """An optimizer whose ``minimize`` also creates the programs of this process."""

    def __init__(self, optimizer: Any, strategy: Any = None) -> None:
        super().__init__(optimizer, strategy)
        self._strategy = strategy or StrategyFactory.create_sync_strategy()
        if not isinstance(self._strategy, DistributedStrategy | DistributeTranspilerConfig):
            raise TypeError(
                f"In {fleet._mode} mode, strategy must be an instance of DistributeTranspilerConfig, SyncStrategy,"
                " HalfAsyncStrategy, AsyncStrategy, or GeoStrategy"
            )
        self.opt_info: dict[str, Any] = {}
        if isinstance(self._strategy, DistributedStrategy):
            self.opt_info = self._strategy.get_debug_opt()
            self.opt_info |= {"mpi_rank": fleet.worker_index(), "mpi_size": fleet.worker_num()}
            self.opt_info |= {"trainer": "MultiTrainer", "device_worker": "Hogwild"}
            fleet._set_opt_info(self.opt_info)

    def backward(
        self,
        loss: Any,
        startup_program: Any = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
        callbacks: Any = None,
    ) -> Any:
        """The first half of ``minimize``: [(parameter, gradient)]."""
        return self._optimizer.backward(loss, startup_program, parameter_list, no_grad_set, callbacks)

    def apply_gradients(self, params_grads: Any) -> Any:
        """The second half of ``minimize``: the update ops."""
        return self._optimizer.apply_gradients(params_grads)

    def minimize(
        self,
        loss: Any,
        scopes: Any = None,
        startup_program: Any = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
    ) -> Any:
        """Write the ops that minimize a loss, and create ``fleet.main_program`` and ``fleet.startup_program``.

        Args:
            loss: a single variable; raises TypeError for a list.
            scopes: accepted for compatibility with Fluid.
            startup_program: a single program; raises TypeError for a list.
            parameter_list, no_grad_set: as for the optimizer's own ``minimize``.

        Returns:
            The result of the optimizer's own ``minimize``.
        """
        if isinstance(loss, list):
            raise TypeError("DistributedTranspiler's minimize can not accept loss with list")
        if isinstance(startup_program, list):
            raise TypeError("DistributedTranspiler's minimize can not accept program with list")
        written = self._optimizer.minimize(loss, startup_program, parameter_list, no_grad_set)
        fleet._transpile(config=self._strategy)
        loss.block.program._fleet_opt = self.opt_info
        return written
