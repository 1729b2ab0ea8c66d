"""Finding, deleting and printing the ops of a program."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TextIO

from fluidjax.base.enums import AttrType, VarType
from fluidjax.framework import Block, Operator, Parameter, Program, Variable


def delete_ops(block: Block, ops: Iterable[Operator]) -> None:
    """Delete ops from a block, ignoring those it does not contain."""
    for op in ops:
        index = next((i for i, own in enumerate(block.ops) if own is op), None)
        if index is not None:
            block._remove_op(index)


def find_op_by_input_arg(block: Block, arg_name: str) -> int:
    """The index of the first op that reads a variable; -1 if there is none."""
    return next((i for i, op in enumerate(block.ops) if arg_name in op.input_arg_names), -1)


def find_op_by_output_arg(block: Block, arg_name: str, reverse: bool = False) -> int:
    """The index of the first op, or with ``reverse`` the last, that writes a variable; -1 if there is none."""
    writers = [i for i, op in enumerate(block.ops) if arg_name in op.output_arg_names]
    return writers[-1 if reverse else 0] if writers else -1


def get_indent_space(indent: int, space_num: int = 4) -> str:
    """The spaces before a line of so many indents."""
    return " " * (indent * space_num)


def variable_to_code(var: Variable) -> str:
    """A one-line description of a variable."""
    text = f"{var.name} : fluid.{var.type}"
    if var.type in (VarType.SELECTED_ROWS, VarType.LOD_TENSOR):
        text += f".shape{var.shape}.astype({var.dtype})"
    if type(var) is Parameter:
        text = ("trainable parameter " if var.trainable else "parameter ") + text
    else:
        text = "var " + text
    return "persist " + text if var.persistable else text


def _slots(names: list[str], arguments: Any) -> str:
    return "{" + ", ".join(f"{name}={arguments(name)}" for name in names) + "}"


def _attribute(op: Operator, name: str) -> str:
    kind = op.attr_type(name)
    if kind == AttrType.BLOCK:
        return f"{name} = block[{op._block_attr_id(name)}]"
    if kind == AttrType.BLOCKS:
        return f"{name} = blocks{op._blocks_attr_ids(name)}"
    return f"{name} = {op.attr(name)}"


def op_to_code(op: Operator, skip_op_callstack: bool = True) -> str:
    """A one-line description of an op with its inputs, outputs and attributes."""
    skipped = {"op_callstack"} if skip_op_callstack else set()
    attributes = ", ".join(_attribute(op, name) for name in sorted(set(op.attr_names) - skipped))
    call = f"{op.type}(inputs={_slots(op.input_names, op.input)}, {attributes})"
    outputs = _slots(op.output_names, op.output)
    return call if outputs == "{}" else f"{outputs} = {call}"


def block_to_code(block: Block, block_idx: int, fout: TextIO | None = None, skip_op_callstack: bool = False) -> None:
    """Print a block, its variables by name, then its ops, to ``fout`` or standard output."""
    print(f"{{ // block {block_idx}", file=fout)
    for _, var in sorted(block.vars.items()):
        print(get_indent_space(1) + variable_to_code(var), file=fout)
    if block.vars:
        print(file=fout)
    for op in block.ops:
        print(get_indent_space(1) + op_to_code(op, skip_op_callstack), file=fout)
    print("}", file=fout)


def program_to_code(prog: Program, fout: TextIO | None = None, skip_op_callstack: bool = True) -> None:
    """Print all blocks of a program to ``fout`` or standard output."""
    for block in prog.blocks:
        block_to_code(block, block.idx, fout, skip_op_callstack)
