"""Fleet of workers that exchange gradients directly.

fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
fleet.distributed_optimizer(fluid.optimizer.SGD(0.1)).minimize(loss)
exe.run(fleet.startup_program)
exe.run(fleet.main_program, feed=batch, fetch_list=[loss])
"""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any, cast

from fluidjax import io
from fluidjax.base.unbuilt import unbuilt
from fluidjax.compiler import CompiledProgram
from fluidjax.contrib.mixed_precision import decorate
from fluidjax.executor import Executor
from fluidjax.framework import Program, default_startup_program
from fluidjax.incubate.fleet.base.fleet_base import DistributedOptimizer, Fleet
from fluidjax.incubate.fleet.base.mode import Mode
from fluidjax.incubate.fleet.collective import checkpoints
from fluidjax.incubate.fleet.collective.checkpoints import TrainStatus
from fluidjax.incubate.fleet.collective.settling import WRAPPING, check_wrapped, refused, settle_rings
from fluidjax.incubate.fleet.collective.strategy import DistributedStrategy, settle_mode
from fluidjax.optimizer import RecomputeOptimizer
from fluidjax.paddle.distributed.fs_wrapper import LocalFS
from fluidjax.transpiler.config import DistributeTranspilerConfig
from fluidjax.transpiler.distribute_transpiler import DistributeTranspiler

DistFCConfig = unbuilt(__name__, "DistFCConfig")


class LambConfig:
    """Settings of Lamb in a fleet; empty, as in Fluid."""


