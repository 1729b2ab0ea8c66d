"""What notebooks show for programs, blocks, variables, ops and tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from fluidjax.base.enums import OpRole, VarType, to_numpy_dtype
from fluidjax.base.values import LoDTensor
from fluidjax.framework import Block, Operator, Parameter, Program, Variable, callstack, names
from lowering.program import BOOKKEEPING

# Rows of a table that are shown; the rest is counted.
_ROWS = 200
_HIDDEN = BOOKKEEPING
_STYLE = (
    "<style>.fluidjax table{border-collapse:collapse;font-family:monospace;font-size:12px}"
    ".fluidjax th,.fluidjax td{text-align:left;padding:2px 8px;vertical-align:top}</style>"
)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], total: int) -> str:
    """A table of cells that are HTML already."""
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    rest = f"<div>... and {total - _ROWS} more</div>" if total > _ROWS else ""
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _page(content: str) -> str:
    return f'{_STYLE}<div class="fluidjax">{content}</div>'


def _details(summary: str, content: str, is_open: bool) -> str:
    return f"<details{' open' if is_open else ''}><summary>{summary}</summary>{content}</details>"


def _shape(var: Variable) -> str:
    if var.type not in (VarType.LOD_TENSOR, VarType.SELECTED_ROWS, VarType.LOD_TENSOR_ARRAY):
        return ""
    return "[" + ", ".join("?" if size < 0 else str(size) for size in var.shape) + "]"


def _dtype(var: Variable) -> str:
    return to_numpy_dtype(var.dtype).name if _shape(var) else ""


def _kind(var: Variable) -> str:
    words = [] if var.type == VarType.LOD_TENSOR else [var.type.name]
    if isinstance(var, Parameter):
        words.append("parameter" if var.trainable else "parameter, not trained")
    elif var.persistable:
        words.append("persistable")
    if var.is_data:
        words.append("data")
    if _shape(var) and var.lod_level:
        words.append(f"lod level {var.lod_level}")
    if var.stop_gradient:
        words.append("stop gradient")
    return ", ".join(words)


def _role(op: Operator) -> str:
    role = op._attr_map.get(names.OP_ROLE, 0)
    return "|".join(r.name for r in OpRole if r and role & r) or OpRole.Forward.name


def _slots(slots: dict[str, list[str]]) -> str:
    return "<br>".join(f"<i>{escape(slot)}</i>: {escape(', '.join(args))}" for slot, args in slots.items() if args)


def _value(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _attrs(op: Operator) -> str:
    shown = ((name, value) for name, value in op._attr_map.items() if name not in _HIDDEN)
    return escape(", ".join(f"{name}={_value(value)}" for name, value in shown))


def variable_html(var: Variable) -> str:
    """One variable as a line of a table."""
    row = (f"<b>{escape(var.name)}</b>", escape(_shape(var)), escape(_dtype(var)), escape(_kind(var)))
    return _page(_table(("variable", "shape", "dtype", "kind"), [row], 1))


def operator_html(op: Operator) -> str:
    """One op: slots, attributes, role, and the line that made it."""
    return _page(_table(_OP_HEAD, [_op_row(op)], 1))


_OP_HEAD = ("op", "inputs", "outputs", "attributes", "role", "made at")


def _op_row(op: Operator) -> tuple[str, ...]:
    where = callstack.user_line(op)
    line = "" if where.startswith("(") else where.split(": ")[0].rsplit("/", 1)[-1]
    return (
        f"<b>{escape(op.type)}</b>",
        _slots(op._input_map),
        _slots(op._output_map),
        _attrs(op),
        escape(_role(op)),
        f'<span title="{escape(where)}">{escape(line)}</span>',
    )


def block_html(block: Block) -> str:
    """One block: its variables folded away, its ops."""
    return _page(_block(block, is_open=True))


def _block(block: Block, is_open: bool) -> str:
    variables = list(block.vars.values())
    rows = ((escape(v.name), escape(_shape(v)), escape(_dtype(v)), escape(_kind(v))) for v in variables[:_ROWS])
    var_table = _table(("variable", "shape", "dtype", "kind"), rows, len(variables))
    op_table = _table(_OP_HEAD, (_op_row(op) for op in block.ops[:_ROWS]), len(block.ops))
    around = f" inside block {block.parent_idx}" if block.parent_idx >= 0 else ""
    summary = f"<b>block {block.idx}</b>{around}: {len(block.ops)} ops, {len(variables)} variables"
    return _details(summary, _details("variables", var_table, False) + op_table, is_open)


def program_html(program: Program) -> str:
    """A program: its blocks, the first one open."""
    parameters = program.all_parameters()
    elements = sum(int(np.prod(p.shape)) for p in parameters)
    ops = sum(len(block.ops) for block in program.blocks)
    head = (
        f"<div><b>Program</b>: {program.num_blocks} block{'s' * (program.num_blocks != 1)}, {ops} ops, "
        f"{len(parameters)} parameters of {elements:,} elements</div>"
    )
    return _page(head + "".join(_block(block, block.idx == 0) for block in program.blocks))


def tensor_html(tensor: LoDTensor) -> str:
    """A tensor: shape, dtype, LoD and its first elements."""
    if not tensor._is_initialized():
        return "<div><b>LoDTensor</b>: nothing stored yet</div>"
    data = np.array(tensor)
    lengths = tensor.recursive_sequence_lengths()
    lod = f", sequence lengths {escape(_value(lengths))}" if lengths else ""
    head = f"<div><b>LoDTensor</b> {escape(str(list(data.shape)))} {data.dtype}{lod}</div>"
    text = np.array2string(data, threshold=64, edgeitems=3, precision=5)
    return f"{head}<pre>{escape(text)}</pre>"


def install_reprs() -> None:
    """Give the classes that notebooks show their ``_repr_html_``; they themselves know nothing of HTML."""
    views: dict[type, Any] = {
        Program: program_html,
        Block: block_html,
        Operator: operator_html,
        Variable: variable_html,
        LoDTensor: tensor_html,
    }
    for shown, view in views.items():
        shown._repr_html_ = view  # type: ignore[attr-defined]
