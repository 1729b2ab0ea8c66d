"""Inspecting programs, as code and as graphs."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from fluidjax import io
from fluidjax.base.enums import OpRole, VarType, to_numpy_dtype
from fluidjax.base.scope import global_scope, scope_guard
from fluidjax.drawing import Curves as Curves
from fluidjax.drawing import Drawing
from fluidjax.drawing import draw as drawn
from fluidjax.framework import Block, Parameter, Program, Variable
from fluidjax.framework.attrs import read_attr
from fluidjax.framework.listing import program_text
from fluidjax.framework.names import OP_ROLE
from fluidjax.proto import framework_pb2 as pb
from lowering.program import BOOKKEEPING

__all__ = ["pprint_program_codes", "pprint_block_codes", "draw_block_graphviz"]

reprtpl = "{ttype} {name} ({reprs})"


def _message(thing: Any) -> Any:
    return getattr(thing, "proto", thing)


def repr_data_type(type: int) -> str:
    """The NumPy name of a dtype."""
    return to_numpy_dtype(type).name


def repr_tensor(proto: pb.VarType.TensorDesc) -> str:
    """Dtype and shape."""
    return f"tensor(type={repr_data_type(proto.data_type)}, shape={list(proto.dims)})"


def repr_lodtensor(proto: pb.VarType.LoDTensorDesc) -> tuple[str, str]:
    """("LoDTensor" or "Tensor", description of its content)."""
    if not proto.lod_level:
        return "Tensor", repr_tensor(proto.tensor)
    return "LoDTensor", f"{repr_tensor(proto.tensor)}, lod_level={proto.lod_level}"


def repr_selected_rows(proto: pb.VarType.TensorDesc) -> tuple[str, str]:
    """("SelectedRows", description of its content)."""
    return "SelectedRows", repr_tensor(proto)


def repr_tensor_array(proto: pb.VarType.LoDTensorArrayDesc) -> tuple[str, str]:
    """("TensorArray", description of its elements)."""
    return "TensorArray", f"{repr_tensor(proto.tensor)}, lod_level={proto.lod_level}"


def repr_var(vardesc: Any) -> str:
    """A variable as a line of code: ``Tensor x (tensor(type=float32, shape=[-1, 4]))``."""
    var = _message(vardesc)
    kind = VarType(var.type.type)
    if kind == VarType.LOD_TENSOR:
        ttype, reprs = repr_lodtensor(var.type.lod_tensor)
    elif kind == VarType.SELECTED_ROWS:
        ttype, reprs = repr_selected_rows(var.type.selected_rows)
    elif kind == VarType.LOD_TENSOR_ARRAY:
        ttype, reprs = repr_tensor_array(var.type.tensor_array)
    else:
        ttype, reprs = kind.name, ""
    return reprtpl.format(ttype=ttype, name=var.name, reprs=reprs)


def repr_attr(desc: Any) -> tuple[str, tuple[str, Any]]:
    """(``name=value``, (name, value))."""
    attr = _message(desc)
    value = read_attr(attr)
    return f"{attr.name}={value}", (attr.name, value)


def repr_op(opdesc: Any) -> str:
    """An op as a line of code: ``y = scale(X=x) [{scale=2.0}]``, omitting attributes common to all ops."""
    op = _message(opdesc)
    outputs = ", ".join(name for slot in op.outputs for name in slot.arguments)
    inputs = ", ".join(
        f"{slot.parameter}={slot.arguments[0] if len(slot.arguments) == 1 else list(slot.arguments)}"
        for slot in op.inputs
        if slot.arguments
    )
    attrs = ", ".join(repr_attr(attr)[0] for attr in op.attrs if attr.name not in BOOKKEEPING)
    return f"{outputs} = {op.type}({inputs})" + (f" [{{{attrs}}}]" if attrs else "")


def _is_backward(op: pb.OpDesc) -> bool:
    return any(attr.name == OP_ROLE and attr.i & OpRole.Backward for attr in op.attrs)


def listing(program: Program, folded: bool = True) -> str:
    """The text of ``print(program)``: one line per op, with shapes, under the source lines that created them.

    Args:
        program: the program.
        folded: summarise the backward pass and the optimizer in one line each, rather than listing their ops.
    """
    return program_text(program, folded)


def pprint_block_codes(block_desc: Any, show_backward: bool = False) -> str:
    """A block as code: its variables, then its ops; with `show_backward`, including those of the backward pass."""
    block = _message(block_desc)
    ops = [op for op in block.ops if show_backward or not _is_backward(op)]
    named = {name for op in ops for slot in (*op.inputs, *op.outputs) for name in slot.arguments}
    variables = [repr_var(var) for var in block.vars if show_backward or var.name in named]
    lines = [f"// block-{block.idx}  parent-{block.parent_idx}", "// variables", *variables]
    return "\n".join([*lines, "", "// operators", *map(repr_op, ops)]) + "\n"


def pprint_program_codes(program_desc: Any) -> str:
    """A program as code, without its backward pass."""
    return "\n".join(pprint_block_codes(block) for block in _message(program_desc).blocks)


def draw(what: Program | Block, path: str | None = None) -> Drawing:
    """A picture of the forward pass of a program or block, displayed by notebooks; requires no other software.

    Args:
        what: a program, whose blocks are drawn one below the other, or a single block.
        path: if given, where to write the SVG.
    """
    drawing = drawn(what)
    if path is not None:
        drawing.save(path)
    return drawing


_OP = 'shape="box",style="rounded,filled,bold",color="#303A3A",fontname="Arial",fontcolor="#ffffff"'
_VARIABLE = 'shape="box",style="rounded,filled",fontname="Arial",fontcolor="#555555",color="{color}"'
_COLORS = {"plain": "#dddddd", "parameter": "#8fd3d9", "highlight": "orange"}


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _variable_node(name: str, var: Variable | None, highlights: Sequence[str]) -> str:
    kind = "highlight" if name in highlights else "parameter" if isinstance(var, Parameter) else "plain"
    label = escape(name) if var is None else escape(name) + "<br/>" + escape(repr_var(var).split(" (", 1)[1][:-1])
    return f"{_quoted('var ' + name)} [label=<{label}>,{_VARIABLE.format(color=_COLORS[kind])}];"


def _edges(names: Iterable[str], op: str, into: bool, highlights: Sequence[str]) -> list[str]:
    found = []
    for name in names:
        ends = (_quoted("var " + name), op) if into else (op, _quoted("var " + name))
        color = _COLORS["highlight"] if name in highlights else "#000000"
        found.append(f'{ends[0]} -> {ends[1]} [color="{color}"];')
    return found


def write_block_graph(block: Block, highlights: Sequence[str], path: str) -> None:
    """Write a block as a graph of ops and variables in Graphviz's language; `highlights` are names to colour."""
    lines = ["digraph G {", 'rankdir="TB";', 'concentrate="true";']
    names = {name for op in block.ops for name in (*op.input_arg_names, *op.output_arg_names)}
    lines += [_variable_node(name, block._find_var_recursive(name), highlights) for name in sorted(names)]
    for index, op in enumerate(block.ops):
        node = f"op_{index}"
        lines.append(f"{node} [label=<<b>{escape(op.type)}</b>>,{_OP}];")
        lines += _edges(op.input_arg_names, node, True, highlights) + _edges(
            op.output_arg_names, node, False, highlights
        )
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join([*lines, "}"]) + "\n")