class Collective(Fleet):
    """Workers that train together.

    Attributes:
        main_program, startup_program: those of this worker, after ``minimize``.
    """

    def __init__(self) -> None:
        super().__init__(Mode.COLLECTIVE)
        self._local_ip = 0
        self.startup_program: Program | None = None
        self.main_program: Program | CompiledProgram | None = None
        self._origin_program: Program | None = None
        self._transpiled_program: Program | None = None

    def init_worker(self) -> None:
        """A no-op: workers connect when the startup program runs."""
        _needless("init_worker")

    def run_worker(self, main_programs: Any = None, scopes: Any = None) -> None:
        """A no-op: run ``main_program``."""
        _needless("run_worker")

    def init_server(self, model_dir: str | None = None) -> None:
        """A no-op: there are no servers."""
        _needless("init_server")

    def run_server(self) -> None:
        """A no-op: there are no servers."""
        _needless("run_server")

    def stop_worker(self) -> None:
        """A no-op."""
        _needless("stop_worker")

    def distributed_optimizer(self, optimizer: Any, strategy: Any = None) -> CollectiveOptimizer:
        """An optimizer whose ``minimize`` also creates this worker's programs; ``strategy``: a DistributedStrategy."""
        self._optimizer = CollectiveOptimizer(optimizer, DistributedStrategy() if strategy is None else strategy)
        return self._optimizer

    def save_inference_model(
        self,
        executor: Any,
        dirname: str,
        feeded_var_names: Any = None,
        target_vars: Any = None,
        main_program: Any = None,
        export_for_deployment: bool = True,
    ) -> None:
        """Save a model for inference; see ``fluid.io.save_inference_model``."""
        program = self._program(executor, main_program, "save_inference_model")
        io.save_inference_model(
            dirname, feeded_var_names, target_vars, executor, program, None, None, export_for_deployment
        )

    def save_persistables(
        self, executor: Any, dirname: str, main_program: Any = None, filename: str | None = None
    ) -> None:
        """Save all persistable variables; see ``fluid.io.save_persistables``."""
        io.save_persistables(executor, dirname, self._program(executor, main_program, "save_persistables"), filename)

    def _program(self, executor: Any, program: Any, caller: str) -> Program:
        program = self._origin_program if program is None else program
        assert isinstance(executor, Executor), f"In fleet.{caller}() function, executor must be as Executor type."
        assert isinstance(program, Program), (
            f"In fleet.{caller}() function, main_program must be as Program type: expected one, or a call of minimize"
            f" before; received a {type(program).__name__}"
        )
        return program

    def save_check_point(
        self,
        executor: Any,
        path: str,
        train_status: TrainStatus,
        main_program: Any = None,
        fs: Any = LocalFS(),  # noqa: B008
        local_cache_path: str = ".cache",
        remain_all_checkpoint: bool = True,
    ) -> None:
        """Save the next checkpoint to a directory.

        Args:
            executor, main_program: the program to save; by default the one passed to ``minimize``.
            path: the directory.
            train_status: the progress of the training.
            fs: its file system.
            local_cache_path: where files are written that are to be uploaded.
            remain_all_checkpoint: whether to keep older checkpoints.
        """
        program = self._program(executor, main_program, "save_check_point")
        checkpoints.save(executor, path, train_status, program, fs, local_cache_path)
        if not remain_all_checkpoint:
            self.clean_redundant_check_points(path, fs=fs)

    def load_check_point(
        self,
        executor: Any,
        path: str,
        trainer_id: int,
        main_program: Any = None,
        fs: Any = LocalFS(),  # noqa: B008
        local_cache_path: str = ".cache",
        ignore_empty: bool = True,
    ) -> TrainStatus | None:
        """Load the latest checkpoint in a directory; returns its progress, or None if there is none.

        ``local_cache_path`` is where trainer ``trainer_id`` keeps files that have to be downloaded.
        Raises AssertionError if there is none and ``ignore_empty`` is False, ValueError if it is corrupt.
        """
        program = self._program(executor, main_program, "load_check_point")
        found = checkpoints.load(executor, path, program, fs, local_cache_path, trainer_id)
        assert found is not None or ignore_empty, "Can't find checkpoint: expected one in the folder, found none"
        return found

    def clean_redundant_check_points(
        self,
        root_path: str,
        fs: Any = LocalFS(),  # noqa: B008
        checkpoint_num: int = 1,
    ) -> None:
        """Remove all checkpoints in a directory except the latest ones."""
        for number in checkpoints.numbers(root_path, fs)[: -max(checkpoint_num, 1)]:
            fs.delete(checkpoints.folder(root_path, number))

    def _get_last_checkpoint_no(self, root_path: str, fs: Any) -> int:
        """The number of the latest checkpoint in a directory; -1 if there is none."""
        return max(checkpoints.numbers(root_path, fs), default=-1)

    def _save_train_status(self, path: str, train_status: TrainStatus) -> None:
        """Write the progress of a training to a checkpoint's directory."""
        checkpoints.save_status(path, train_status)

    def _load_train_status(self, path: str) -> TrainStatus:
        """Read the progress from a checkpoint's directory. Raises ValueError if it lacks the number of an epoch."""
        return checkpoints.load_status(path, path)


def _needless(name: str) -> None:
    warnings.warn(f"fleet.{name}() has nothing to do where workers exchange gradients among themselves", stacklevel=3)


fleet = Collective()


class CollectiveOpBasedOptimizer(DistributedOptimizer):
    """An optimizer of a collective fleet, wrapping another one.

    Args:
        optimizer: the optimizer to wrap.
        strategy: a DistributedStrategy.
    """

    def __init__(self, optimizer: Any, strategy: Any = None) -> None:
        assert strategy is None or isinstance(strategy, DistributedStrategy), (
            f"strategy must be DistributedStrategy, received a {type(strategy).__name__}"
        )
        super().__init__(optimizer, strategy)

    def backward(
        self,
        loss: Any,
        startup_program: Any = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
        callbacks: Any = None,
    ) -> Any:
        """The first half of ``minimize``: gradients."""
        return self._optimizer.backward(loss, startup_program, parameter_list, no_grad_set, callbacks)

    def apply_gradients(self, params_grads: Any) -> Any:
        """The second half of ``minimize``: updates."""
        return self._optimizer.apply_gradients(params_grads)


