"""CompiledProgram and the strategies of Fluid's parallel executor.

Every program is compiled by XLA here, so these classes mostly carry settings that scripts read back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluidjax.base.places import CUDAPlace, Place
from fluidjax.framework import Program, cpu_places, cuda_places

__all__ = ["CompiledProgram", "ExecutionStrategy", "BuildStrategy"]


class _Settings:
    """Attributes with defaults; setting an unknown one is an error, as misspelt settings would be lost."""

    _defaults: Mapping[str, Any] = {}

    def __init__(self) -> None:
        self.__dict__.update(self._defaults)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._defaults:
            raise AttributeError(
                f"{type(self).__name__} has no setting {name!r}; expected one of {', '.join(self._defaults)}"
            )
        self.__dict__[name] = value


class ExecutionStrategy(_Settings):
    """How Fluid's parallel executor schedules; XLA schedules here, so the settings have no effect."""

    _defaults = {
        "allow_op_delay": False,
        "num_iteration_per_drop_scope": 100,
        "num_iteration_per_run": 1,
        "num_threads": 0,
        "use_cuda": False,
        "use_experimental_executor": False,
        "use_thread_barrier": False,
    }


class BuildStrategy(_Settings):
    """How Fluid's graph passes rewrite a program; XLA fuses here, so those settings have no effect."""

    class ReduceStrategy:
        """Where gradients are summed over devices."""

        AllReduce, Reduce = 0, 1

    class GradientScaleStrategy:
        """How the loss gradient is scaled over devices."""

        CoeffNumDevice, One, Customized = 0, 1, 2

    _defaults = {
        "async_mode": False,
        "cache_runtime_context": False,
        "debug_graphviz_path": "",
        "enable_auto_fusion": False,
        "enable_backward_optimizer_op_deps": False,
        "enable_inplace": True,
        "enable_sequential_execution": False,
        "fuse_all_optimizer_ops": False,
        "fuse_all_reduce_ops": True,
        "fuse_bn_act_ops": False,
        "fuse_broadcast_ops": False,
        "fuse_elewise_add_act_ops": False,
        "fuse_relu_depthwise_conv": False,
        "gradient_scale_strategy": GradientScaleStrategy.CoeffNumDevice,
        "hierarchical_allreduce_inter_nranks": 0,
        "is_distribution": False,
        "memory_optimize": None,
        "mkldnn_enabled_op_types": set(),
        "nccl_comm_num": 1,
        "num_trainers": 1,
        "reduce_strategy": ReduceStrategy.AllReduce,
        "remove_unnecessary_lock": True,
        "sync_batch_norm": False,
        "trainer_id": 0,
        "trainers_endpoints": [],
        "use_hierarchical_allreduce": False,
    }


class CompiledProgram:
    """A program to be run as compiled; ``Executor.run`` takes it in place of the program.

    Args:
        program_or_graph: the program.
        build_strategy: kept for scripts that read it.
    """

    def __init__(self, program_or_graph: Program, build_strategy: BuildStrategy | None = None):
        if not isinstance(program_or_graph, Program):
            raise TypeError(
                f"CompiledProgram: expected a fluid.Program, received {type(program_or_graph).__name__}; pass the"
                " program itself"
            )
        self._program = program_or_graph
        self._build_strategy = build_strategy or BuildStrategy()
        self._is_data_parallel = False
        self._places: list[Place] | None = None

    def with_data_parallel(
        self,
        loss_name: str | None = None,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        share_vars_from: CompiledProgram | None = None,
        places: Place | Sequence[Place] | None = None,
    ) -> CompiledProgram:
        """Say that batches may be split over devices; returns itself.

        The whole batch runs as one computation, which gives the same parameters as one that is split over devices
        and joined by the mean of the gradients.
        """
        self._is_data_parallel = True
        self._build_strategy = build_strategy or self._build_strategy
        self._exec_strategy = exec_strategy or ExecutionStrategy()
        self._loss_name = loss_name
        self._places = [places] if isinstance(places, Place) else None if places is None else list(places)
        return self

    def _run_at(self, place: Place) -> Program:
        """The program, for a run at a place; from then on ``_places`` says where it runs.

        Raises AssertionError when it was told to run nowhere.
        """
        if self._places is None:
            self._places = _default_places(place) if self._is_data_parallel else [place]
        if not self._places:
            raise AssertionError(
                "No places for execution: with_data_parallel expected one place or more, received an empty list; leave"
                " places out for all devices"
            )
        return self._program


def _default_places(place: Place) -> list[Place]:
    """All places of the same kind."""
    return [*(cuda_places() if isinstance(place, CUDAPlace) else cpu_places())]
