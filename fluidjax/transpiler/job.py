"""What both sides of a parameter server job know: its members, and the placement of blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fluidjax.base.enums import OpRole, VarType
from fluidjax.framework import Operator, Parameter, Program, Variable
from fluidjax.framework import generate_control_dev_var_name as control_name
from fluidjax.framework.distributed_table import find_distributed_lookup_table
from fluidjax.framework.names import OP_ROLE
from fluidjax.transpiler.config import DistributeTranspilerConfig
from fluidjax.transpiler.details import VarsDistributed
from fluidjax.transpiler.roles import optimizing_ops, params_and_grads
from fluidjax.transpiler.slicing import create_blocks, place_of, slice_variable

_REMOTE = ("lookup_table", "lookup_table_v2", "nce")


@dataclass
class Shard:
    """The blocks of parameters, and of their gradients, that one server holds, in the order they were assigned."""

    params: list[Variable] = field(default_factory=list)
    grads: list[Variable] = field(default_factory=list)


class Job:
    """A job as described to transpile().

    Attributes:
        main, startup: the programs, which are turned into those of this trainer in place.
        config: the transpiler's configuration.
        trainer_id, trainers: the index of this trainer, and the number of trainers.
        endpoints: the servers.
        sync: whether servers wait for all trainers.
        optimizing: the ops that regularize and update.
        params_grads: each parameter with its gradient.
        param_of, grad_of: each other's names.
        table: the name of the distributed look-up table, or None.
    """

    def __init__(
        self,
        main: Program,
        startup: Program,
        config: DistributeTranspilerConfig,
        trainer_id: int,
        trainers: int,
        endpoints: list[str],
        sync: bool,
    ) -> None:
        self.main, self.startup, self.config = main, startup, config
        self.trainer_id, self.trainers, self.endpoints, self.sync = trainer_id, trainers, endpoints, sync
        self.optimizing: list[Operator] = optimizing_ops(main)
        self.params_grads = params_and_grads(main, self.optimizing)
        self.grad_of = {param.name: grad.name for param, grad in self.params_grads}
        self.param_of = {grad.name: param.name for param, grad in self.params_grads}
        self.table = find_distributed_lookup_table(main)

    @property
    def suffix(self) -> str:
        """What is appended to the names of gradients: each trainer has its own where servers merge them."""
        return f".trainer_{self.trainer_id}" if self.sync and self.trainers > 1 else ""

    @property
    def merges(self) -> bool:
        """Whether servers average the gradients of all trainers before updating."""
        return self.sync or (self.config.completely_not_async and self.trainers > 1)

    @property
    def learned(self) -> tuple[list[Variable], list[Variable]]:
        """The trained parameters without repetition, and their gradients."""
        params: dict[str, Variable] = {}
        grads: dict[str, Variable] = {}
        for param, grad in self.params_grads:
            if type(param) is Parameter and not param.trainable:
                continue
            params.setdefault(param.name, param)
            if grad.name not in params:
                grads.setdefault(grad.name, grad)
        return list(params.values()), list(grads.values())

    def looked_up_remotely(self, param: str) -> bool:
        """Whether trainers fetch rows of a parameter instead of all of it."""
        return any(param in op.input_arg_names for op in self.remote_lookups)

    @property
    def remote_lookups(self) -> list[Operator]:
        """The ops that read rows of parameters held only by servers."""
        ops = self.main.global_block().ops
        return [
            op for op in ops if op.type in _REMOTE and op.has_attr("remote_prefetch") and op.attr("remote_prefetch")
        ]

    def control_var(self, program: Program) -> Variable:
        """A variable without a value that orders ops."""
        return program.global_block().create_var(name=control_name())


class Layout:
    """The blocks into which parameters and gradients are split, and the server of each.

    Attributes:
        params, grads: the blocks by the names of the whole variables.
        param_of_block: block of a gradient (name) -> block of its parameter.
        shards: endpoint -> Shard.
        overview: the same information in Fluid's form, for checkpoints.
        sparse_sections: for parameters looked up remotely, the rows of each block.
    """

    def __init__(self, job: Job) -> None:
        config, main = job.config, job.main
        count = len(job.endpoints) if config.slice_var_up else 1
        params, grads = (
            [var for var in learned if var.name not in (job.table, job.grad_of.get(job.table or ""))]
            for learned in job.learned
        )
        param_texts = slice_variable(params, count, config.min_block_size)
        grad_texts = slice_variable(grads, count, config.min_block_size)
        assert len(param_texts) == len(grad_texts), (
            f"{len(param_texts)} blocks of parameters, {len(grad_texts)} of gradients: expected one gradient of the"
            " shape of each parameter. Do not change shapes between backward and update."
        )
        self.params = create_blocks(main, param_texts)
        self.overview = overview_of(main, self.params)
        self.grads = create_blocks(main, grad_texts, job.suffix)
        flat = zip(_flat(self.grads), _flat(self.params), strict=True)
        self.param_of_block = {grad.name: param for grad, param in flat}
        self.shards = {endpoint: Shard() for endpoint in job.endpoints}
        self.sparse_sections: dict[str, list[int]] = {}


def _flat(blocks: dict[str, list[Variable]]) -> list[Variable]:
    return [block for parts in blocks.values() for block in parts]


def overview_of(main: Program, params: dict[str, list[Variable]]) -> VarsDistributed:
    """The blocks of parameters in Fluid's form for checkpoints; servers are not known yet."""
    overview = VarsDistributed()
    for name, blocks in params.items():
        whole = main.global_block().var(name)
        for block in blocks:
            is_slice, number, offset = place_of(block, blocks)
            overview.add_distributed_var(
                origin_var=whole, slice_var=block, is_slice=is_slice, block_id=number, offset=offset, vtype="Param"
            )
    return overview


def is_sparse(var: Variable) -> bool:
    """Whether a variable holds SelectedRows."""
    return var.type == VarType.SELECTED_ROWS


def endpoints_of(blocks: list[Variable], dealt: dict[str, str]) -> list[str]:
    """The server of each block."""
    return [dealt[block.name] for block in blocks]


def rpc(**attrs: Any) -> dict[str, Any]:
    """Attributes of an op that communicates with servers."""
    return {**attrs, OP_ROLE: OpRole.RPC}
