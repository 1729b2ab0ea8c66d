"""Programs for workers that exchange gradients or parameters directly."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

from fluidjax import unique_name
from fluidjax.base.enums import OpRole, VarType
from fluidjax.framework import Block, Operator, Program, Variable, default_main_program, default_startup_program
from fluidjax.framework.names import OP_ROLE, OP_ROLE_VAR
from fluidjax.transpiler.details import wait_server_ready
from fluidjax.transpiler.roles import role_of, role_vars

__all__ = ["GradAllReduce", "LocalSGD"]


class Collective:
    """Base of the collective transpilers: connects the workers, and broadcasts the parameters of the first.

    Args:
        nrings: number of groups of the same workers, used in turn.
    """

    mode = ""

    def __init__(self, nrings: int) -> None:
        self.nrings = nrings
        self.endpoints: list[str] = []
        self.current_endpoint: str | None = None
        self.nranks, self.rank = 0, 0
        self.wait_port = True
        self.op_role_key, self.op_role_var_key = OP_ROLE, OP_ROLE_VAR

    def transpile(
        self,
        startup_program: Program | None,
        main_program: Program | None,
        rank: int,
        endpoints: str | list[str],
        current_endpoint: str,
        wait_port: bool,
    ) -> None:
        """Transform both programs (the default ones by default) in place into those of worker ``rank``.

        Args:
            endpoints: those of all workers, as a list or ``host:port,host:port``.
            current_endpoint: this worker's.
            wait_port: whether worker 0 waits until the others are listening.

        Raises ValueError for a single worker, a negative rank, or an endpoint not in the list.
        """
        self.startup_program = startup_program or default_startup_program()
        self.main_program = main_program or default_main_program()
        self.endpoints = endpoints.split(",") if isinstance(endpoints, str) else endpoints
        self.nranks, self.rank, self.wait_port = len(self.endpoints), rank, wait_port
        self.current_endpoint = current_endpoint
        self._check()
        self.startup_program._origin_program = self.startup_program.clone()
        self._transpile_startup_program()
        self.main_program._origin_program = self.main_program.clone()
        self._transpile_main_program()

    def _check(self) -> None:
        if self.nranks == 1 and self.mode != "single_process_multi_thread":
            raise ValueError("the number of endpoints must > 1, got 1. List the endpoints of all workers.")
        if self.rank < 0:
            raise ValueError(f"rank must >= 0, got {self.rank}. Pass the number of this worker.")
        if self.current_endpoint not in self.endpoints:
            raise ValueError(f"current endpoint {self.current_endpoint} is not in {self.endpoints}. List it.")

    def _transpile_main_program(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} changes no main program. Use GradAllReduce or LocalSGD.")

    # Startup.

    def _transpile_startup_program(self) -> None:
        others = [endpoint for endpoint in self.endpoints if endpoint != self.current_endpoint]
        for ring in range(self.nrings):
            if self.rank == 0 and self.wait_port:
                wait_server_ready(others)
            self._init_communicator(self.startup_program.global_block(), others, ring)
        self._broadcast_params(self.startup_program.global_block())

    def _init_communicator(self, block: Block, others: list[str], ring: int) -> None:
        group = block.create_var(name=unique_name.generate("nccl_id"), persistable=True, type=VarType.RAW)
        own = {"rank": self.rank, "endpoint": self.current_endpoint, "other_endpoints": others}
        block.append_op(type="c_gen_nccl_id", inputs={}, outputs={"Out": group}, attrs={**own, **_role(OpRole.Forward)})
        member = {"nranks": self.nranks, "rank": self.rank, "ring_id": ring, **_role(OpRole.Forward)}
        block.append_op(type="c_comm_init", inputs={"X": group}, outputs={}, attrs=member)

    def _broadcast_params(self, block: Block) -> None:
        params = list(_shared(block))
        for param, ring in zip(params, self._rings()):  # noqa: B905  (rings without end)
            _in_place(block, None, "c_broadcast", param, OpRole.Forward, ring_id=ring, root=0)
        if params:
            self._write_sync(block, None, params[-1], OpRole.Forward)

    # What the main programs share.

    def _rings(self) -> Iterator[int]:
        return cycle(range(self.nrings))

    def _write_sync(self, block: Block, index: int | None, var: Variable, role: OpRole) -> None:
        """Wait for all rings, before position ``index`` or at the end."""
        for ring in range(self.nrings):
            at = None if index is None else index + ring
            _in_place(block, at, "c_sync_comm_stream", var, role, ring_id=ring)


def _role(role: OpRole) -> dict[str, Any]:
    return {OP_ROLE: role}


def _shared(block: Block) -> Iterator[Variable]:
    """The parameters replicated on every worker."""
    return (param for param in block.iter_parameters() if not param.is_distributed)


def _is_split(var: Variable) -> bool:
    return getattr(var, "is_distributed", False)


def _in_place(block: Block, index: int | None, op_type: str, var: Variable, role: OpRole, **attrs: Any) -> Operator:
    """Insert an op that updates a variable in place, before position ``index`` or at the end."""
    op = {"type": op_type, "inputs": {"X": var}, "outputs": {"Out": var}, "attrs": {**attrs, OP_ROLE: role}}
    return block.append_op(**op) if index is None else block._insert_op(index, **op)


class GradAllReduce(Collective):
    """At each step, all workers update with the mean of their gradients."""

    mode = "grad_allreduce"

    def __init__(self, nrings: int = 2) -> None:
        super().__init__(nrings)

    def _transpile_main_program(self) -> None:
        block = self.main_program.global_block()
        self._scale_loss_grad(block)
        last = self._reduce_gradients(block)
        if last is not None:
            updates = (i for i, op in enumerate(block.ops) if role_of(op) & OpRole.Optimize)
            index = next(updates, None)
            if index is not None:
                self._write_sync(block, index, last, OpRole.Backward)

    def _scale_loss_grad(self, block: Block) -> None:
        begins = OpRole.Backward | OpRole.Loss
        for index, op in reversed(list(enumerate(block.ops))):
            if role_of(op) & begins == begins:
                grad = block.var(op.output_arg_names[0])
                _in_place(block, index + 1, "scale", grad, OpRole.Backward, scale=1.0 / self.nranks)

    def _reduce_gradients(self, block: Block) -> Variable | None:
        """Reduce gradients where they are computed, from the last op to the first; returns the last gradient."""
        rings, last = self._rings(), None
        for index, op in reversed(list(enumerate(block.ops))):
            names = role_vars(op) if role_of(op) & OpRole.Backward else []
            pairs = list(zip(names[::2], names[1::2], strict=True))
            if pairs:
                last = block.var(pairs[-1][1])
            grads = [block.var(grad) for param, grad in pairs if not _is_split(block.var(param))]
            for number, grad in enumerate(grads):
                if number == 0:
                    _in_place(block, index + 1, "c_sync_calc_stream", grad, OpRole.Backward)
                _in_place(block, index + 2, "c_allreduce_sum", grad, OpRole.Backward, ring_id=next(rings))
        return last


class LocalSGD(Collective):
    """Workers update with their own gradients, and average their parameters after each step."""

    snapshot_key = "@SNAPSHOT"
    mode = "local_sgd"

    def __init__(self, nrings: int = 2) -> None:
        super().__init__(nrings)

    def snapshot_name(self, param_name: str) -> str:
        """The name of the variable that holds a parameter's last average."""
        return param_name + self.snapshot_key

    def _snapshot(self, block: Block, param: Variable) -> Variable:
        name = self.snapshot_name(param.name)
        return block.create_var(name=name, shape=param.shape, persistable=True, stop_gradient=True)

    def _transpile_startup_program(self) -> None:
        super()._transpile_startup_program()
        block = self.startup_program.global_block()
        for param in list(_shared(block)):
            _binary(block, None, "assign", OpRole.Forward, self._snapshot(block, param), X=param)

    def _transpile_main_program(self) -> None:
        block, rings = self.main_program.global_block(), self._rings()
        moved: list[tuple[Variable, Variable]] = []
        for index, op in reversed(list(enumerate(block.ops))):
            if not {"Param", "Grad"} <= set(op.input_names):
                continue
            param = block.var(op.input("Param")[0])
            if _is_split(param):
                continue
            snapshot = self._snapshot(block, param)
            _binary(block, index + 1, "elementwise_sub", OpRole.Optimize, param, X=snapshot, Y=param)
            _in_place(block, index + 2, "c_sync_calc_stream", param, OpRole.Optimize)
            _in_place(block, index + 3, "c_allreduce_sum", param, OpRole.Optimize, ring_id=next(rings))
            moved.append((param, snapshot))
        if moved:
            self._write_sync(block, None, moved[-1][0], OpRole.Optimize)
        for param, snapshot in reversed(moved):
            _in_place(block, None, "scale", param, OpRole.Optimize, scale=1.0 / self.nranks)
            _binary(block, None, "elementwise_sub", OpRole.Optimize, param, X=snapshot, Y=param)
            _binary(block, None, "assign", OpRole.Optimize, snapshot, X=param)


def _binary(block: Block, index: int | None, op_type: str, role: OpRole, out: Variable, **inputs: Variable) -> None:
    op = {"type": op_type, "inputs": inputs, "outputs": {"Out": [out]}, "attrs": _role(role)}
    if index is None:
        block.append_op(**op)
    else:
        block._insert_op(index, **op)


class SingleProcessMultiThread(GradAllReduce):
    """As GradAllReduce, for the devices of a single process."""

    mode = "single_process_multi_thread"

    def __init__(self) -> None:
        super().__init__(1)

    def _transpile_startup_program(self) -> None:
        self.startup_program.global_block().append_op(type="c_comm_init_all", attrs={"ring_id": 0})
