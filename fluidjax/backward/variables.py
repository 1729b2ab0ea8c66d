"""Declaring the gradient variables of the ops that were appended, and giving them names that are not taken."""

from __future__ import annotations

from typing import Any

import lowering

from fluidjax import unique_name
from fluidjax.backward.names import EMPTY, forward_name, is_grad
from fluidjax.enums import VarType

Block = Any
GradInfo = dict[str, tuple[str, Block]]

# Reads a gradient that the recurrent op itself provides; no block declares it.
_READS_UNDECLARED = ("rnn_memory_helper_grad",)
_SPARSE_SLOTS = ("W@GRAD", "Weight@GRAD")


def _arguments(slots: Any) -> list[str]:
    return [name for slot in slots for name in slot.arguments]


def _rename(slots: Any, old: str, new: str) -> None:
    for slot in slots:
        for index, name in enumerate(slot.arguments):
            if name == old:
                slot.arguments[index] = new


def rename_taken(block: Block, start: int, grad_to_var: dict[str, str], renamed: dict[str, str]) -> None:
    """Rename gradients that ops from ``start`` on write under the name of an existing variable.

    Args:
        renamed: gradients to be read under another name from the beginning: those that the user gave.
    """
    names = dict(renamed)
    for op in list(block.desc.proto.ops)[start:]:
        for name in _arguments(op.inputs):
            if name in names:
                _rename(op.inputs, name, names[name])
        for name in _arguments(op.outputs):
            if is_grad(name) and block.has_var(name):
                names[name] = unique_name.generate(name)
                _rename(op.outputs, name, names[name])
    for old, new in names.items():
        if old in grad_to_var:
            grad_to_var[new] = grad_to_var.pop(old)


def declare(block: Block, start: int, grad_to_var: dict[str, str], carried: frozenset[str] = frozenset()) -> GradInfo:
    """Declare what the ops from ``start`` on write; drop ops that write nothing or read no existing gradient.

    Args:
        carried: gradients that exist although no block declares them: those that the op of this sub-block both
            reads and writes (the memory arrays of a loop).

    Returns:
        forward variable name -> (its gradient's name, the block that declares it).
    """
    info: GradInfo = {}
    dropped = []
    for index, op in list(enumerate(block.desc.proto.ops))[start:]:
        for attr in op.attrs:
            if attr.name == "sub_block":
                both = frozenset(_arguments(op.inputs)) & frozenset(_arguments(op.outputs))
                info.update(declare(block.program.block(attr.block_idx), 0, grad_to_var, both))
        if _is_idle(block, op, carried):
            dropped.append(index)
            continue
        for slot in op.outputs:
            for name in slot.arguments:
                if name == EMPTY or block._find_var_recursive(name) is not None:
                    continue
                _create(block, op, slot.parameter, name)
                if name in grad_to_var:
                    info[grad_to_var[name]] = (name, block)
    for index in reversed(dropped):
        block.desc._remove_op(index, index + 1)
    return info


def _is_idle(block: Block, op: Any, carried: frozenset[str]) -> bool:
    if all(name == EMPTY for name in _arguments(op.outputs)):
        return True
    gradients = [name for name in _arguments(op.inputs) if is_grad(name)]
    if not gradients or op.type in _READS_UNDECLARED:
        return False
    return all(name not in carried and block._find_var_recursive(name) is None for name in gradients)


def _create(block: Block, op: Any, slot: str, name: str) -> None:
    forward = block._find_var_recursive(forward_name(name))
    if forward is None:
        block.create_var(name=name, dtype=VarType.FP32)
        return
    kind = _kind(block, op, slot, forward)
    if kind in (VarType.LOD_TENSOR, VarType.SELECTED_ROWS):
        block.create_var(name=name, type=kind, dtype=forward.dtype, shape=forward.shape)
    else:
        block.create_var(name=name, type=kind, dtype=forward.dtype)


def _kind(block: Block, op: Any, slot: str, forward: Any) -> VarType:
    """What a gradient holds: SelectedRows of a sparse look-up (and sums of such), else what its variable holds."""
    if slot in _SPARSE_SLOTS and any(attr.name == "is_sparse" and attr.b for attr in op.attrs):
        return VarType.SELECTED_ROWS
    if op.type == "sum":
        parts = [block._find_var_recursive(name) for name in _arguments(op.inputs)]
        if parts and all(part is not None and part.type == VarType.SELECTED_ROWS for part in parts):
            return VarType.SELECTED_ROWS
    return forward.type
