"""Look-ups of sparse parameters: one op per table requests the rows from the servers, and each nce its own."""

from __future__ import annotations

from collections.abc import Iterator

from fluidjax.framework import Block, Operator
from fluidjax.transpiler.details import delete_ops, find_op_by_output_arg
from fluidjax.transpiler.job import Job, Layout, endpoints_of

_TABLES = ("lookup_table", "lookup_table_v2")


def replace_lookups(job: Job, layout: Layout, dealt: dict[str, str]) -> None:
    """Replace the look-ups of each sparse parameter by a distributed_lookup_table, and tell each nce its servers.

    Look-ups of one parameter become one op, placed after the last of their ids is computed, unless something in between
    needs the rows of an earlier one; in that case they are requested one after another.
    """
    lookups = job.remote_lookups
    for param in filter(layout.sparse_sections.__contains__, layout.params):
        blocks = layout.params[param]
        attrs = {
            "table_names": [block.name for block in blocks],
            "height_sections": layout.sparse_sections[param],
            "endpoints": endpoints_of(blocks, dealt),
            "trainer_id": job.trainer_id,
        }
        own = [op for op in lookups if param in op.input_arg_names]
        tables = [op for op in own if op.type in _TABLES]
        if tables:
            for group in _groups(job.main.global_block(), [op for op in tables if op.type == tables[0].type]):
                _merge(job.main.global_block(), group, attrs)
        for op in own:
            if op.type == "nce":
                _point_to_servers(op, attrs)


def _point_to_servers(op: Operator, attrs: dict) -> None:
    op._set_attr("epmap", attrs["endpoints"])
    for name in ("table_names", "height_sections", "trainer_id"):
        op._set_attr(name, attrs[name])


def _groups(block: Block, lookups: list[Operator]) -> Iterator[list[Operator]]:
    """Runs of look-ups whose ids are all available before anything reads their results."""
    group: list[Operator] = []
    for op in lookups:
        if group and _ready(block, op) > min(_first_use(block, earlier) for earlier in group):
            yield group
            group = []
        group.append(op)
    yield group


def _ready(block: Block, op: Operator) -> int:
    """The first index at which the ids of a look-up are available."""
    return find_op_by_output_arg(block, op.input("Ids")[0], reverse=True) + 1


def _first_use(block: Block, op: Operator) -> int:
    out = op.output("Out")[0]
    return next((i for i, other in enumerate(block.ops) if out in other.input_arg_names), len(block.ops))


def _merge(block: Block, group: list[Operator], attrs: dict) -> None:
    first = group[0]
    settings = {"padding_idx": first.attr("padding_idx"), "lookup_table_version": first.type, **attrs}
    ids = [op.input("Ids")[0] for op in group]
    outs = [op.output("Out")[0] for op in group]
    table = first.input("W")[0]
    delete_ops(block, group)
    index = max(find_op_by_output_arg(block, name, reverse=True) for name in ids) + 1
    block._insert_op(
        index,
        type="distributed_lookup_table",
        inputs={"Ids": [block.vars[name] for name in ids], "W": block.vars[table]},
        outputs={"Outputs": [block.vars[name] for name in outs]},
        attrs=settings,
    )
