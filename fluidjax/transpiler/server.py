"""A server's program: block 0 listens, every other block updates one block of a parameter."""

from __future__ import annotations

from typing import Any

from fluidjax.framework import Block, Operator, Program, Variable
from fluidjax.transpiler import server_table
from fluidjax.transpiler.copies import copy_op, copy_schedule
from fluidjax.transpiler.dc_asgd import check_dense, compensate, create_copies
from fluidjax.transpiler.job import Job, Layout, Shard, is_sparse
from fluidjax.transpiler.roles import is_update, role_vars, schedule_ops
from fluidjax.transpiler.slicing import name_parts, origin_name, same_or_split_var
from fluidjax.transpiler.state import state_shape, state_slots


class ServerWriter:
    """Writes the program of the server at ``endpoint``.

    Attributes:
        program: the program under construction.
        copies: block of a parameter (name) -> the copies that dc_asgd keeps of it, one per trainer.
    """

    def __init__(self, job: Job, layout: Layout, endpoint: str, prefetched: server_table.Prefetched | None) -> None:
        self.job, self.layout, self.endpoint, self.prefetched = job, layout, endpoint, prefetched
        self.shard: Shard = layout.shards[endpoint]
        self.program = Program()
        self.program.random_seed = job.main.random_seed
        self.program._copy_dist_param_info_from(job.main)
        self.vars = self.program.global_block()
        self.copies: dict[str, list[Variable]] = {}
        self.grad_to_block: list[str] = []
        self.sparse_grad_to_param: list[str] = []
        self.update_blocks: list[Block] = []

    def write(self, attrs: dict[str, Any]) -> Program:
        """Write the whole program; ``attrs``: attributes of listen_and_serv that are already known."""
        received = self._create_variables()
        if self.job.config.enable_dc_asgd:
            assert not self.job.sync, "dc_asgd: expected an asynchronous mode, got sync. Pass sync_mode=False."
            self.copies = create_copies(self.vars, self.shard.params, self.job.trainers)
        decay = self._write_schedule()
        parent = self.program.num_blocks - 1
        for op in self.job.optimizing:
            if is_update(op) and self._holds(op.input("Param")[0]):
                self._write_update_block(op, parent)
        if self.prefetched is not None:
            attrs = attrs | self._write_table(parent, self.prefetched)
        if not self.update_blocks:
            self._new_block(self.program.num_blocks - 1)
        self._listen(received, attrs | {"lr_decay_block_id": decay})
        return self.program

    def _new_block(self, parent: int) -> Block:
        self.update_blocks.append(self.program._create_block(parent))
        return self.update_blocks[-1]

    # Variables.

    def _create_variables(self) -> list[Variable]:
        for param in self.shard.params:
            self.vars.create_var(
                name=param.name,
                shape=param.shape,
                dtype=param.dtype,
                type=param.type,
                lod_level=None if is_sparse(param) else param.lod_level,
                persistable=True,
            )
        return [var for grad in self.shard.grads for var in self._create_gradient(grad)]

    def _create_gradient(self, grad: Variable) -> list[Variable]:
        """The variables that receive a gradient; the merged one always exists."""
        name = grad.name.partition(".trainer_")[0]
        settings = {"type": grad.type, "dtype": grad.dtype, "shape": grad.shape}
        merged = self.vars.create_var(name=name, persistable=True, **settings)
        if not self.job.merges:
            return [merged]
        return [
            self.vars.create_var(name=f"{name}.trainer_{number}", persistable=False, **settings)
            for number in range(self.job.trainers)
        ]

    def _holds(self, param: str) -> bool:
        return self._param_block(param) is not None

    def _param_block(self, param: str) -> Variable | None:
        return next((block for block in self.shard.params if same_or_split_var(block.name, param)), None)

    # Blocks.

    def _write_schedule(self) -> int:
        ops = schedule_ops(self.job.main)
        if not ops:
            return -1
        block = self._new_block(self.program.num_blocks - 1)
        copy_schedule(ops, block, self._here)
        return block.idx

    def _write_update_block(self, update: Operator, parent: int) -> None:
        block = self._new_block(parent)
        param = role_vars(update)[0]
        own = [op for op in self.job.optimizing if role_vars(op)[:1] == [param]]
        merged = next(filter(None, (self._write_merge(block, role_vars(op)[1]) for op in own)), None)
        if merged is None:
            return
        schedule = schedule_ops(self.job.main)
        for op in own:
            if is_update(op):
                self._write_update(block, op, merged)
            elif op not in schedule:
                copy_op(op, block, self._here)

    def _write_merge(self, block: Block, grad: str) -> Variable | None:
        """Average what trainers sent for a gradient; None if another server has it."""
        mine = next((g for g in self.shard.grads if origin_name(g.name) == origin_name(grad)), None)
        if mine is None:
            return None
        origin, part, _ = name_parts(mine.name)
        merged = self.vars.var(f"{origin}.{part}" if part else origin)
        self.grad_to_block.append(f"{merged.name}:{block.idx}")
        if self.job.merges:
            count = self.job.trainers
            sent = [self.vars.var(f"{merged.name}.trainer_{number}") for number in range(count)]
            block.append_op(type="sum", inputs={"X": sent}, outputs={"Out": merged}, attrs={"use_mkldnn": False})
            block.append_op(type="scale", inputs={"X": merged}, outputs={"Out": merged}, attrs={"scale": 1.0 / count})
        return merged

    def _write_update(self, block: Block, op: Operator, merged: Variable) -> None:
        param = self._param_block(op.input("Param")[0])
        assert param is not None
        grad = self._gradient(block, op, param, merged)
        inputs: dict[str, Any] = {
            "Grad": grad,
            "Param": self.vars.var(param.name),
            "LearningRate": self._learning_rate(op.input("LearningRate")[0]),
        }
        for slot in state_slots(op):
            inputs[slot] = self._state(op, slot, param)
        outputs = {slot: [self.job.main.global_block().var(n) for n in op.output(slot)] for slot in op.output_names}
        outputs["ParamOut"] = [inputs["Param"]]
        block.append_op(type=op.type, inputs=inputs, outputs=outputs, attrs=op.all_attrs())
        if is_sparse(grad):
            self.sparse_grad_to_param.append(f"{grad.name}:{param.name}")

    def _gradient(self, block: Block, op: Operator, param: Variable, merged: Variable) -> Variable:
        if self.copies:
            check_dense(merged)
            return compensate(block, param, merged, self.copies[param.name])
        name = op.input("Grad")[0]
        # Regularizing a sparse gradient creates a dense one beside it.
        return self.vars.var(name) if "@NEWGRAD@" in name and self.vars.has_var(name) else merged

    def _learning_rate(self, name: str) -> Variable:
        if self.vars.has_var(name):
            return self.vars.var(name)
        rate = self.job.main.global_block().var(name)
        return self.vars.create_var(name=name, persistable=rate.persistable, dtype=rate.dtype, shape=rate.shape)

    def _state(self, op: Operator, slot: str, param: Variable) -> Variable:
        whole = self.job.main.global_block().var(op.input(slot)[0])
        return self.vars.create_var(
            name=whole.name,
            persistable=whole.persistable,
            dtype=whole.dtype,
            shape=state_shape(op, slot, whole.shape, param.shape),
        )

    def _here(self, name: str) -> Variable:
        """What replaces a variable of the main program: this server's block of it, or a variable with its name."""
        origin = origin_name(name)
        if origin in self.job.grad_of or origin in self.job.param_of:
            for var in self.vars.vars.values():
                if origin_name(var.name) == origin and ".trainer_" not in var.name:
                    return var
        if self.vars.has_var(name):
            return self.vars.var(name)
        return self.vars._clone_variable(self.job.main.global_block().var(name))

    def _write_table(self, parent: int, prefetched: server_table.Prefetched) -> dict[str, Any]:
        writer = server_table.TableWriter(self.job, self.program, self.job.endpoints.index(self.endpoint), prefetched)
        block = writer.write_update(self._new_block(parent), self.grad_to_block)
        attrs: dict[str, Any] = {"prefetch_var_name_to_block_id": [writer.write_prefetch(block)]}
        attrs["checkpint_block_id"] = writer.write_save(block)
        self.program._distributed_lookup_table = self.job.table
        return attrs

    def _listen(self, received: list[Variable], attrs: dict[str, Any]) -> None:
        if self.job.config.enable_dc_asgd:
            attrs = attrs | {"dc_asgd": True}
        self.vars.append_op(
            type="listen_and_serv",
            inputs={"X": received},
            outputs={},
            attrs=attrs
            | {
                "optimize_blocks": self.update_blocks,
                "endpoint": self.endpoint,
                "pserver_id": self.job.endpoints.index(self.endpoint),
                "Fanin": self.job.trainers,
                "grad_to_block_id": list(dict.fromkeys(self.grad_to_block)),
                "sparse_grad_to_param": self.sparse_grad_to_param,
            },
        )
