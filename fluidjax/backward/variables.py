"""Declaring the gradient variables of appended ops, under names that are free."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import lowering
from fluidjax import unique_name
from fluidjax.backward.names import EMPTY, forward_name, grad_name, is_grad, out_args
from fluidjax.backward.paths import sub_block_of
from fluidjax.backward.prune import clears, read_first
from fluidjax.base.enums import VarType
from fluidjax.framework.view import op_view, var_view
from lowering.registry import get_op, has_op, keeps_shape, level_from

if TYPE_CHECKING:
    from fluidjax.framework import Block, Operator, Variable

GradInfo = dict[str, tuple[str, "Block"]]

# Reads a gradient that the recurrent op itself provides; no block declares it.
_READS_UNDECLARED = ("rnn_memory_helper_grad",)
_SPARSE_SLOTS = ("W@GRAD", "Weight@GRAD")


def rename_taken(block: Block, start: int, grad_to_var: dict[str, str], renamed: dict[str, str]) -> None:
    """Rename gradients that ops from ``start`` on write under the name of an existing variable.

    Args:
        renamed: gradients read under another name from the beginning: those supplied by the user.
    """
    names = dict(renamed)
    for op in block.ops[start:]:
        for name in op.input_arg_names:
            if name in names:
                op._rename_input(name, names[name])
        for name in op.output_arg_names:
            if is_grad(name) and block.has_var(name):
                names[name] = unique_name.generate(name)
                op._rename_output(name, names[name])
    for old, new in names.items():
        if old in grad_to_var:
            grad_to_var[new] = grad_to_var.pop(old)


def declare(
    block: Block, start: int, grad_to_var: dict[str, str], carried: Mapping[str, str] = MappingProxyType({})
) -> GradInfo:
    """Declare what the ops from ``start`` on write; drop ops that write nothing or read no existing gradient.

    Ops that set a gradient to zero are dropped too if it is overwritten before it is read.

    Args:
        carried: for a gradient block, what it receives from outside: name inside -> name outside. Besides existing
            gradients, these are the ones that the op of the block both reads and writes (the memory arrays of a loop).

    Returns:
        forward variable name -> (its gradient's name, the block that declares it).
    """
    info: GradInfo = {}
    dropped = []
    for index in range(start, len(block.ops)):
        op = block.ops[index]
        inner = sub_block_of(op)
        if inner is not None:
            info.update(declare(block.program.block(inner), 0, grad_to_var, _handed_in(block, op, carried)))
        if _is_idle(block, op, carried):
            dropped.append(index)
            continue
        for name in declare_outputs(block, op, carried):
            if name in grad_to_var:
                info[grad_to_var[name]] = (name, block)
        if op.type == "sum":
            _declare_absent(block, op, carried)
    for index in reversed(dropped):
        block._remove_op(index)
    _drop_clearing(block, start)
    return info


def _drop_clearing(block: Block, start: int) -> None:
    ops = [op_view(op) for op in block.ops[start:]]
    for index in reversed([k for k, op in enumerate(ops) if clears(op)]):
        name = out_args(ops[index])[0]
        if _is_local(block, forward_name(name)) and not read_first(name, ops[index + 1 :]):
            block._remove_op(start + index)


def _is_local(block: Block, name: str) -> bool:
    """Whether the block that gradient block ``block`` belongs to computes all values of forward variable ``name``."""
    forward = block.program.block(block.forward_block_idx) if block.forward_block_idx >= 0 else block
    return bool(forward.has_var(name)) and not (forward.var(name).is_data or forward.var(name).persistable)


def _handed_in(block: Block, op: Operator, carried: Mapping[str, str]) -> dict[str, str]:
    """The gradients that the sub-block of grad op ``op`` receives from outside, by the names they have inside."""
    outer = list(op.input("Out@GRAD")) if "Out@GRAD" in op.input_names else []
    if op.has_attr("original_output_grad"):
        inside = list(op.attr("original_output_grad"))
    else:
        inside = [grad_name(name) for name in op.input("Out")] if outer else []
    written = frozenset(op.output_arg_names)
    pairs = zip(inside, outer, strict=True)
    return {i: o for i, o in pairs if o in written or _exists(block, o, carried)}


def _exists(block: Block, name: str, carried: Mapping[str, str]) -> bool:
    """Whether this pass computes gradient ``name`` before its reader.

    A gradient block sees no gradients of surrounding blocks except those ``carried`` in.
    """
    if name in carried:
        return True
    return block.has_var(name) if block.forward_block_idx >= 0 else block._find_var_recursive(name) is not None


def declare_outputs(block: Block, op: Operator, carried: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Declare the variables that ``op`` writes and no block declares yet; returns their names.

    A gradient block has gradients of its own, even if an earlier pass has declared the name outside.
    """
    fresh = []
    for slot in op.output_names:
        for name in op.output(slot):
            if name == EMPTY:
                continue
            if not _declared(block, name, carried):
                _create(block, op, slot, name)
                fresh.append(name)
            elif name in op.input_arg_names:
                _reshape(block, op, slot, name)
            elif op.type == "write_to_array":  # an array has the LoD level of what was last written to it
                block._var_recursive(name).desc.set_lod_level(_lod_level(block, op, slot, name))
    return fresh


def _declare_absent(block: Block, op: Operator, carried: Mapping[str, str]) -> None:
    """Declare the parts of a sum that no op writes, as variables of unknown type: Fluid's inference creates them."""
    for name in op.input_arg_names:
        if name != EMPTY and not _declared(block, name, carried):
            block.create_var(name=name)


def _reshape(block: Block, op: Operator, slot: str, name: str) -> None:
    """Give a gradient that ``op`` reshapes in place the shape of X; its value has that of Out."""
    if has_op(op.type) and keeps_shape(get_op(op.type), slot):
        kept = block._find_var_recursive(op.input("XShape")[0])
        if kept is not None:
            block._var_recursive(name).desc.set_shape(kept.shape[1:])


def _declared(block: Block, name: str, carried: Mapping[str, str]) -> bool:
    if is_grad(name) and block.forward_block_idx >= 0 and carried.get(name) != name:
        return bool(block.has_var(name))
    return block._find_var_recursive(name) is not None


def _is_idle(block: Block, op: Operator, carried: Mapping[str, str]) -> bool:
    if all(name == EMPTY for name in op.output_arg_names):
        return True
    gradients = [name for name in op.input_arg_names if is_grad(name)]
    if not gradients or op.type in _READS_UNDECLARED:
        return False
    return not any(_exists(block, name, carried) for name in gradients)


def _create(block: Block, op: Operator, slot: str, name: str) -> None:
    forward = _forward_of(block, name)
    if forward is None and op.type == "shape":
        (source,) = op.input("Input")  # Fluid infers this shape, but no data type: it declares the first one, bool
        block.create_var(name=name, dtype=VarType.BOOL, shape=[len(block.var(source).shape)])
        return
    if forward is None:
        again = block._find_var_recursive(name.rpartition(".subprog_")[0])  # what a recomputed segment writes again
        known = again if again is not None else _inferred(block, op, name)
        block.create_var(name=name, dtype=VarType.FP32, **({} if known is None else {"shape": known.shape}))
        return
    kind = _kind(block, op, slot, forward)
    if kind in (VarType.LOD_TENSOR, VarType.SELECTED_ROWS, VarType.LOD_TENSOR_ARRAY):
        level = None if kind == VarType.SELECTED_ROWS else _lod_level(block, op, slot, name)
        block.create_var(name=name, type=kind, dtype=forward.dtype, shape=forward.shape, lod_level=level)
    else:
        block.create_var(name=name, type=kind)


def _lod_level(block: Block, op: Operator, slot: str, name: str) -> int:
    """The LoD level declared by shape inference, before anything runs."""
    if not has_op(op.type):
        return 0
    definition, inputs = get_op(op.type), op.input_names
    if definition.forward is None and definition.infer is not None:
        found = _inferred(block, op, name)
        return (found and found.lod_level) or 0
    source = level_from(definition, slot, op.output(slot).index(name), lambda s: op.input(s) if s in inputs else ())
    var = block._find_var_recursive(source) if source is not None else None
    return 0 if var is None or var.type != VarType.LOD_TENSOR else var.lod_level


def _inferred(block: Block, op: Operator, name: str) -> lowering.VarInfo | None:
    """What shape inference says of an output."""
    return lowering.infer_outputs(op_view(op), lambda name: _view(block, name)).get(name)


def _view(block: Block, name: str) -> lowering.VarView | None:
    var = block._find_var_recursive(name)
    return None if var is None else var_view(var)


def _forward_of(block: Block, name: str) -> Variable | None:
    """The variable that gradient ``name`` belongs to; a step's own takes precedence over one outside the loop."""
    base = forward_name(name)
    if base not in block.vars and block.forward_block_idx >= 0:
        return block.program.block(block.forward_block_idx)._find_var_recursive(base)
    return block._find_var_recursive(base)


def _kind(block: Block, op: Operator, slot: str, forward: Variable) -> VarType:
    """The type of a gradient: SelectedRows for a sparse look-up (and sums of these), otherwise that of its variable."""
    if slot in _SPARSE_SLOTS and op.has_attr("is_sparse") and op.attr("is_sparse"):
        return VarType.SELECTED_ROWS
    if op.type == "sum":
        parts = [block._find_var_recursive(name) for name in op.input_arg_names]
        if parts and all(part is not None and part.type == VarType.SELECTED_ROWS for part in parts):
            return VarType.SELECTED_ROWS
    return forward.type