def draw_block_graphviz(block: Block, highlights: Sequence[str] | None = None, path: str = "./temp.dot") -> str:
    """Write a block as a graph of ops and variables in Graphviz's language to `path`.

    Args:
        block: the block.
        highlights: names of variables to colour.
        path: the file; if the program ``dot`` is installed, a PDF is drawn beside it.

    Returns the path of the PDF or, without ``dot``, of the file itself.
    """
    write_block_graph(block, list(highlights or []), path)
    return as_pdf(path)


def as_pdf(path: str) -> str:
    """Convert a Graphviz file to a PDF beside it; returns its path or, without ``dot``, that of the file."""
    dot = shutil.which("dot")
    if dot is None:
        return path
    drawn = path.removesuffix(".dot") + ".pdf"
    subprocess.run([dot, "-Tpdf", path, "-o", drawn], check=True)
    return drawn


def prepare_fast_nan_inf_debug(_program: Program | None) -> None:
    """Prepare a program for detecting NaN and infinity; a no-op, as in Paddle 1.8.5.

    ``FLAGS_check_nan_inf`` checks the results of every op, so no ops need to be added.
    """


def run_fast_nan_inf_debug(
    executor: Any,
    program: Program | None = None,
    feed: Any = None,
    fetch_list: Any = None,
    feed_var_name: str = "feed",
    fetch_var_name: str = "fetch",
    scope: Any = None,
    return_numpy: bool = True,
    use_program_cache: bool = False,
    dump_core: bool = True,
) -> Any:
    """``executor.run``, except that a failed run is reported and the persistable variables saved at that point.

    Set ``FLAGS_check_nan_inf`` to make a run fail at the first NaN or infinity.

    Args:
        executor: an Executor. Raises AssertionError for None.
        program, feed, fetch_list, feed_var_name, fetch_var_name: as for ``run``.
        scope, return_numpy, use_program_cache: as for ``run``.
        dump_core: accepted for compatibility with Fluid, which always saves.

    Returns:
        the fetched values; None after an error, leaving ``./core<number>.pdckpt`` for ``fluid.io.load_persistables``.
    """
    if executor is None:
        raise AssertionError("run_fast_nan_inf_debug: expected an executor, received None. Pass fluid.Executor(place)")
    try:
        return executor.run(
            program, feed, fetch_list, feed_var_name, fetch_var_name, scope, return_numpy, use_program_cache
        )
    except Exception as error:
        print("catch an exception:", error, sep="\n")
    _save_core(executor, program, scope)
    return None


def _save_core(executor: Any, program: Program | None, scope: Any) -> None:
    name = f"core{random.randrange(10000)}.pdckpt"
    with scope_guard(scope or global_scope()):
        io.save_persistables(executor, "./", main_program=program, filename=name)
    print(f"dumping a core into ./{name}")
