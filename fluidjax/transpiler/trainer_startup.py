"""The trainer's startup program: parameters come from the servers; what only servers need is removed."""

from __future__ import annotations

from collections.abc import Collection

from fluidjax.base.errors import explain
from fluidjax.framework import Block, Operator, Program, Variable
from fluidjax.transpiler.details import delete_ops
from fluidjax.transpiler.job import Job, endpoints_of, rpc
from fluidjax.transpiler.roles import role_vars, schedule_ops

_SPARSE = ("lookup_table", "nce")


def write_startup(job: Job, params: dict[str, list[Variable]], dealt: dict[str, str]) -> None:
    """Receive what servers hold, as blocks to be joined, except tables, of which trainers hold no rows."""
    block = job.startup.global_block()
    tables = sparse_tables(job, params)
    dense = {name: blocks for name, blocks in params.items() if name not in tables}
    for blocks in dense.values():
        block.append_op(
            type="recv",
            inputs={"X": []},
            outputs={"Out": [_block_var(block, var) for var in blocks]},
            attrs=rpc(epmap=endpoints_of(blocks, dealt), trainer_id=job.trainer_id),
        )
    block.append_op(
        type="fetch_barrier",
        inputs={},
        outputs={"Out": job.control_var(job.startup)},
        attrs=rpc(endpoints=job.endpoints, trainer_id=job.trainer_id),
    )
    for name, blocks in dense.items():
        if len(blocks) > 1:
            whole = _whole(block, job.main.global_block().var(name))
            block.append_op(type="concat", inputs={"X": blocks}, outputs={"Out": [whole]}, attrs={"axis": 0})


def _block_var(block: Block, var: Variable) -> Variable:
    if block.has_var(var.name):
        return block.var(var.name)
    return block.create_var(
        name=var.name,
        persistable=False,
        type=var.type,
        dtype=var.dtype,
        shape=var.shape,
        lod_level=var.lod_level,
    )


def _whole(block: Block, var: Variable) -> Variable:
    if block.has_var(var.name):
        return block.var(var.name)
    return block.create_var(name=var.name, persistable=var.persistable, type=var.type, dtype=var.dtype, shape=var.shape)


def sparse_tables(job: Job, held: Collection[str]) -> list[str]:
    """The parameters of which trainers only see rows; ``held``: those that servers hold, except the table."""
    found = [job.table] if job.table else []
    for op in job.main.global_block().ops:
        sparse = op.type in _SPARSE and op.has_attr("is_sparse") and op.attr("is_sparse")
        if sparse or op.type == "distributed_lookup_table":
            found.append(_table(op))
    return [name for name in dict.fromkeys(found) if name in held or name == job.table]


def _table(op: Operator) -> str:
    return op.input("Weight" if op.type == "nce" else "W")[0]


def strip_trainer(job: Job, held: Collection[str]) -> None:
    """Remove the optimizer, its state and the learning rate from the trainer's programs."""
    needless = _only_for_updates(job)
    startup = job.startup.global_block()
    delete_ops(startup, [op for op in startup.ops if needless & set(op.output_arg_names)])
    _drop(job.startup, needless)
    for table in sparse_tables(job, held):
        _fake_init(job.startup, table)
    delete_ops(job.main.global_block(), [*schedule_ops(job.main), *job.optimizing])
    _drop(job.main, needless)


def _only_for_updates(job: Job) -> set[str]:
    """What optimizing ops read, other than parameters and gradients."""
    read = {name for op in job.optimizing for name in op.input_arg_names}
    return read - {name for op in job.optimizing for name in role_vars(op)}


def _drop(program: Program, names: set[str]) -> None:
    block = program.global_block()
    for name in names:
        if block.has_var(name):
            block._remove_var(name)


def _fake_init(startup: Program, table: str) -> None:
    """A table on a trainer has a shape and no rows."""
    block = startup.global_block()
    makers = [op for op in block.ops if table in op.output_arg_names]
    if len(makers) != 1:
        raise ValueError(
            explain(
                f"table {table} is initialised by {len(makers)} ops of the startup program",
                "one",
                f"{[op.type for op in makers]}",
                "give the embedding's parameter a name of its own",
            )
        )
    shape = makers[0].attr("shape")
    block.append_op(type="fake_init", inputs={}, outputs={"Out": block.vars[table]}, attrs={"shape": shape})
    delete_ops(block, makers)