class CollectiveOptimizer(CollectiveOpBasedOptimizer):
    """An optimizer whose ``minimize`` writes the programs of a worker.

    Args:
        optimizer: the optimizer of one worker.
        strategy: the strategy of the fleet.
    """

    def __init__(self, optimizer: Any, strategy: Any = None) -> None:
        super().__init__(optimizer, DistributedStrategy() if strategy is None else strategy)
        if not isinstance(self._strategy.recompute_checkpoints, list):
            raise ValueError("DistStrategy.recompute_checkpoints should be a List of variables or names")
        # As in Fluid, these are what they were here; the others are read by ``minimize``.
        self._wrapping = SimpleNamespace(**{name: getattr(self._strategy, name) for name in WRAPPING})
        self.print_config = False

    def minimize(  # type: ignore[override]
        self, loss: Any, startup_program: Any = None, parameter_list: Any = None, no_grad_set: Any = None
    ) -> Any:
        """Write the ops that minimize a loss, and create ``fleet.main_program`` and ``fleet.startup_program``.

        If the fleet has a single worker, these are the unchanged program, run on its devices.

        Returns:
            (the ops, [(parameter, gradient), ...]).

        Raises ValueError or AssertionError for contradictory settings.
        """
        strategy = self._strategy
        if strategy.use_dist_fc:
            DistFCConfig()  # says that it is not built
        check_wrapped(self._wrapping, self._optimizer)
        main = loss.block.program
        startup = default_startup_program() if startup_program is None else startup_program
        settle_mode(strategy)
        made = self._wrapped().minimize(loss, startup, parameter_list, no_grad_set)
        fleet._origin_program = main.clone(for_test=False)
        settle_rings(strategy, fleet.worker_endpoints())
        if fleet.worker_num() > 1:
            _transpile(strategy, startup, main)
        fleet._transpiled_program = main
        fleet.startup_program = startup
        fleet.main_program = main if strategy.mode == "collective" else _compiled(strategy, main, loss)
        return made

    def raiseOptimizeError(self, strategy_name: str, optimize_name: str) -> None:
        """Raise the ValueError of an optimizer that does already what a strategy asks for."""
        raise refused(strategy_name, optimize_name)

    def _wrapped(self) -> Any:
        strategy, optimizer = self._wrapping, cast(Any, self._optimizer)
        if strategy.forward_recompute:
            optimizer = RecomputeOptimizer(optimizer)
            optimizer._set_checkpoints(list(strategy.recompute_checkpoints))
        if strategy.use_amp:
            optimizer = decorate(optimizer, init_loss_scaling=strategy.amp_loss_scaling, use_dynamic_loss_scaling=True)
        return optimizer


def _transpile(strategy: DistributedStrategy, startup: Program, main: Program) -> None:
    endpoints, rank = fleet.worker_endpoints(), fleet.worker_index()
    config = DistributeTranspilerConfig()
    config.mode, config.collective_mode = strategy.mode, strategy.collective_mode
    for name in ("nccl_comm_num", "use_hierarchical_allreduce", "hierarchical_allreduce_inter_nranks"):
        setattr(config, name, getattr(strategy, name))
    DistributeTranspiler(config).transpile(
        rank,
        program=main,
        startup_program=startup,
        trainers=",".join(endpoints),
        current_endpoint=endpoints[rank],
    )
    if strategy.mode != "collective":
        strategy.num_trainers, strategy.trainer_id = len(endpoints), rank
        strategy.trainers_endpoints = list(endpoints)


def _compiled(strategy: DistributedStrategy, main: Program, loss: Any) -> CompiledProgram:
    return CompiledProgram(main).with_data_parallel(
        loss_name=loss.name, build_strategy=strategy, exec_strategy=strategy.exec_strategy
    )
