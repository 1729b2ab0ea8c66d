"""Checking a whole program before anything runs: every unknown op and dtype at once."""

from __future__ import annotations

from collections.abc import Iterable

from lowering.dtypes import LOD_TENSOR, LOD_TENSOR_ARRAY, SELECTED_ROWS, to_numpy
from lowering.engine.dataflow import MARKERS
from lowering.errors import UnknownOpError
from lowering.program import OpView, ProgramView
from lowering.registry import get_op, has_op
from lowering.registry.table import unknown_op_message
from lowering.registry.vendor import COMMON

_TYPED = (LOD_TENSOR, SELECTED_ROWS, LOD_TENSOR_ARRAY)


def problems(program: ProgramView) -> list[str]:
    """One text for each op or dtype of the program that the lowering does not know; empty when all is well.

    Attributes that an op does not have are ignored, as in Paddle; see ``unknown_attrs``.
    """
    found: list[str] = []
    for block in program.blocks:
        for op in block.ops:
            found += [f"{_place(op)}: {p}" for p in _op_problems(op)]
        written = {name for op in block.ops for name in op.output_names()}
        for var in block.vars.values():
            # Fluid's sampled_softmax declares a result's data type by the kind of a variable; its op makes its own.
            by_kind = var.dtype in _TYPED and var.name in written
            if var.type in _TYPED and not by_kind and not _known_dtype(var.dtype):
                found.append(f"variable {var.name!r} of block {block.idx}: data type {var.dtype} is unknown")
    return found


def validate(program: ProgramView) -> None:
    """Raise UnknownOpError that lists all ``problems`` of the program, if there are any."""
    found = problems(program)
    if found:
        listing = "\n  - ".join(found)
        raise UnknownOpError(
            f"the program cannot run: {len(found)} of its parts are unknown.\n  - {listing}\n"
            "  to do: register the missing ops (CONTRIBUTING: how to add an op), or export the model without them"
        )


def unknown_attrs(type: str, names: Iterable[str]) -> list[str]:
    """Those of an op's attributes that it does not have; a grad op inherits what its forward op was given."""
    if not has_op(type) or get_op(type).forward is not None:
        return []
    return [name for name in names if name not in get_op(type).attrs and name not in COMMON]


def _place(op: OpView) -> str:
    line = op.user_line()
    built = f" (built at: {line.strip()})" if line else ""
    return f"op {op.type} (#{op.index} of block {op.block_idx}){built}"


def _op_problems(op: OpView) -> list[str]:
    if op.type in MARKERS:
        return []
    return [] if has_op(op.type) else [unknown_op_message(op.type)]


def _known_dtype(number: int) -> bool:
    try:
        to_numpy(number)
    except ValueError:
        return False
    return True
