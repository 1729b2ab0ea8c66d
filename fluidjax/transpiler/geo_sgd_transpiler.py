"""Geo-SGD: trainers optimise locally, and periodically send the change of their parameters."""

from __future__ import annotations

from typing import Any

from fluidjax.base.enums import VarType
from fluidjax.framework import Program, Variable, default_main_program, default_startup_program
from fluidjax.transpiler.config import DistributedMode, DistributeTranspilerConfig
from fluidjax.transpiler.config import ServerRuntimeConfig as ServerRuntimeConfig
from fluidjax.transpiler.details import VarsDistributed as VarsDistributed
from fluidjax.transpiler.details import delete_ops as delete_ops
from fluidjax.transpiler.details import wait_server_ready
from fluidjax.transpiler.distribute_transpiler import DistributeTranspiler
from fluidjax.transpiler.job import endpoints_of, is_sparse, overview_of
from fluidjax.transpiler.ps_dispatcher import PSDispatcher as PSDispatcher
from fluidjax.transpiler.ps_dispatcher import RoundRobin as RoundRobin
from fluidjax.transpiler.slicing import create_blocks, sections, slice_variable
from fluidjax.transpiler.slicing import same_or_split_var as same_or_split_var
from fluidjax.transpiler.terms import RPC_OP_ROLE_ATTR_NAME as RPC_OP_ROLE_ATTR_NAME
from fluidjax.transpiler.terms import RPC_OP_ROLE_ATTR_VALUE as RPC_OP_ROLE_ATTR_VALUE
from fluidjax.transpiler.terms import op_role_attr_name as op_role_attr_name
from fluidjax.transpiler.trainer_startup import write_startup


