"""Where the values of a variable begin and end.

One name in a program may hold several values in turn: a loop assigns to outer variables, a body overwrites what it has
used. Going backwards, ``x@GRAD`` is then the gradient of one value after another. At an op that writes a new value to
``x``, the gradient of the value after it ends: whatever earlier ops add to ``x@GRAD`` belongs to
another value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from fluidjax import unique_name
from fluidjax.backward.names import EMPTY, ROLE_BACKWARD, ROLE_OPTIMIZE, grad_name, out_args
from fluidjax.backward.paths import sub_block_of
from fluidjax.base.enums import VarType, is_floating
from lowering.engine.dataflow import GUARDED
from lowering.program import OpSpec

if TYPE_CHECKING:
    from fluidjax.framework import Block, Operator

_TAKEN = "@TAKEN"


def hands_through(op: Operator) -> bool:
    """Whether the gradient of what ``op`` writes is also that of what it reads, under the same name."""
    return op.type in ("assign", "increment") and op.input("X") == op.output("Out")


def is_array(block: Block, name: str) -> bool:
    """Whether ``name`` is a tensor array."""
    var = block._find_var_recursive(name)
    return var is not None and var.type == VarType.LOD_TENSOR_ARRAY


def _has_gradient(block: Block, name: str) -> bool:
    var = block._find_var_recursive(name)
    if var is None or var.type not in (VarType.LOD_TENSOR, VarType.LOD_TENSOR_ARRAY):
        return False
    return is_floating(var.dtype) and not var.stop_gradient


def ended_by(op: Operator, given: Collection[str] = ()) -> list[str]:
    """The variables whose gradients end at ``op``, going backwards: those to which it writes a new value.

    A value is new if ``op`` has not read the variable, or works on it in place without passing the gradient on, such as
    when it fills a variable with zeros of the same shape.

    Args:
        given: the gradients that the grad ops of ``op`` write.
    """
    if op.type in GUARDED or op.type == "write_to_array":
        return []
    names = (n for n in op.output_arg_names if n != EMPTY and not _passes_on(op, n, given))
    return [n for n in names if _has_gradient(op.block, n)]


def _passes_on(op: Operator, name: str, given: Collection[str]) -> bool:
    if name not in op.input_arg_names:
        return False
    return grad_name(name) in given or hands_through(op) or _is_kept(op, name)


def _is_kept(op: Operator, name: str) -> bool:
    """Whether a variable counts as the same after updates: a parameter, or a variable from an earlier pass."""
    var = op.block._find_var_recursive(name)
    later = op.has_attr("op_role") and int(op.attr("op_role")) & (ROLE_BACKWARD | ROLE_OPTIMIZE)
    return bool(later) or (var is not None and bool(var.persistable))


def taken_by(op: Operator, specs: list[OpSpec]) -> list[OpSpec]:
    """The grad ops ``specs`` of ``op``; if it writes a constant to an array, the one that ends a gradient.

    Fluid writes no grad op for the write of a value that stops gradients. What is read of the element after it then
    stays in the array's gradient, and would be taken for that of an earlier write: it is moved to a name that is not
    read.
    """
    if op.type != "write_to_array" or any(out_args(spec) for spec in specs):
        return specs
    (array,), (value,) = op.output("Out"), op.input("X")
    if not _has_gradient(op.block, array) or not _written_before(op, array):
        return specs
    inputs = {"I": op.input("I"), "X": [grad_name(array)], "X_W": [value]}
    return [OpSpec("read_from_array", inputs, {"Out": [unique_name.generate(grad_name(value) + _TAKEN)]}, {})]


def _written_before(op: Operator, array: str) -> bool:
    """Whether another op may have written to ``array`` before ``op``: above it, or in a previous step."""
    block, below = op.block, op
    while True:
        owner = _owner(block)
        loops = owner is not None and owner.type == "while"
        if any(o is not op and _writes_value(o, array) for o in _until(block.ops, None if loops else below)):
            return True
        if owner is None or block.has_var(array):
            return False
        block, below = owner.block, owner


def _until(ops: Iterable[Operator], end: Operator | None) -> Iterable[Operator]:
    for op in ops:
        if op is end:
            return
        yield op


def _owner(block: Block) -> Operator | None:
    """The op that runs ``block``; None for the global one."""
    if block.idx == 0:
        return None
    parent = block.program.block(block.parent_idx)
    return next((op for op in parent.ops if sub_block_of(op) == block.idx), None)


def _writes_value(op: Operator, array: str) -> bool:
    if array not in op.output_arg_names:
        return False
    return op.type != "write_to_array" or _has_gradient(op.block, op.input("X")[0])


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
