"""Where the values of a variable begin and end.

A name of a program may hold several values one after the other: a loop assigns to the variables around it, a body
overwrites what it has used. ``x@GRAD`` then is, going backwards, the gradient of one value after the other. At an op
that writes ``x`` anew the gradient of the value behind it ends: what ops in front of it add to ``x@GRAD`` belongs to
another value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluidjax.backward.names import EMPTY, grad_name
from fluidjax.backward.paths import GUARDED, sub_block_of
from fluidjax.base.enums import VarType

if TYPE_CHECKING:
    from fluidjax.framework import Block, Operator

_FLOATS = (VarType.FP16, VarType.FP32, VarType.FP64)


def hands_through(op: Operator) -> bool:
    """Whether the gradient of what ``op`` writes is also that of what it reads, under the same name."""
    return op.type in ("assign", "increment") and op.input("X") == op.output("Out")


def is_array(block: Block, name: str) -> bool:
    """Whether ``name`` is a tensor array: it is written element by element, never anew."""
    var = block._find_var_recursive(name)
    return var is not None and var.type == VarType.LOD_TENSOR_ARRAY


def _has_gradient(block: Block, name: str) -> bool:
    var = block._find_var_recursive(name)
    if var is None or var.type not in (VarType.LOD_TENSOR, VarType.LOD_TENSOR_ARRAY):
        return False
    return var.dtype in _FLOATS and not var.stop_gradient


def ended_by(op: Operator) -> list[str]:
    """The gradients that end at ``op``, going backwards: of what it writes without having read it."""
    if op.type in GUARDED:
        return []
    read = set(op.input_arg_names)
    names = (n for n in op.output_arg_names if n != EMPTY and n not in read)
    return [grad_name(n) for n in names if _has_gradient(op.block, n) and not is_array(op.block, n)]


def carried_by(op: Operator, block: Block) -> set[str]:
    """Gradients that flow through loop or branch ``op`` with ``block``: of what it writes around the block.

    The gradient of a branch is handed all of them; that of a loop those of variables that get another value.
    """
    if op.type not in GUARDED:
        return set()
    return {grad_name(n) for n in _written_around(block, handed_through=op.type == "conditional_block")}


def _written_around(block: Block, handed_through: bool) -> set[str]:
    """Variables around ``block`` that its ops and blocks write; ``handed_through``: the value they had, too."""
    found: set[str] = set()
    for op in block.ops:
        inner = sub_block_of(op)
        if inner is not None and op.type in GUARDED:
            every = handed_through or op.type == "conditional_block"
            found |= _written_around(block.program.block(inner), every)
        elif handed_through or not hands_through(op):
            found.update(n for n in op.output_arg_names if n != EMPTY)
    return {n for n in found if not block.has_var(n) and _has_gradient(block, n)}
