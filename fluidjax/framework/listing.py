"""The readable listing of a program: one line per op, with shapes, under the user's lines that created them.

Attributes with default values are omitted; the backward pass and the optimizer are folded into one line each.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import lowering
from fluidjax.base.enums import OpRole, VarType, to_numpy_dtype
from fluidjax.framework import callstack, messages, names
from fluidjax.framework.text import printable
from lowering.program import BOOKKEEPING

if TYPE_CHECKING:
    from fluidjax.framework.block import Block
    from fluidjax.framework.operator import Operator
    from fluidjax.framework.program import Program
    from fluidjax.framework.variable import Variable

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
KEPT = "kept"  # between runs, and no parameter
_TENSORS = (VarType.LOD_TENSOR, VarType.SELECTED_ROWS)
# The file that a notebook gives to a cell.
_CELL = re.compile(r"^.*[/\\]ipykernel_\d+[/\\]\d+\.py:")
# Longer values of attributes are cut.
_VALUE = 60


def shape_text(var: Variable) -> str:
    """``[?, 3]``; empty for anything but a tensor."""
    tensor = messages.tensor_desc(var.proto)
    return "" if tensor is None else "[" + ", ".join("?" if size < 0 else str(size) for size in tensor.dims) + "]"


def dtype_text(var: Variable) -> str:
    """``float32``; empty for anything but a tensor, and for an unknown dtype number."""
    tensor = messages.tensor_desc(var.proto)
    try:
        return "" if tensor is None else to_numpy_dtype(tensor.data_type).name
    except ValueError:
        return ""


def kind_text(var: Variable) -> str:
    """``float32[?, 3]``, ``LOD_TENSOR_ARRAY float32[?, 3]`` or ``STEP_SCOPES``, with the LoD level."""
    kind = "" if var.proto.type.type == VarType.LOD_TENSOR else VarType(var.proto.type.type).name
    holder = messages.lod_holder(var.proto)
    level = f"lod {holder.lod_level}" if holder is not None and holder.lod_level else ""
    return " ".join(filter(None, (kind, dtype_text(var) + shape_text(var), level)))


def part(op: Operator) -> str:
    """'forward', 'backward' or 'optimizer'."""
    role = op._attr_map.get(names.OP_ROLE, 0)
    if not isinstance(role, int) or not role & ~OpRole.Loss:
        return FORWARD
    return BACKWARD if role & OpRole.Backward else OPTIMIZER


def parts(block: Block) -> Iterator[tuple[str, list[tuple[int, Operator]]]]:
    """The block's ops with their positions, grouped by part."""
    for name, group in itertools.groupby(enumerate(block.ops), key=lambda item: part(item[1])):
        yield name, list(group)


def counted(ops: list[tuple[int, Operator]]) -> str:
    """``mul_grad, sgd 2``: op types, with their count if more than one."""
    found = Counter(op.type for _, op in ops)
    return ", ".join(name if count == 1 else f"{name} {count}" for name, count in found.items())


def told_attrs(op: Operator) -> Iterator[tuple[str, str]]:
    """Attributes and their values as text, except those common to all ops or with default values."""
    known = lowering.get_op(op.type).attrs if lowering.has_op(op.type) else {}
    for name, value in op._attr_map.items():
        spec = known.get(name)
        if name not in BOOKKEEPING and not (spec is not None and not spec.required and _same(value, spec.default)):
            yield name, _short(f"{value:.7g}" if isinstance(value, float) else repr(value))


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, float) and isinstance(default, float):
        return math.isclose(value, default, rel_tol=1e-6) or value == default  # messages hold float32
    return value == default or (default is None and value in ([], ""))


def _short(text: str) -> str:
    return text if len(text) <= _VALUE else text[: _VALUE - 3] + "..."


