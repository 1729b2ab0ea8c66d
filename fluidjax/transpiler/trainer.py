"""The trainer's main program: gradients are sent where they are computed, parameters received at the end."""

from __future__ import annotations

import numpy as np

from fluidjax.base.enums import OpRole
from fluidjax.framework import Variable
from fluidjax.framework.names import OP_ROLE, OP_ROLE_VAR
from fluidjax.transpiler.details import find_op_by_output_arg
from fluidjax.transpiler.job import Job, Layout, endpoints_of, is_sparse, rpc
from fluidjax.transpiler.ps_dispatcher import PSDispatcher
from fluidjax.transpiler.remote_lookup import replace_lookups
from fluidjax.transpiler.slicing import sections


class TrainerWriter:
    """Writes sends and receives into the main program of a job.

    Attributes:
        sent: control variables of the sends, by the gradients' names.
        dealt: the server of each block of a parameter, by its name.
    """

    def __init__(self, job: Job, layout: Layout, dispatcher: PSDispatcher) -> None:
        self.job, self.layout, self.dispatcher = job, layout, dispatcher
        self.block = job.main.global_block()
        self.at_runtime = job.config.runtime_split_send_recv
        self.sent: dict[str, Variable] = {}
        self.dealt: dict[str, str] = {}

    def write(self, counter: Variable | None) -> None:
        """Write the whole program; ``counter``: what the trainer adds to the servers' step counter, if anything."""
        self._write_sends()
        barrier = self.job.control_var(self.job.main)
        if self.job.table:
            self.sent[self.job.table] = self.job.control_var(self.job.main)
        self._write_send_barrier(barrier, [*self.sent.values(), *self._write_counter(counter)])
        received = self._write_receives(barrier)
        replace_lookups(self.job, self.layout, self.dealt)
        if self.job.sync:
            self.block.append_op(
                type="fetch_barrier", inputs={"X": [barrier]}, outputs={"Out": received}, attrs=self._to_all()
            )
        if not self.at_runtime:
            self._write_concats()

    def _to_all(self) -> dict:
        return rpc(endpoints=self.job.endpoints, trainer_id=self.job.trainer_id)

    # Gradients.

    def _write_sends(self) -> None:
        items = list(self.layout.grads.items())
        if not self.job.config.slice_var_up:
            # Distributes large and small blocks evenly; each role of a job must draw the same order, which is Fluid's.
            np.random.seed(self.job.main.random_seed)
            np.random.shuffle(items)  # type: ignore[arg-type]  # any list will do
        self.dispatcher.reset()
        for grad, blocks in items:
            self._write_send(grad, blocks, self._deal(blocks))

    def _write_send(self, grad: str, blocks: list[Variable], endpoints: list[str]) -> None:
        param = self.job.param_of[grad]
        name = blocks[0].name if len(blocks) == 1 else grad
        index = find_op_by_output_arg(self.block, name, reverse=True)
        if is_sparse(blocks[0]) and self.job.looked_up_remotely(param):
            self.layout.sparse_sections[param] = sections(blocks)
        if len(blocks) > 1 and not self.at_runtime:
            self._write_split(index + 1, self.block.vars[grad], blocks)
            index += 1
        self.sent[grad] = self.job.control_var(self.job.main)
        self.block._insert_op(
            index + 1,
            type="send",
            inputs={"X": [self.block.vars[name]] if self.at_runtime else blocks},
            outputs={"Out": self.sent[grad]},
            attrs=rpc(
                epmap=endpoints,
                sections=sections(blocks) if self.at_runtime else [],
                send_varnames=self._sent_names(blocks) if self.at_runtime else [],
                **{OP_ROLE_VAR: [param, name]},
            ),
        )

    def _sent_names(self, blocks: list[Variable]) -> list[str]:
        job = self.job
        own = f".trainer_{job.trainer_id}" if job.config.completely_not_async and job.trainers > 1 else ""
        return [block.name + own for block in blocks]

    def _write_split(self, index: int, grad: Variable, blocks: list[Variable]) -> None:
        op, key = ("split_selected_rows", "height_sections") if is_sparse(grad) else ("split_byref", "sections")
        self.block._insert_op(
            index,
            type=op,
            inputs={"X": grad},
            outputs={"Out": blocks},
            attrs={key: sections(blocks), OP_ROLE: OpRole.Dist},
        )

    def _write_counter(self, counter: Variable | None) -> list[Variable]:
        if counter is None:
            return []
        done = self.job.control_var(self.job.main)
        self.block.append_op(
            type="send",
            inputs={"X": counter},
            outputs={"Out": done},
            attrs=rpc(
                epmap=self.job.endpoints,
                sections=[],
                send_varnames=[counter.name] if self.at_runtime else [],
                merge_add=True,
                use_send_handler=False,
                **{OP_ROLE_VAR: [counter.name, counter.name]},
            ),
        )
        return [done]

    def _write_send_barrier(self, barrier: Variable, sent: list[Variable]) -> None:
        half = self.at_runtime and self.job.config.half_async
        if self.job.sync or half:
            attrs = {**self._to_all(), "half_async": not self.job.sync}
            self.block.append_op(type="send_barrier", inputs={"X": sent}, outputs={"Out": barrier}, attrs=attrs)

    # Parameters.

    def _deal(self, grads: list[Variable]) -> list[str]:
        """Choose a server for each block, by the parameter's block, whose name is the same for all trainers."""
        params = [self.layout.param_of_block[grad.name] for grad in grads]
        endpoints = self.dispatcher.dispatch(params)
        for param, grad, endpoint in zip(params, grads, endpoints, strict=True):
            shard = self.layout.shards[endpoint]
            shard.params.append(param)
            shard.grads.append(grad)
            self.dealt[param.name] = endpoint
            part = self.layout.overview.get_distributed_var_by_slice(param.name)
            assert part is not None
            part.endpoint = endpoint
        return endpoints

    def _write_receives(self, barrier: Variable) -> list[Variable]:
        received: list[Variable] = []
        for param, blocks in self.layout.params.items():
            if param in self.layout.sparse_sections:
                self._mark_remote(blocks)
            else:
                received += self._write_receive(param, blocks, barrier)
        return received

    def _mark_remote(self, blocks: list[Variable]) -> None:
        for block in blocks:
            part = self.layout.overview.get_distributed_var_by_slice(block.name)
            assert part is not None
            part.vtype = "RemotePrefetch"

    def _write_receive(self, param: str, blocks: list[Variable], barrier: Variable) -> list[Variable]:
        grad = self.job.grad_of[param]
        grads = self.layout.grads[grad]
        into = [self.block.vars[param]] if self.at_runtime else blocks
        self.block.append_op(
            type="recv",
            inputs={"X": [barrier if self.job.sync else self.sent[grad]]},
            outputs={"Out": into},
            attrs=rpc(
                epmap=endpoints_of(blocks, self.dealt),
                recv_varnames=[block.name for block in blocks] if self.at_runtime else [],
                trainer_id=self.job.trainer_id,
                **{OP_ROLE_VAR: [param, grads[0].name if len(grads) == 1 else grad]},
            ),
        )
        return into

    def _write_concats(self) -> None:
        for param, blocks in self.layout.params.items():
            if len(blocks) > 1 and param not in self.layout.sparse_sections:
                self.block.append_op(
                    type="concat",
                    inputs={"X": blocks},
                    outputs={"Out": [self.block.vars[param]]},
                    attrs={"axis": 0, OP_ROLE: OpRole.Dist},
                )
