"""A ``while`` op that is to be run: its body, its condition, what it writes and what its gradient needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lowering.dtypes import LOD_TENSOR_ARRAY
from lowering.engine.context import Context
from lowering.engine.run import Run
from lowering.errors import LoweringError
from lowering.loops.save_plan import SavePlan, gradient_blocks, outer_writes, save_plan
from lowering.program import BlockView
from lowering.values import TensorArray

Env = dict[str, Any]


@dataclass
class Loop:
    """One while op to be run.

    Attributes:
        written: outer names that the body writes.
        plan: what its gradient needs of each step; None if there is none.
        initial: the written names that have a value before the loop: the first carry.
    """

    ctx: Context
    body: BlockView
    cond: str
    written: list[str]
    plan: SavePlan | None
    initial: Env = field(default_factory=dict)

    @property
    def runner(self) -> Run:
        """The runner that traces the loop."""
        return self.ctx.runner

    @property
    def scopes(self) -> str | None:
        """The variable that keeps the loop's residuals (StepScopes); None if the op binds none."""
        names = self.ctx.op.outputs.get("StepScopes") or ()
        return names[0] if names else None

    @property
    def key(self) -> str:
        """The name under which the executor keeps the capacity of this loop."""
        return f"loop/{self.scopes or self.cond}"


def make_loop(ctx: Context) -> Loop:
    """The loop for op ``while``; LoweringError if its body never writes the condition."""
    op, program = ctx.op, ctx.runner.program
    body = program.blocks[int(op.attrs["sub_block"])]
    cond = op.inputs["Condition"][0]
    written = outer_writes(body)
    if cond not in written:
        raise LoweringError(
            f"{op.label}: block {body.idx} never writes the condition {cond!r}, so"
            f" the loop cannot end; compare again inside the block, with cond={cond}"
        )
    tensors = [n for n in written if not _is_array(ctx, n)]
    plan = save_plan(program, body, gradient_blocks(program, op, "StepScopes", "while_grad"), tensors)
    return Loop(ctx, body, cond, written, plan)


def _is_array(ctx: Context, name: str) -> bool:
    var = ctx.runner.program.find_var(ctx.op.block_idx, name)
    return isinstance(ctx.env.get(name), TensorArray) or (var is not None and var.type == LOD_TENSOR_ARRAY)