def made_at(op: Operator) -> str:
    """``train.py:7: h = fluid.layers.fc(x, 3)``; empty if unknown.

    The file is named relative to the working directory, or as imported.
    """
    where = callstack.user_line(op)
    if where.startswith("("):
        return ""
    places = sorted({os.getcwd(), *filter(os.path.isabs, sys.path)}, key=len, reverse=True)
    found = next((place for place in places if where.startswith(os.path.join(place, ""))), None)
    return _CELL.sub("cell:", where if found is None else where[len(os.path.join(found, "")) :])


def result_text(block: Block, name: str) -> str:
    """A name with its shape."""
    var = block._find_var_recursive(name)
    return name if var is None else f"{name} {shape_text(var)}".rstrip()


def op_line(op: Operator) -> str:
    """``y [?, 3] = mul(X=x, Y=w, x_num_col_dims=2)``."""
    outputs = ", ".join(result_text(op.block, name) for args in op._output_map.values() for name in args)
    inputs = [
        f"{slot}={args[0] if len(args) == 1 else '[' + ', '.join(args) + ']'}"
        for slot, args in op._input_map.items()
        if args
    ]
    attrs = [f"{name}={value}" for name, value in told_attrs(op)]
    call = f"{op.type}({', '.join(inputs + attrs)})"
    return f"{outputs} = {call}" if outputs else call


def size_text(program: Program) -> str:
    """``5 ops, 2 parameters of 16 elements``; a file does not say which of its variables are parameters."""
    ops = sum(len(block.ops) for block in program.blocks)
    held: list[Any] = program.all_parameters()
    kind = "parameters"
    if program._loaded_from is not None and not held:
        kind, held = "persistable variables", [v for v in program.list_vars() if v.persistable and v.type in _TENSORS]
    elements = sum(math.prod(map(abs, tensor.dims)) for p in held if (tensor := messages.tensor_desc(p.proto)))
    blocks = f" in {len(program.blocks)} blocks" if len(program.blocks) > 1 else ""
    return f"{ops} ops{blocks}, {len(held)} {kind} of {elements:,} elements"


def program_text(program: Program, folded: bool = True) -> str:
    """The program, block by block; if `folded` is False, including every op of the backward pass and the optimizer."""
    lines = [f"Program: {size_text(program)}"]
    for block in program.blocks:
        lines += _block_lines(block, folded)
    if folded and any(part(op) != FORWARD for block in program.blocks for op in block.ops):
        lines.append("(fluid.debugger.listing(program, folded=False) shows every op)")
    return printable("\n".join(lines)) + "\n"


def _block_lines(block: Block, folded: bool) -> Iterator[str]:
    around = f", inside block {block.parent_idx}" if block.parent_idx >= 0 else ""
    yield f"block {block.idx}{around}"
    declared = list(_declared(block))
    shown = {name for op in block.ops if part(op) == FORWARD or not folded for name in _named(op)}
    rest = {name for kind, name, _ in declared if folded and kind == KEPT and name not in shown}
    yield from (f"  {kind} {name}: {kind_text(var)}" for kind, name, var in declared if name not in rest)
    if rest:
        yield f"  {KEPT} by the optimizer: {len(rest)} variables"
    for name, ops in parts(block):
        if name == FORWARD or not folded:
            yield f"  {name}:"
            yield from _op_lines(ops)
        else:
            yield f"  {name}, ops {ops[0][0]} to {ops[-1][0]}: {counted(ops)}"


def _declared(block: Block) -> Iterator[tuple[str, str, Variable]]:
    for name, var in block.vars.items():
        if var.is_data:
            yield "data", name, var
    for name, var in block.vars.items():
        if var.persistable and not var.is_data:
            yield ("parameter" if hasattr(var, "trainable") else KEPT), name, var


def _named(op: Operator) -> list[str]:
    return [*op.input_arg_names, *op.output_arg_names]


def _op_lines(ops: list[tuple[int, Operator]]) -> Iterator[str]:
    """The ops, with consecutive ops of the same user line listed under that line."""
    for where, group in itertools.groupby(ops, key=lambda item: made_at(item[1])):
        if where:
            yield f"    # {where}"
        yield from (f"    {index:4}  {op_line(op)}" for index, op in group)
