"""ParallelExecutor: Fluid's older interface for running a program on several devices."""

from __future__ import annotations

from typing import Any

from fluidjax.base.older import became, without
from fluidjax.base.scope import Scope, global_scope
from fluidjax.base.unknown import unknown_name
from fluidjax.compiler import BuildStrategy, CompiledProgram, ExecutionStrategy
from fluidjax.executor import Executor
from fluidjax.framework import Program, cpu_places, cuda_places, default_main_program

__all__ = ["ParallelExecutor"]


def _set_scale(executor: Any, given: dict[str, Any], default: bool) -> None:
    """use_default_grad_scale: whether the loss's gradient is 1 / devices, or fed."""
    scales = BuildStrategy.GradientScaleStrategy
    _build(given).gradient_scale_strategy = scales.CoeffNumDevice if default else scales.Customized


def _set_balance(executor: Any, given: dict[str, Any], balanced: bool) -> None:
    """balance_parameter_opt_between_cards: whether each device updates a part of the parameters."""
    _build(given).reduce_strategy = getattr(BuildStrategy.ReduceStrategy, "Reduce" if balanced else "AllReduce")


def _build(given: dict[str, Any]) -> BuildStrategy:
    given["build_strategy"] = given.get("build_strategy") or BuildStrategy()
    found: BuildStrategy = given["build_strategy"]
    return found


class ParallelExecutor:
    """Runs each step of a program on all devices of a kind; see ``CompiledProgram.with_data_parallel``.

    Args:
        use_cuda: run on accelerators rather than on CPU_NUM CPU devices.
        loss_name: name of the loss variable.
        main_program: the program; the default main program if None.
        share_vars_from: another ParallelExecutor, which has already run, whose device variables to use.
        exec_strategy, build_strategy: see ``with_data_parallel``.
        num_trainers, trainer_id: number of training processes, as given to the program in mode nccl2, and this one's
            index.
        scope: the scope; the global scope if None.

    Raises:
        ValueError: the program has a different number of trainers.

    Examples:
        >>> loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), 1))
        >>> startup = fluid.Executor().run(fluid.default_startup_program())
        >>> parallel = fluid.ParallelExecutor(use_cuda=False, loss_name=loss.name)
        >>> parallel.run([loss.name], feed={"x": np.ones((2, 4), "float32")})[0].shape
        (1,)
    """

    @without("fluid.ParallelExecutor", "num_threads", "allow_op_delay")
    @became(use_default_grad_scale=_set_scale, balance_parameter_opt_between_cards=_set_balance)
    def __init__(
        self,
        use_cuda: bool,
        loss_name: str | None = None,
        main_program: Program | None = None,
        share_vars_from: ParallelExecutor | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        build_strategy: BuildStrategy | None = None,
        num_trainers: int = 1,
        trainer_id: int = 0,
        scope: Scope | None = None,
    ):
        told = len((main_program or default_main_program())._trainers_endpoints) or 1
        if num_trainers != told or not 0 <= trainer_id < told:
            raise ValueError(
                f"ParallelExecutor: expected as many trainers as the program was told of in mode"
                f" nccl2 ({told}), and one of them, received num_trainers={num_trainers}, trainer_id={trainer_id}"
            )
        shared = share_vars_from._scope if share_vars_from is not None else None
        self._scope: Scope = scope or shared or global_scope()
        self._places = cuda_places() if use_cuda else cpu_places()
        self._executor = Executor(self._places[0])
        program = main_program if main_program is not None else default_main_program()
        self._compiled: CompiledProgram = CompiledProgram(program, build_strategy).with_data_parallel(
            loss_name,
            exec_strategy=exec_strategy,
            share_vars_from=share_vars_from._compiled if share_vars_from is not None else None,
            places=self._places,
        )

    @property
    def device_count(self) -> int:
        """The number of devices in use."""
        return len(self._places)

    def run(self, fetch_list: Any, feed: Any = None, feed_dict: Any = None, return_numpy: bool = True) -> list[Any]:
        """Run once, as ``Executor.run``. ``feed_dict`` is the older name of ``feed``."""
        feed = feed if feed is not None else feed_dict
        return self._executor.run(
            self._compiled, feed=feed, fetch_list=fetch_list, scope=self._scope, return_numpy=return_numpy
        )

    def drop_local_exe_scopes(self) -> None:
        """Release what runs have stored; a no-op, since they store nothing."""
        if self._compiled._executor is not None:
            self._compiled._executor.drop_local_exe_scopes()

    def _need_create_local_exe_scopes(self) -> bool:
        """Whether there has been no run since the last drop."""
        several = self._compiled._executor
        return several is None or several._need_create_local_exe_scopes()


__getattr__ = unknown_name(__name__)
