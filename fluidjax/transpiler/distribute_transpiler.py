"""Programs for trainers and parameter servers, or for collective workers."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

from fluidjax.base.errors import explain
from fluidjax.base.older import became
from fluidjax.framework import Program, Variable, default_main_program, default_startup_program
from fluidjax.framework.distributed_table import warn_of_own_parameters, warn_of_whole_parameters
from fluidjax.transpiler import collective
from fluidjax.transpiler.config import DistributedMode, DistributeTranspilerConfig, ServerRuntimeConfig
from fluidjax.transpiler.details import UnionFind as UnionFind
from fluidjax.transpiler.details import VarsDistributed, wait_server_ready
from fluidjax.transpiler.details import VarStruct as VarStruct
from fluidjax.transpiler.details import delete_ops as delete_ops
from fluidjax.transpiler.details import find_op_by_output_arg as find_op_by_output_arg
from fluidjax.transpiler.job import Job, Layout
from fluidjax.transpiler.nccl2 import transpile_nccl2
from fluidjax.transpiler.ps_dispatcher import PSDispatcher, RoundRobin
from fluidjax.transpiler.schedule import count_by_trainers
from fluidjax.transpiler.server import ServerWriter
from fluidjax.transpiler.server_startup import server_startup
from fluidjax.transpiler.server_table import Prefetched
from fluidjax.transpiler.slicing import VarBlock, same_or_split_var, slice_variable
from fluidjax.transpiler.state import add_states, check_optimizers
from fluidjax.transpiler.tables import TrainerTable
from fluidjax.transpiler.terms import (  # noqa: F401 - scripts find these here, as in Fluid
    CLIP_OP_NAME_SCOPE,
    DIST_OP_ROLE_ATTR_VALUE,
    LOOKUP_TABLE_GRAD_TYPE,
    LOOKUP_TABLE_TYPE,
    LR_SCHED_OP_ROLE_ATTR_VALUE,
    OP_NAME_SCOPE,
    OP_ROLE_VAR_ATTR_NAME,
    OPT_OP_ROLE_ATTR_VALUE,
    RPC_OP_ROLE_ATTR_NAME,
    RPC_OP_ROLE_ATTR_VALUE,
    op_role_attr_name,
)
from fluidjax.transpiler.trainer import TrainerWriter
from fluidjax.transpiler.trainer_startup import strip_trainer, write_startup

__all__ = [
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "DistributedMode",
    "ServerRuntimeConfig",
    "VarBlock",
    "same_or_split_var",
    "slice_variable",
]

PRINT_LOG = False  # set by the first transpiler whose config has print_log


def log(*args: Any) -> None:
    """Print a step of the transpiler, if PRINT_LOG."""
    if PRINT_LOG:
        print(args)


def _configure(name: str, transpiler: Any, given: dict[str, Any], value: Any) -> None:
    """An argument of ``transpile`` that is a setting of the config now."""
    setattr(transpiler.config, name, value)


class DistributeTranspiler:
    """Splits a program into those of trainers and parameter servers (mode ``pserver``), or adds the communication of
    collective workers (``nccl2``, ``collective``).

    Args:
        config: the configuration; the default one if None.

    Attributes:
        origin_program, startup_program: the programs passed to ``transpile``, and modified by it.
        trainer_id, trainer_num, sync_mode, pserver_endpoints: as passed to ``transpile``.
        vars_overview: the distribution of variables over servers.
        param_grad_ep_mapping: server -> ``{"params": [...], "grads": [...]}``, its blocks.
        table_name: the distributed lookup table, or None; has_distributed_lookup_table: whether there is one.

    Examples:
        >>> loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), 1))
        >>> ops, grads = fluid.optimizer.SGD(0.1).minimize(loss)
        >>> transpiler = fluid.DistributeTranspiler()
        >>> transpiler.transpile(trainer_id=0, pservers="127.0.0.1:6170", trainers=2)
        >>> server = transpiler.get_pserver_program("127.0.0.1:6170")
        >>> server.global_block().ops[-1].type
        'listen_and_serv'
    """

    def __init__(self, config: DistributeTranspilerConfig | None = None) -> None:
        self.config = DistributeTranspilerConfig() if config is None else config
        self._set_server_config()
        if self.config.print_log:
            global PRINT_LOG
            PRINT_LOG = True
        if self.config.split_method is None:
            self.config.split_method = RoundRobin
        self.distributed_mode = self._mode()
        assert self.config.min_block_size >= 8192, (
            f"min_block_size {self.config.min_block_size}: expected at least 8192, for smaller blocks cost more than"
            " they spread. Raise it."
        )
        assert issubclass(self.config.split_method, PSDispatcher), (
            f"split_method {self.config.split_method!r}: expected a class derived from PSDispatcher. Use RoundRobin."
        )

    def _mode(self) -> int:
        if self.config.sync_mode or self.config.completely_not_async:
            return DistributedMode.SYNC
        return DistributedMode.ASYNC if self.config.runtime_split_send_recv else DistributedMode.HALF_ASYNC

    def _set_server_config(self, server_config: ServerRuntimeConfig | None = None) -> None:
        if server_config is not None and not isinstance(server_config, ServerRuntimeConfig):
            raise TypeError(
                "In DistributeTranspiler, server_config must be an instance of ServerRuntimeConfig, got"
                f" {server_config!r}. Make one, or leave it out."
            )
        self.server_config = server_config or ServerRuntimeConfig()

    @became(**{name: partial(_configure, name) for name in ("split_method", "slice_var_up")})
    def transpile(
        self,
        trainer_id: int,
        program: Program | None = None,
        pservers: str = "127.0.0.1:6174",
        trainers: int | str | list[str] = 1,
        sync_mode: bool = True,
        startup_program: Program | None = None,
        current_endpoint: str = "127.0.0.1:6174",
    ) -> None:
        """Transform the programs in place into those of one trainer, and record what is needed for the servers.

        Args:
            trainer_id: index of this trainer.
            program, startup_program: the programs after ``minimize``; the default ones by default.
            pservers: the servers as ``host:port,host:port``.
            trainers: number of trainers; in the modes without servers, their endpoints.
            sync_mode: whether servers wait for all trainers at each step; must agree with the config.
            current_endpoint: this process's own.

        Raises ValueError for optimizers not supported by servers.
        """
        main = program or default_main_program()
        startup = startup_program or default_startup_program()
        self.origin_program, self.startup_program = main, startup
        self.origin_startup_program = startup.clone()
        if self.config.mode == "nccl2":
            transpile_nccl2(self.config, main, startup, trainer_id, trainers, current_endpoint)
            warn_of_whole_parameters(main, len(main._trainers_endpoints))
        elif self.config.mode == "collective":
            self._transpile_collective(main, startup, trainer_id, trainers, current_endpoint)
        else:
            self._remember(trainer_id, pservers, trainers, sync_mode)
            self._transpile_for_servers(current_endpoint)

    def _transpile_collective(
        self, main: Program, startup: Program, rank: int, trainers: int | str | list[str], endpoint: str
    ) -> None:
        mode = self.config.collective_mode
        makers: dict[Any, Any] = {
            "grad_allreduce": lambda: collective.GradAllReduce(self.config.nccl_comm_num),
            "local_sgd": lambda: collective.LocalSGD(self.config.nccl_comm_num),
            "single_process_multi_thread": collective.SingleProcessMultiThread,
        }
        endpoints = trainers.split(",") if isinstance(trainers, str) else trainers
        if not isinstance(endpoints, list):
            raise ValueError(f"invalid trainers config: {trainers}. Expected endpoints, 'host:port,host:port'.")
        if len(endpoints) == 1 and mode != "single_process_multi_thread":
            raise ValueError("invalid trainer number in distributed: 1. Expected two endpoints or more; list all.")
        if mode not in makers:
            raise ValueError(f"invalid collective_mode: {mode}. Expected one of {', '.join(makers)}.")
        makers[mode]().transpile(
            startup_program=startup,
            main_program=main,
            rank=rank,
            endpoints=endpoints,
            current_endpoint=endpoint,
            wait_port=self.config.wait_port,
        )
        warn_of_own_parameters(main, len(endpoints))

    # Parameter servers.

    def _remember(self, trainer_id: int, pservers: str, trainers: Any, sync_mode: bool) -> None:
        self.trainer_id, self.trainer_num, self.sync_mode = trainer_id, trainers, sync_mode
        self.pserver_endpoints = pservers.split(",")
        self._job = Job(
            self.origin_program,
            self.startup_program,
            self.config,
            trainer_id,
            trainers,
            self.pserver_endpoints,
            sync_mode,
        )
        self.params_grads, self.optimize_ops = self._job.params_grads, self._job.optimizing
        for param, grad in self.params_grads:
            log("adding param_grad pair: ", param.name, grad.name)
        self.param_name_to_grad_name = {param.name: grad.name for param, grad in self.params_grads}
        self.grad_name_to_param_name = {grad.name: param.name for param, grad in self.params_grads}
        self.table_name = self._job.table
        self.has_distributed_lookup_table = self.table_name is not None

    def _mark(self, current_endpoint: str) -> None:
        """Record in the main program that it is part of a job, for checkpoints."""
        main = self.origin_program
        main._is_distributed = True
        main._endpoints = self.pserver_endpoints
        main._ps_endpoint = current_endpoint
        main._is_chief = self.trainer_id == 0
        main._distributed_lookup_table = self.table_name

    def _transpile_for_servers(self, current_endpoint: str) -> None:
        job = self._job
        check_optimizers(job.optimizing)
        self._mark(current_endpoint)
        table = self._trainer_table()
        self._layout = Layout(job)
        self.vars_overview: VarsDistributed = self._layout.overview
        self.param_var_mapping, self.grad_var_mapping = self._layout.params, self._layout.grads
        self.counter_var = None if job.sync else count_by_trainers(job)
        writer = TrainerWriter(job, self._layout, self.config.split_method(self.pserver_endpoints))
        writer.write(self.counter_var)
        write_startup(job, self._layout.params, writer.dealt)
        self._prefetched = None
        if table is not None:
            table.write_prefetch(self.pserver_endpoints)
            table.write_send(self.pserver_endpoints, self.trainer_id, writer.sent[table.name] if job.sync else None)
            self._prefetched = Prefetched(table.ids, table.rows, table.grads)
        add_states(job, self.vars_overview)
        self.origin_program._parameters_on_pservers = self.vars_overview

    def _trainer_table(self) -> TrainerTable | None:
        if self._job.table is None:
            return None
        suffix = f".trainer_{self.trainer_id}" if self.sync_mode else ""
        return TrainerTable(self.origin_program, self._job.table, suffix, len(self.pserver_endpoints))

    @property
    def param_grad_ep_mapping(self) -> dict[str, dict[str, list[Variable]]]:
        """The blocks of parameters and gradients by server."""
        return {
            endpoint: {"params": shard.params, "grads": shard.grads} for endpoint, shard in self._layout.shards.items()
        }

    def get_trainer_program(self, wait_port: bool = True) -> Program:
        """The trainer's main program: without the optimizer, with sends and receives.

        With ``wait_port``, waits until all servers are listening.
        """
        strip_trainer(self._job, self._layout.params)
        if wait_port:
            wait_server_ready(self.pserver_endpoints)
        return self.origin_program

    def get_pserver_program(self, endpoint: str) -> Program:
        """The main program of a server: block 0 listens, every other block updates part of a parameter."""
        self._check_endpoint(endpoint)
        writer = ServerWriter(self._job, self._layout, endpoint, self._prefetched)
        attrs: dict[str, Any] = {"distributed_mode": self.distributed_mode, **self.server_config.attributes()}
        self.pserver_program = writer.write(attrs)
        for op in (op for block in self.pserver_program.blocks[1:] for op in block.ops):
            log("append opt op: ", op.type, op.input_arg_names)
        self._copies = writer.copies
        return self.pserver_program

    def _check_endpoint(self, endpoint: str) -> None:
        if endpoint not in self.pserver_endpoints:
            raise ValueError(
                explain(
                    f"{endpoint} is no server of this job",
                    "one of " + ", ".join(self.pserver_endpoints),
                    endpoint,
                    "list it in transpile(pservers=...)",
                )
            )

    def get_pserver_programs(self, endpoint: str) -> tuple[Program, Program]:
        """The main and the startup program of a server."""
        main = self.get_pserver_program(endpoint)
        return main, self.get_startup_program(endpoint, pserver_program=main)

    def get_startup_program(
        self, endpoint: str, pserver_program: Program | None = None, startup_program: Program | None = None
    ) -> Program:
        """The startup program of a server, whose main program is ``pserver_program``.

        ``startup_program`` changes nothing, as in Fluid: the one that ``transpile`` was given counts.
        """
        server = pserver_program or self.get_pserver_program(endpoint)
        return server_startup(self.startup_program, server, self._params_on(endpoint), copy.copy(self._copies))

    def _params_on(self, endpoint: str) -> list[Variable]:
        return self._layout.shards[endpoint].params
