"""How errors describe an op and the values it was given."""

from __future__ import annotations

from typing import Any

from lowering.engine.context import Env
from lowering.errors import plain
from lowering.program import OpView
from lowering.registry import get_op
from lowering.values import data_of


def describe(value: Any) -> str:
    """Dtype, shape and whether there is a LoD, for error messages; for anything else the name of its type."""
    data = data_of(value)
    if hasattr(data, "shape") and hasattr(data, "dtype"):
        return f"{data.dtype}{list(data.shape)}" + (" with LoD" if data is not value else "")
    return type(value).__name__


def op_error_message(op: OpView, env: Env, error: Exception) -> str:
    """Which op failed on what, where it was created, and where to look."""
    inputs = "; ".join(
        f"{slot}: " + ", ".join(f"{n} {describe(env[n])}" for n in names if n in env)
        for slot, names in op.inputs.items()
        if names
    )
    line = op.user_line()
    where = f"\n  built at: {line.strip()}" if line else ""
    return (
        f"{op.label} failed on its inputs.{where}\n"
        f"  received: {inputs or 'no inputs'}\n  problem: {plain(error)}\n"
        f"  to do: compare the shapes and dtypes above with the op's documentation: {doc_line(op.type)}"
    )


def doc_line(type: str) -> str:
    """The first line of an op's documentation, for error messages; without one, how to ask for it."""
    doc = get_op(type).doc
    return doc.splitlines()[0] if doc else f"lowering.get_op({type!r})"
