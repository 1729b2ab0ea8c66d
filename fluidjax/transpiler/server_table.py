"""The distributed look-up table on a server: blocks that update it, look up rows and save it."""

from __future__ import annotations

import logging
import math
from typing import NamedTuple

from fluidjax.base.enums import VarType
from fluidjax.framework import Block, Program, Variable, grad_var_name
from fluidjax.transpiler.job import Job

_log = logging.getLogger(__name__)


class Prefetched(NamedTuple):
    """The trainer's variables for each server: requested ids, received rows, gradients to send."""

    ids: list[Variable]
    rows: list[Variable]
    grads: list[Variable]


class TableWriter:
    """Writes the blocks of server ``number``."""

    def __init__(self, job: Job, program: Program, number: int, prefetched: Prefetched) -> None:
        assert job.table is not None
        self.job, self.program, self.number, self.prefetched = job, program, number, prefetched
        self.vars, self.name = program.global_block(), job.table

    def write_update(self, block: Block, grad_to_block: list[str]) -> Block:
        """Update by the sum of what trainers sent; always by plain SGD, regardless of the optimizer."""
        update = next(op for op in self.job.optimizing if op.input("Param") == [self.name])
        table = self._create_table()
        grad = self._write_merge(block)
        main = self.job.main.global_block()
        rate = self.vars._clone_variable(main.var(update.input("LearningRate")[0]))
        if update.type != "sgd":
            _log.warning("table %s: distributed tables are updated by sgd, instead of %s", self.name, update.type)
        block.append_op(
            type="sgd",
            inputs={"Param": [table], "Grad": [grad], "LearningRate": [rate]},
            outputs={"ParamOut": [table]},
        )
        grad_to_block.append(f"{grad.name}:{block.idx}")
        return block

    def _create_table(self) -> Variable:
        whole = self.job.main.global_block().var(self.name)
        rows = math.ceil(whole.shape[0] / len(self.job.endpoints))
        return self.vars.create_var(
            name=self.name,
            shape=[rows, *whole.shape[1:]],
            dtype=whole.dtype,
            type=VarType.SELECTED_ROWS,
            persistable=True,
        )

    def _write_merge(self, block: Block) -> Variable:
        grad = self.job.main.global_block().var(grad_var_name(self.name))
        merged = self.vars._clone_variable(grad)
        if not self.job.sync:
            return self.vars._rename_var(merged.name, self.prefetched.grads[self.number].name)
        sent = [
            self.vars.create_var(
                name=f"{grad.name}.trainer_{trainer}.pserver_{self.number}",
                type=grad.type,
                shape=grad.shape,
                dtype=grad.dtype,
            )
            for trainer in range(self.job.trainers)
        ]
        block.append_op(type="sum", inputs={"X": sent}, outputs={"Out": [merged]}, attrs={"use_mkldnn": False})
        return merged

    def write_prefetch(self, parent: Block) -> str:
        """Look up the requested rows; returns the name of the ids, and the number of the block that they start."""
        block = self.program._create_block(parent.idx)
        ids, rows = (
            self.vars.create_var(name=var.name, type=var.type, shape=var.shape, dtype=var.dtype)
            for var in (self.prefetched.ids[self.number], self.prefetched.rows[self.number])
        )
        block.append_op(
            type="lookup_sparse_table",
            inputs={"Ids": ids, "W": self.vars.var(self.name)},
            outputs={"Out": rows},
            attrs={"padding_idx": -1},
        )
        return f"{ids.name}:{block.idx}"

    def write_save(self, parent: Block) -> int:
        """Save the table to a file named in the notification; returns the number of the block."""
        self.vars.create_var(name="kLookupTablePath", persistable=True, type=VarType.RAW)
        block = self.program._create_block(parent.idx)
        block.append_op(type="save", inputs={"X": [self.name]}, outputs={}, attrs={"file_path": "none"})
        return block.idx