class GeoSgdTranspiler(DistributeTranspiler):
    """A DistributeTranspiler whose servers add up the changes made by trainers.

    Attributes:
        vars_info: for each parameter ``var_names``, ``sections`` and ``epmap`` of its blocks, and ``is_sparse``.
        trainer_startup_program: the startup program of this trainer.
    """

    def _mode(self) -> int:
        return DistributedMode.GEO

    def transpile(
        self,
        trainer_id: int,
        program: Program | None = None,
        pservers: str = "127.0.0.1:6174",
        trainers: Any = 1,
        sync_mode: bool = False,
        startup_program: Program | None = None,
        current_endpoint: str = "127.0.0.1:6174",
    ) -> None:
        """As ``DistributeTranspiler.transpile``; always asynchronous."""
        self.origin_program = program or default_main_program()
        self.startup_program = startup_program or default_startup_program()
        self.origin_startup_program = self.startup_program.clone()
        self._remember(trainer_id, pservers, trainers, False)
        self._mark(current_endpoint)
        self._sparse = {param.name for param, grad in self.params_grads if is_sparse(grad)}
        self._cut()
        self._deal()
        self._write_send()
        self._write_startup()

    def _cut(self) -> None:
        params, _ = self._job.learned
        texts = slice_variable(params, len(self.pserver_endpoints), self.config.min_block_size)
        self.param_var_mapping = create_blocks(self.origin_program, texts)
        self.vars_overview = overview_of(self.origin_program, self.param_var_mapping)
        self.delta_vars_list: list[Variable] = []
        for name, blocks in self.param_var_mapping.items():
            whole = self.origin_program.global_block().var(name)
            self.delta_vars_list.append(self._create_delta(whole, name))
            if len(blocks) > 1:
                for block in blocks:
                    self._create_delta(block, name)

    def _create_delta(self, var: Variable, param: str) -> Variable:
        """The variable for the change of a parameter or a block of it."""
        return self.origin_program.global_block().create_var(
            name=f"{var.name}.delta",
            persistable=False,
            dtype=var.dtype,
            type=VarType.SELECTED_ROWS if param in self._sparse else self._kind(param),
            shape=var.shape,
        )

    def _kind(self, param: str) -> VarType:
        return self.origin_program.global_block().var(param).type

    def _deal(self) -> None:
        blocks = [block for parts in self.param_var_mapping.values() for block in parts]
        dispatcher = self.config.split_method(self.pserver_endpoints)
        dispatcher.reset()
        self._dealt = dict(zip((b.name for b in blocks), dispatcher.dispatch(blocks), strict=True))
        self.param_opt_ep_mapping: dict[str, dict[str, list[Variable]]] = {
            endpoint: {"params": []} for endpoint in self.pserver_endpoints
        }
        for block in blocks:
            endpoint = self._dealt[block.name]
            self.param_opt_ep_mapping[endpoint]["params"].append(block)
            part = self.vars_overview.get_distributed_var_by_slice(block.name)
            assert part is not None
            part.endpoint = endpoint
        self.origin_program._parameters_on_pservers = self.vars_overview
        self.vars_info = {name: self._info(name, parts) for name, parts in self.param_var_mapping.items()}

    def _info(self, name: str, blocks: list[Variable]) -> dict[str, list[str]]:
        return {
            "var_names": [block.name for block in blocks],
            "sections": [str(rows) for rows in sections(blocks)],
            "epmap": endpoints_of(blocks, self._dealt),
            "is_sparse": [str(name in self._sparse)],
        }

    def _get_vars_info(self) -> dict[str, dict[str, list[str]]]:
        return self.vars_info

    @property
    def param_grad_ep_mapping(self) -> dict[str, dict[str, list[Variable]]]:
        """The blocks of parameters by server."""
        return self.param_opt_ep_mapping

    def _write_send(self) -> None:
        """Tell the communicator which rows of sparse tables each step used; lookups remain in the trainer."""
        block = self.origin_program.global_block()
        used: list[tuple[str, str]] = []
        latest: dict[str, str] = {}  # ids of several tables come up again in the backward pass; Fluid lists them twice
        for op in block.ops:
            if not op.has_attr("is_sparse"):
                continue
            if op.type == "lookup_table":
                op._set_attr("remote_prefetch", False)
            for ids, table in zip(op.input("Ids"), op.input("W"), strict=False):
                if table in self._sparse and latest.get(ids) != table:
                    used.append((ids, table))
                    latest[ids] = table
        block.append_op(
            type="send",
            inputs={"X": [block.var(ids) for ids, _ in used]},
            outputs={"Out": self._job.control_var(self.origin_program)},
            attrs={"send_varnames": [table for _, table in used]},
        )

    def _write_startup(self) -> None:
        write_startup(self._job, self.param_var_mapping, self._dealt)
        self.trainer_startup_program = self.startup_program
        block = self.startup_program.global_block()
        for delta in self.delta_vars_list:
            block.create_var(
                name=delta.name, persistable=delta.persistable, dtype=delta.dtype, type=delta.type, shape=delta.shape
            )
        done = self._job.control_var(self.startup_program)
        ready = block.create_var(name="param_init")
        block.append_op(
            type="send", inputs={"X": [ready]}, outputs={"Out": done}, attrs={"send_varnames": [ready.name]}
        )

    def get_trainer_program(self, wait_port: bool = True) -> Program:
        """The trainer's main program; with ``wait_port``, waits until all servers are listening."""
        if wait_port:
            wait_server_ready(self.pserver_endpoints)
        return self.origin_program

    def get_pserver_program(self, endpoint: str) -> Program:
        """The main program of a server: block 0 listens, every other block adds a change to part of a parameter."""
        self._check_endpoint(endpoint)
        program = Program()
        program.random_seed = self.origin_program.random_seed
        program._copy_dist_param_info_from(self.origin_program)
        block = program.global_block()
        params = [self._create_param(program, var) for var in self._params_on(endpoint)]
        sums = [self._write_sum(program, param) for param in params]
        block.append_op(
            type="listen_and_serv",
            inputs={"X": []},
            outputs={},
            attrs={
                "optimize_blocks": [program.block(number) for _, number in sums],
                "endpoint": endpoint,
                "Fanin": self.trainer_num,
                "distributed_mode": self.distributed_mode,
                "grad_to_block_id": [f"{delta.name}:{number}" for delta, number in sums],
                "sparse_grad_to_param": [
                    f"{delta.name}:{param.name}"
                    for param, (delta, _) in zip(params, sums, strict=True)
                    if is_sparse(delta)
                ],
                **self.server_config.attributes(),
            },
        )
        self.pserver_program, self._copies = program, {}
        return program

    def _create_param(self, program: Program, var: Variable) -> Variable:
        return program.global_block().create_var(
            name=var.name, shape=var.shape, dtype=var.dtype, type=var.type, lod_level=var.lod_level, persistable=True
        )

    def _write_sum(self, program: Program, param: Variable) -> tuple[Variable, int]:
        sparse = any(param is block or param.name == block.name for block in self._sparse_blocks())
        delta = program.global_block().create_var(
            name=f"{param.name}.delta",
            persistable=False,
            type=VarType.SELECTED_ROWS if sparse else param.type,
            dtype=param.dtype,
            shape=param.shape,
        )
        block = program._create_block(0)
        block.append_op(type="sum", inputs={"X": [param, delta]}, outputs={"Out": param})
        return delta, block.idx

    def _sparse_blocks(self) -> list[Variable]:
        return [block for name in self._sparse for block in self.param_var_mapping[name]]

    def _params_on(self, endpoint: str) -> list[Variable]:
        return self.param_opt_ep_mapping[endpoint]["params"]


__all__ = ["DistributeTranspilerConfig", "GeoSgdTranspiler"]
