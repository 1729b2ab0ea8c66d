"""Notebook representations of programs, blocks, variables, ops and tensors."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from fluidjax.base.enums import VarType
from fluidjax.base.tables import page
from fluidjax.base.values import LoDTensor
from fluidjax.framework import Block, Operator, Parameter, Program, Variable
from fluidjax.framework.listing import (
    FORWARD,
    counted,
    dtype_text,
    made_at,
    parts,
    result_text,
    shape_text,
    size_text,
    told_attrs,
)
from fluidjax.notebook.ragged import lod_svg

# Rows of a table that are shown; the rest is counted.
_ROWS = 200


def _cells(row: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], total: int) -> str:
    """A table whose cells are already HTML."""
    return _framed(head, "".join(map(_cells, rows)), total)


def _framed(head: Sequence[str], body: str, total: int) -> str:
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    rest = f"<div>... and {total - _ROWS} more</div>" if total > _ROWS else ""
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _details(summary: str, content: str, is_open: bool) -> str:
    return f"<details{' open' if is_open else ''}><summary>{summary}</summary>{content}</details>"


def _kind(var: Variable) -> str:
    words = [] if var.type == VarType.LOD_TENSOR else [var.type.name]
    if isinstance(var, Parameter):
        words.append("parameter" if var.trainable else "parameter, not trained")
    elif var.persistable:
        words.append("persistable")
    if var.is_data:
        words.append("data")
    if shape_text(var) and var.lod_level:
        words.append(f"lod level {var.lod_level}")
    if var.stop_gradient:
        words.append("stop gradient")
    return ", ".join(words)


_VARIABLE_HEAD = ("variable", "shape", "dtype", "kind")


def _variable_row(var: Variable) -> tuple[str, ...]:
    return tuple(map(escape, (var.name, shape_text(var), dtype_text(var), _kind(var))))


def variable_html(var: Variable) -> str:
    """A variable as a row of a table."""
    return page(_table(_VARIABLE_HEAD, [_variable_row(var)], 1))


_OP_HEAD = ("", "op", "outputs", "inputs", "attributes")


def operator_html(op: Operator) -> str:
    """An op: slots with shapes, attributes with non-default values, and its source line."""
    return page(_framed(_OP_HEAD, _op_rows([("", op)]), 1))


def _slots(op: Operator, slots: dict[str, list[str]]) -> str:
    return "<br>".join(
        f"<i>{escape(slot)}</i>: {escape(', '.join(result_text(op.block, name) for name in args))}"
        for slot, args in slots.items()
        if args
    )


def _op_rows(ops: Iterable[tuple[object, Operator]]) -> str:
    """A row for each op, grouped under the line of the user's script that created them."""
    rows = []
    for where, group in itertools.groupby(ops, key=lambda item: made_at(item[1])):
        if where:
            rows.append(f'<tr><td colspan="{len(_OP_HEAD)}" class="line"># {escape(where)}</td></tr>')
        rows += [_cells(_op_row(index, op)) for index, op in group]
    return "".join(rows)


def _op_row(index: object, op: Operator) -> tuple[str, ...]:
    attrs = escape(", ".join(f"{name}={value}" for name, value in told_attrs(op)))
    kind = f"<b>{escape(op.type)}</b>"
    return str(index), kind, _slots(op, op._output_map), _slots(op, op._input_map), attrs


def block_html(block: Block) -> str:
    """A block: its variables, folded away, and its ops."""
    return page(_block(block, is_open=True))


def _block(block: Block, is_open: bool) -> str:
    variables = list(block.vars.values())
    var_table = _table(_VARIABLE_HEAD, map(_variable_row, variables[:_ROWS]), len(variables))
    around = f" inside block {block.parent_idx}" if block.parent_idx >= 0 else ""
    summary = f"<b>block {block.idx}</b>{around}: {len(block.ops)} ops, {len(variables)} variables"
    return _details(summary, _details("variables", var_table, False) + "".join(map(_part, parts(block))), is_open)


def _part(named: tuple[str, list[tuple[int, Operator]]]) -> str:
    """A part of the block's ops; only the forward part is unfolded."""
    name, ops = named
    summary = f"{name}: {len(ops)} ops" + ("" if name == FORWARD else f" ({escape(counted(ops))})")
    return _details(summary, _framed(_OP_HEAD, _op_rows(ops[:_ROWS]), len(ops)), name == FORWARD)


def program_html(program: Program) -> str:
    """A program: its blocks, the first one unfolded."""
    head = f"<div><b>Program</b>: {size_text(program)}</div>"
    return page(head + "".join(_block(block, block.idx == 0) for block in program.blocks))


def tensor_html(tensor: LoDTensor) -> str:
    """A tensor: shape, dtype, LoD and its first elements."""
    if not tensor._is_initialized():
        return "<div><b>LoDTensor</b>: nothing stored yet</div>"
    data = np.array(tensor)
    lengths = tensor.recursive_sequence_lengths()
    lod = f", sequence lengths {escape(_short(lengths))}" if lengths else ""
    head = f"<div><b>LoDTensor</b> {escape(str(list(data.shape)))} {data.dtype}{lod}</div>"
    text = np.array2string(data, threshold=64, edgeitems=3, precision=5)
    return page(head + (lod_svg(tensor.lod(), data) if lengths else "") + f"<pre>{escape(text)}</pre>")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def install_reprs() -> None:
    """Add ``_repr_html_`` to the classes displayed in notebooks, which themselves know nothing of HTML."""
    views: dict[type, Any] = {
        Program: program_html,
        Block: block_html,
        Operator: operator_html,
        Variable: variable_html,
        LoDTensor: tensor_html,
    }
    for shown, view in views.items():
        shown._repr_html_ = view  # type: ignore[attr-defined]
