"""The distributed look-up table, of which server k of n holds the rows with id % n == k: the trainer's side."""

from __future__ import annotations

from fluidjax.base.enums import OpRole
from fluidjax.framework import Block, Program, Variable, grad_var_name
from fluidjax.framework.distributed_table import table_lookups
from fluidjax.framework.names import OP_ROLE, OP_ROLE_VAR


class TrainerTable:
    """A trainer's variables for a table: the ids and rows of each server, and their gradients."""

    def __init__(self, main: Program, name: str, suffix: str, servers: int) -> None:
        self.block, self.name, self.servers = main.global_block(), name, servers
        self.lookups = table_lookups(main, name)
        grad = self.block.var(grad_var_name(name))
        self.grads = [
            self.block.create_var(
                name=f"{grad.name}{suffix}.pserver_{number}", type=grad.type, shape=grad.shape, dtype=grad.dtype
            )
            for number in range(servers)
        ]
        self.ids: list[Variable] = []
        self.rows: list[Variable] = []

    def write_prefetch(self, endpoints: list[str]) -> None:
        """Replace all look-ups by a single fetch of rows, preceded by the distribution of ids."""
        ids = [self.block.var(op.input("Ids")[0]) for op in self.lookups]
        outs = [self.block.var(op.output("Out")[0]) for op in self.lookups]
        index = self.lookups[0].idx
        for op in self.lookups:
            self.block._remove_op(op.idx)
        self.ids = self._for_servers("prefetch_compress_in_tmp", ids[0])
        self.rows = self._for_servers("prefetch_compress_out_tmp", outs[0])
        insert = self.block._insert_op
        insert(index, type="split_ids", inputs={"Ids": ids}, outputs={"Out": self.ids})
        insert(
            index + 1, type="prefetch", inputs={"X": self.ids}, outputs={"Out": self.rows}, attrs={"epmap": endpoints}
        )
        insert(
            index + 2, type="merge_ids", inputs={"Ids": ids, "Rows": self.ids, "X": self.rows}, outputs={"Out": outs}
        )

    def _for_servers(self, name: str, like: Variable) -> list[Variable]:
        return [
            self.block.create_var(name=f"{name}_{number}", type=like.type, shape=like.shape, dtype=like.dtype)
            for number in range(self.servers)
        ]

    def write_send(self, endpoints: list[str], trainer_id: int, done: Variable | None) -> None:
        """Distribute the table's gradient where it is computed, and send it."""
        grad = grad_var_name(self.name)
        index = _first_writer(self.block, grad) + 1
        self.block._insert_op(
            index,
            type="split_ids",
            inputs={"Ids": [self.block.var(grad)]},
            outputs={"Out": self.grads},
            attrs={OP_ROLE: OpRole.Dist},
        )
        self.block._insert_op(
            index + 1,
            type="send",
            inputs={"X": self.grads},
            outputs={"Out": [] if done is None else [done]},
            attrs={
                "epmap": endpoints,
                "trainer_id": trainer_id,
                OP_ROLE: OpRole.RPC,
                OP_ROLE_VAR: [self.name, grad],
            },
        )


def _first_writer(block: Block, name: str) -> int:
    return next(i for i, op in enumerate(block.ops) if name in op.output_arg_names)
