"""Learning rates: servers compute them and count the steps."""

from __future__ import annotations

from fluidjax.base.enums import OpRole
from fluidjax.framework import Operator, Program, Variable
from fluidjax.framework.names import OP_ROLE
from fluidjax.initializer import Constant
from fluidjax.transpiler.job import Job
from fluidjax.transpiler.roles import schedule_ops


def count_by_trainers(job: Job) -> Variable | None:
    """Count one step per update requested by any trainer; returns what this trainer adds, or None.

    Asynchronous modes have no common rounds to count, so the op that increments the counter becomes a sum
    over the trainers' ones; the counter starts at minus the number of trainers.
    """
    own = None
    for op in schedule_ops(job.main):
        if op.type == "increment":
            own = dict(enumerate(_sum_instead(job, op))).get(job.trainer_id)  # of a server, its own number
    return own


def _sum_instead(job: Job, op: Operator) -> list[Variable]:
    block = job.main.global_block()
    counter = block.var(op.output("Out")[0])
    ones = [_one(job, counter, number) for number in range(job.trainers)]
    _begin_at(job.startup, counter.name, -float(job.trainers))
    index = op.idx
    block._remove_op(index)
    block._insert_op(index, type="sum", inputs={"X": ones}, outputs={"Out": counter}, attrs={OP_ROLE: OpRole.LRSched})
    return ones


def _one(job: Job, counter: Variable, number: int) -> Variable:
    settings = {
        "name": f"{counter.name}.trainer_{number}",
        "type": counter.type,
        "shape": counter.shape,
        "dtype": counter.dtype,
        "persistable": counter.persistable,
    }
    job.startup.global_block().create_var(**settings, initializer=Constant(1))
    return job.main.global_block().create_var(**settings)


def _begin_at(startup: Program, name: str, value: float) -> None:
    for op in startup.global_block().ops:
        if op.type == "fill_constant" and op.output("Out") == [name]:
            op._set_attr("value", value)
