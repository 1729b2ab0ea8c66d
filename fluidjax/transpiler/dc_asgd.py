"""Delay compensation (DC-ASGD): late gradients are corrected by how far parameters have moved since."""

from __future__ import annotations

from fluidjax import unique_name
from fluidjax.base.enums import VarType
from fluidjax.base.errors import explain
from fluidjax.framework import Block, Variable


def create_copies(block: Block, params: list[Variable], trainers: int) -> dict[str, list[Variable]]:
    """For each parameter, a variable per trainer for its value when that trainer fetched it."""
    return {
        param.name: [
            block.create_var(
                name=f"{param.name}.trainer_{number}_bak", type=param.type, shape=param.shape, dtype=param.dtype
            )
            for number in range(trainers)
        ]
        for param in params
    }


def check_dense(grad: Variable) -> None:
    """Raise ValueError for a sparse gradient."""
    if grad.type == VarType.SELECTED_ROWS:
        raise ValueError(
            explain(
                f"dc_asgd cannot correct {grad.name}",
                "dense gradients",
                "the sparse gradient of an embedding",
                "set enable_dc_asgd=False, or is_sparse=False in the embedding",
            )
        )


def compensate(block: Block, param: Variable, grad: Variable, copies: list[Variable]) -> Variable:
    """Write g + (w - copy of w) g g into a block; returns the variable of the result."""
    settings = {"shape": param.shape, "type": param.type, "dtype": param.dtype, "persistable": False}
    copy = block.create_var(name=f"{param.name}.local_bak", **settings)
    trainer = block.create_var(
        name="@TRAINER_ID@", type=VarType.LOD_TENSOR, dtype=VarType.INT64, shape=[1], persistable=False
    )
    block.append_op(type="ref_by_trainer_id", inputs={"X": copies, "TrainerId": trainer}, outputs={"Out": copy})

    def write(op_type: str, x: Variable, y: Variable) -> Variable:
        out = block.create_var(name=unique_name.generate("tmp_dc_output"), **settings)
        block.append_op(type=op_type, inputs={"X": x, "Y": y}, outputs={"Out": out})
        return out

    moved = write("elementwise_sub", param, copy)
    once = write("elementwise_mul", moved, grad)
    twice = write("elementwise_mul", once, grad)
    return write("elementwise_add", grad, twice)
