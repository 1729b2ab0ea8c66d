"""Tables with ``is_distributed=True``: servers share one of a program; devices of one process share all."""

from __future__ import annotations

import warnings

from fluidjax.base.errors import explain
from fluidjax.framework.callstack import depth_of_user
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


def warn_of_whole_parameters(program: Program, trainers: int) -> None:
    """Tell the user that trainers without servers each have the whole of what is to be divided, as in Fluid."""
    names = sorted(divided_parameters(program))
    if names and trainers > 1:
        _warn(f"{', '.join(names)} is not divided among {trainers} trainers: each has the whole")


def warn_of_own_parameters(program: Program, trainers: int) -> None:
    """Tell the user of collective programs what trainers share whole, and what each keeps for itself, as in Fluid.

    These programs leave a parameter out that is itself ``is_distributed``; they share one that only look-ups say it of.
    """
    if trainers < 2:
        return
    own = {p.name for p in program.all_parameters() if p.is_distributed}
    for names, meaning in (
        (distributed_tables(program) - own, "each has the whole"),
        (own, "each trains one of its own, and neither its values nor its gradients are exchanged"),
    ):
        if names:
            _warn(f"{', '.join(sorted(names))} is not divided among {trainers} trainers: {meaning}")


def _warn(what: str) -> None:
    warnings.warn(
        explain(
            f"is_distributed: {what}",
            "parameter servers, or several devices of one process (with_data_parallel)",
            "a job of trainers without servers",
            "leave is_distributed out, or transpile in mode 'pserver'",
        ),
        stacklevel=depth_of_user(),
    )


def _several(what: str, found: list[str]) -> str:
    return explain(
        f"all distributed lookup_table_ops should have only one table; there are several {what}",
        "one table, and is_distributed=True in all of its look-ups",
        ", ".join(found),
        "leave is_distributed out of all but one table's embeddings",
    )
