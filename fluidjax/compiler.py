"""CompiledProgram and the strategies of Fluid's parallel executor.

Since XLA compiles every program, most settings are stored only so that scripts can read them back. Each class says
which have an effect, and why the others have none.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fluidjax import passes
from fluidjax.base.enums import FluidEnum
from fluidjax.base.errors import EnforceNotMet
from fluidjax.base.places import CUDAPlace, Place, physical_devices
from fluidjax.base.scope import Scope
from fluidjax.base.settings import Settings
from fluidjax.base.unknown import unknown_name
from fluidjax.execution.devices.processes import processes
from fluidjax.execution.pruning import Pruning, part
from fluidjax.framework import Program, cpu_places, cuda_places, program_view
from lowering.engine.parallel.devices import Devices

if TYPE_CHECKING:
    from fluidjax.execution.devices.several import SeveralDevices

__all__ = ["CompiledProgram", "ExecutionStrategy", "BuildStrategy"]


_PARTS = 8  # of a CompiledProgram that are kept


class ExecutionStrategy(Settings):
    """Scheduling options of Fluid's parallel executor.

    Attributes:
        _dry_run: nothing is computed: feeds and the names of fetches are checked.
        num_threads, use_cuda: set by the first run to what it used, where they are left at their defaults. XLA has a
            pool of threads of its own.
        allow_op_delay, use_experimental_executor: change nothing: XLA orders ops.
        num_iteration_per_drop_scope: changes nothing: runs keep no scopes.
        num_iteration_per_run: with BuildStrategy.async_mode, as in Fluid, a run is so many steps, each of which takes
            the next batch of the program's reader; fetches are those of the last.
        use_thread_barrier: changes nothing: devices wait for each other in every step.

    Examples:
        >>> strategy = fluid.ExecutionStrategy()
        >>> strategy.num_threads = 4
        >>> strategy.num_threads
        4
    """

    _defaults = {
        "_dry_run": False,
        "allow_op_delay": False,
        "num_iteration_per_drop_scope": 100,
        "num_iteration_per_run": 1,
        "num_threads": 0,
        "use_cuda": True,  # until a run says where it is
        "use_experimental_executor": True,
        "use_thread_barrier": False,
    }
    _typed = _defaults
    _counts = ("num_iteration_per_drop_scope", "num_iteration_per_run", "num_threads")
    num_threads: int
    num_iteration_per_run: int
    _dry_run: bool


class BuildStrategy(Settings):
    """How devices cooperate, and which of Fluid's graph passes are applied.

    Attributes:
        gradient_scale_strategy: the gradient of the loss on each device.
        sync_batch_norm: whether batches are normalised over all devices.
        debug_graphviz_path: the graph is drawn to files whose names begin so.
        num_trainers: AssertionError if it is neither 1 nor the number of trainers that the program knows of.
        trainer_id, trainers_endpoints: change nothing: the program was told of them when it was transpiled.
        reduce_strategy: changes nothing: all devices sum and update, and in Fluid, too, the values are the same.
        async_mode: whether ExecutionStrategy.num_iteration_per_run counts. The devices of a process sum their gradients
            all the same; in Fluid they update shared parameters in a race.
        is_distribution: changes nothing: the program's own ops send and receive.
        nccl_comm_num, use_hierarchical_allreduce, hierarchical_allreduce_inter_nranks: change nothing: the library of
            collectives (NCCL, gloo) finds its rings and stages itself.
        fuse_all_optimizer_ops, fuse_all_reduce_ops, fuse_bn_act_ops, fuse_broadcast_ops, fuse_elewise_add_act_ops,
            fuse_relu_depthwise_conv, enable_auto_fusion: change nothing but the list of passes: XLA fuses ops, and all
            gradients are summed in one call.
        enable_sequential_execution, enable_backward_optimizer_op_deps, remove_unnecessary_lock: change nothing but the
            list of passes: XLA orders ops, and runs of the same inputs are equal.
        enable_inplace, memory_optimize: change nothing: XLA reuses memory, and overwrites state.
        cache_runtime_context: changes nothing: a step is compiled once.
        mkldnn_enabled_op_types: changes nothing: XLA has kernels of its own.

    Examples:
        >>> strategy = fluid.BuildStrategy()
        >>> strategy.gradient_scale_strategy = fluid.BuildStrategy.GradientScaleStrategy.One
        >>> loss = fluid.layers.mean(fluid.data("x", [None, 2]))
        >>> program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        ...     loss_name=loss.name, build_strategy=strategy, places=fluid.cpu_places(2)
        ... )
        >>> fluid.Executor().run(program, feed={"x": np.ones((4, 2), "float32")}, fetch_list=[loss])[0].shape
        (2,)
    """

    class ReduceStrategy(FluidEnum):
        """Where gradients are reduced over devices."""

        AllReduce = 0
        Reduce = 1

    class GradientScaleStrategy(FluidEnum):
        """The gradient of the loss on each device: 1 / devices (equal weights), 1, or fed by the user."""

        CoeffNumDevice = 0
        One = 1
        Customized = 2

    gradient_scale_strategy: GradientScaleStrategy
    sync_batch_norm: bool
    async_mode: bool
    num_trainers: int

    _defaults = {
        "async_mode": False,
        "cache_runtime_context": False,
        "debug_graphviz_path": "",
        "enable_auto_fusion": False,
        "enable_backward_optimizer_op_deps": True,
        "enable_inplace": True,
        "enable_sequential_execution": False,
        "fuse_all_optimizer_ops": False,
        "fuse_all_reduce_ops": True,
        "fuse_bn_act_ops": False,
        "fuse_broadcast_ops": True,
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
    _typed = {name: value for name, value in _defaults.items() if value is not None}
    _passes: passes.PassBuilder | None = None

    # Fluid lets these be set when the passes have been asked for.
    _open = {
        "async_mode",
        "cache_runtime_context",
        "enable_backward_optimizer_op_deps",
        "enable_inplace",
        "fuse_all_reduce_ops",
        "hierarchical_allreduce_inter_nranks",
        "is_distribution",
        "memory_optimize",
        "mkldnn_enabled_op_types",
        "nccl_comm_num",
        "num_trainers",
        "trainer_id",
        "trainers_endpoints",
        "use_hierarchical_allreduce",
    }

    def __setattr__(self, name: str, value: Any) -> None:
        if self._passes is not None and name in self._defaults and name not in self._open:
            raise EnforceNotMet(
                f"BuildStrategy has been finalized, cannot be configured again: received {name} = {value!r}. Expected"
                " all settings before the passes were asked for. Set it before, or make another BuildStrategy"
            )
        if name == "memory_optimize" and not (value is None or isinstance(value, bool)):
            raise EnforceNotMet(
                f"BuildStrategy.memory_optimize must be None, False or True, received {value!r}. Set one"
            )
        super().__setattr__(name, value)

    def _finalize_strategy_and_create_passes(self) -> passes.PassBuilder:
        """The passes selected by the settings, for the caller to modify; the settings are then frozen."""
        if self._passes is None:
            self.__dict__["_passes"] = passes.built(self.__dict__)
        return self.__dict__["_passes"]

    def _merged(self, program: Program) -> Program:
        """The program that the passes make of this one."""
        return program if self._passes is None else self._passes.merge(program)

    def _draw(self, program: Program) -> None:
        """Draw the graphs requested by the passes or by ``debug_graphviz_path``."""
        (self._passes or passes.built(self.__dict__)).draw(program)


class CompiledProgram:
    """A program with compilation settings; pass it to ``Executor.run`` in place of the program.

    Args:
        program_or_graph: the program; or a core.Graph, converted in its current state.
        build_strategy: how devices cooperate; see ``with_data_parallel``.

    Examples:
        >>> x = fluid.data("x", [None, 2])
        >>> loss = fluid.layers.mean(x)
        >>> program = fluid.CompiledProgram(fluid.default_main_program())
        >>> program = program.with_data_parallel(places=[fluid.CPUPlace(), fluid.CPUPlace()])
        >>> fluid.Executor().run(program, feed={"x": np.float32([[1, 1], [3, 3]])}, fetch_list=[loss])[0].tolist()
        [1.0, 3.0]
    """

    def __init__(self, program_or_graph: Any, build_strategy: BuildStrategy | None = None):
        program = getattr(program_or_graph, "_as_program", lambda: program_or_graph)()
        if not isinstance(program, Program):
            raise TypeError(
                f"CompiledProgram: expected a fluid.Program or a core.Graph, received {type(program).__name__}; pass"
                " the program itself"
            )
        self._program = program
        self._graph = None if program is program_or_graph else program_or_graph
        self._build_strategy = build_strategy or BuildStrategy()
        self._is_data_parallel = False
        self._places: list[Place] | None = None
        self._place: Place | None = None
        self._scope: Scope | None = None
        self._several: SeveralDevices | None = None
        self._parts: list[CompiledProgram] = []  # that runs asked for

    def with_data_parallel(
        self,
        loss_name: str | None = None,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        share_vars_from: CompiledProgram | None = None,
        places: Place | Sequence[Place] | None = None,
    ) -> CompiledProgram:
        """Split batches over several devices; returns itself.

        Each device runs the program on its share of a batch. The gradients of parameters are summed over the devices,
        so that all make the same update; ``gradient_scale_strategy`` determines the scale of the loss's gradient.
        Whatever else differs between devices, such as the running statistics of batch_norm, is kept per device; the
        scope holds that of device 0. A fetch contains the concatenated values of the devices, or a list of them
        (``return_merged=False``).

        If jax has enough physical devices, each share is computed on its own device (on a CPU,
        XLA_FLAGS=--xla_force_host_platform_device_count=8 provides eight): all in one step if shares are of equal size,
        else in a step of its own on each device, a sum of the gradients, and an update on each. Programs with host ops
        are computed as one program on the executor's own device, and so are unequal shares with sync_batch_norm; the
        results are the same.

        Args:
            loss_name: name of the loss; required if the program has a backward pass.
            build_strategy: overrides the one passed to the constructor.
            exec_strategy: has no effect but that of its ``_dry_run``.
            share_vars_from: another such program, which has already run, whose device variables to use.
            places: one per device; by default ``cpu_places()`` (CPU_NUM of them) or ``cuda_places()``.

        Raises:
            AssertionError: called twice, or without a loss on a program with a backward pass.
        """
        if self._is_data_parallel:
            raise AssertionError(
                "Already compiled with parallel, cannot be recompiled: expected one call of with_data_parallel,"
                " received a second; make another CompiledProgram"
            )
        if loss_name is None and _has_backward(self._program):
            raise AssertionError(
                "The loss name of CompiledProgram is None. The loss name should be set if CompiledProgram contains"
                " backward part: expected with_data_parallel(loss_name=loss.name), received none"
            )
        self._is_data_parallel = True
        self._build_strategy = build_strategy or self._build_strategy
        self._exec_strategy = exec_strategy or ExecutionStrategy()
        self._loss_name = loss_name
        self._share_vars_from = share_vars_from
        self._places = [places] if isinstance(places, Place) else None if places is None else list(places)
        return self

    @property
    def _executor(self) -> SeveralDevices | None:
        """The object that runs the program on several devices; None before the first run."""
        return self._several

    @property
    def _local_scopes(self) -> list[Scope]:
        """The scopes that the devices share with ``share_vars_from``; empty if there is none."""
        shared = self._shared() if self._several is not None else None
        return [] if shared is None else [shared]

    def _run_at(self, place: Place, scope: Scope) -> SeveralDevices | None:
        """The object that runs the program on several devices for a given place; None if it runs on a single one.

        Also sets ``_places``.

        Raises:
            AssertionError: the list of places is empty.
            ValueError: the program has already run at another place or with another scope.
        """
        if self._place is None:
            self._choose_places(place, scope)
            self._scope = scope
        elif self._place != place:
            raise ValueError(
                f"Cannot compile program with different place: expected {self._place}, where it ran first, received"
                f" {place}; make another CompiledProgram"
            )
        if self._scope is not scope:
            raise ValueError(
                "Cannot compile program with different scope: expected the scope of its first run, received another;"
                " make another CompiledProgram"
            )
        return self._several

    def _has_run_at(self, place: Place, scope: Scope) -> bool:
        """Whether runs at this place, with this scope, are what the program was bound to."""
        return self._scope is scope and self._place == place

    def _part(self, prune: Pruning, *wanted: Any) -> CompiledProgram:
        """A part of the program, with these settings; what devices hold is shared with it, or with an earlier part."""
        program = part(self._program, prune, *wanted)
        for one in self._parts:
            if one._program is program:
                return one
        made = copy.copy(self)
        made._program, made._place, made._scope, made._several = program, None, None, None
        ran = next((one for one in (self, *self._parts) if one._several is not None), None)
        if ran is not None:
            made._share_vars_from = ran
        self._parts = [*self._parts[-_PARTS:], made]
        return made

    def _compile(self, scope: Scope, place: Place) -> CompiledProgram:
        """Bind the program to a place and scope, as its first run would; XLA compiles it in that run."""
        self._run_at(place, scope)
        return self

    def _choose_places(self, place: Place, scope: Scope) -> None:
        if not self._is_data_parallel:
            self._place, self._places = place, [place]
            return
        places = _default_places(place) if self._places is None else self._places
        if not places:
            raise AssertionError(
                "No places for execution: with_data_parallel expected one place or more, received an empty list; leave"
                " places out for all devices"
            )
        from fluidjax.execution.devices.several import SeveralDevices

        self._exec_strategy.num_threads = self._exec_strategy.num_threads or 2 * len(places)
        self._exec_strategy.use_cuda = isinstance(place, CUDAPlace)
        devices = self._devices(len(places))
        physical = physical_devices(places) if devices.processes == 1 else []
        dry = bool(self._exec_strategy._dry_run)
        program = self._build_strategy._merged(self._program)
        count = self._exec_strategy.num_iteration_per_run if self._build_strategy.async_mode else 1
        self._several = SeveralDevices(program, devices, scope, self._shared(), physical, dry=dry, iterations=count)
        self._place, self._places = place, places
        self._build_strategy._draw(self._program)

    def _devices(self, count: int) -> Devices:
        scales = BuildStrategy.GradientScaleStrategy
        strategy = self._build_strategy.gradient_scale_strategy
        trainers = _joined_trainers(self._program)
        if self._build_strategy.num_trainers not in (1, trainers):
            raise AssertionError(
                "The trainer numbers is not equal to endpoint numbers: expected BuildStrategy.num_trainers to be as"
                f" many as the program was told of in mode nccl2 ({trainers}), received"
                f" {self._build_strategy.num_trainers}. Leave it out, or transpile the program for as many"
            )
        scale = {scales.CoeffNumDevice: 1.0 / (count * trainers), scales.One: 1.0, scales.Customized: None}[strategy]
        return Devices(count, scale, bool(self._build_strategy.sync_batch_norm), trainers)

    def _shared(self) -> Scope | None:
        """The scope with the per-device variables of ``share_vars_from``."""
        other = self._share_vars_from
        if other is None:
            return None
        if not other._is_data_parallel:
            raise ValueError(
                "The shared Program is not data parallel, cannot share variables from it: expected one made by"
                " with_data_parallel; call it, and run that program first"
            )
        if other._several is None:
            raise ValueError(
                "The shared Program is not compiled and executed, so there is no variables to share: expected one that"
                " has run; run it first"
            )
        return other._several.local


def _has_backward(program: Program) -> bool:
    return any(op.is_backward for op in program_view(program).blocks[0].ops)


def _joined_trainers(program: Program) -> int:
    """The number of processes of a program transpiled in mode nccl2. Raises RuntimeError if they have not joined."""
    trainers, joined = len(program._trainers_endpoints) or 1, processes()
    if trainers > 1 and (joined is None or joined.count != trainers):
        raise RuntimeError(
            f"CompiledProgram: the program is one of {trainers} trainers: expected them to have come together, found"
            f" {1 if joined is None else joined.count}; run the startup program that was transpiled first"
        )
    return trainers


def _default_places(place: Place) -> list[Place]:
    """All places of the same kind."""
    return [*(cuda_places() if isinstance(place, CUDAPlace) else cpu_places())]


__getattr__ = unknown_name(__name__)
