"""Tables with ``is_distributed=True``: servers share one of a program; devices of one process share all."""

from __future__ import annotations

import warnings

from fluidjax.base.errors import explain
from fluidjax.framework.operator import Operator
from fluidjax.framework.program import Program


def table_lookups(program: Program, name: str) -> list[Operator]:
    """The lookup ops of a table."""
    return [op for op in program.global_block().ops if op.type == "lookup_table" and op.input("W") == [name]]


def _is_distributed(op: Operator) -> bool:
    return bool(op.has_attr("is_distributed") and op.attr("is_distributed"))


def find_distributed_lookup_table(program: Program) -> str | None:
    """The parameter used by the ``is_distributed`` lookups; None if there are none.

    Raises RuntimeError when these name several parameters, or when others look up in it too.
    """
    lookups = [op for op in program.global_block().ops if op.type == "lookup_table"]
    names = list(dict.fromkeys(op.input("W")[0] for op in lookups if _is_distributed(op)))
    if len(names) > 1:
        raise RuntimeError(_several("tables that are distributed", names))
    if names and any(op.input("W") == names and not _is_distributed(op) for op in lookups):
        raise RuntimeError(_several("kinds of look-ups in one table", ["is_distributed=True", "is_distributed=False"]))
    return names[0] if names else None


def distributed_tables(program: Program) -> frozenset[str]:
    """The parameters in which some look-up of the outermost block is ``is_distributed``."""
    lookups = [op for op in program.global_block().ops if op.type in ("lookup_table", "lookup_table_v2")]
    return frozenset(op.input("W")[0] for op in lookups if _is_distributed(op))


def divided_parameters(program: Program) -> frozenset[str]:
    """The parameters that the user divides: by ``is_distributed``, their own or that of look-ups."""
    return distributed_tables(program) | {p.name for p in program.all_parameters() if p.is_distributed}


def warn_of_whole_tables(program: Program, trainers: int) -> None:
    """Tell the user that trainers without servers each have all rows of a table, as in Fluid."""
    names = sorted(distributed_tables(program))
    if names and trainers > 1:
        warnings.warn(
            explain(
                f"is_distributed=True: {', '.join(names)} is not divided among {trainers} trainers that exchange"
                " gradients directly: each has all of its rows",
                "parameter servers, or several devices of one process (with_data_parallel)",
                f"a job of {trainers} trainers without servers",
                "leave is_distributed out, or transpile in mode 'pserver'",
            ),
            stacklevel=4,
        )


def _several(what: str, found: list[str]) -> str:
    return explain(
        f"all distributed lookup_table_ops should have only one table; there are several {what}",
        "one table, and is_distributed=True in all of its look-ups",
        ", ".join(found),
        "leave is_distributed out of all but one table's embeddings",
    )
