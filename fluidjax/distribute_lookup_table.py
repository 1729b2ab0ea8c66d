"""Finds the embedding table with ``is_distributed=True``, of which a program may have one."""

from __future__ import annotations

from fluidjax.framework import Program, Variable
from fluidjax.framework.distributed_table import find_distributed_lookup_table, table_lookups

LOOKUP_TABLE_TYPE = "lookup_table"

__all__ = [
    "find_distributed_lookup_table",
    "find_distributed_lookup_table_inputs",
    "find_distributed_lookup_table_outputs",
]


def find_distributed_lookup_table_inputs(program: Program, table_name: str) -> list[Variable]:
    """The ids looked up in a table."""
    return _variables(program, [name for op in table_lookups(program, table_name) for name in op.input("Ids")])


def find_distributed_lookup_table_outputs(program: Program, table_name: str) -> list[Variable]:
    """The rows looked up in a table."""
    return _variables(program, [name for op in table_lookups(program, table_name) for name in op.output("Out")])


def _variables(program: Program, names: list[str]) -> list[Variable]:
    return [program.current_block().vars[name] for name in names]
