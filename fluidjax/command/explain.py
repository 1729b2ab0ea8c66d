"""``fluidjax explain MODEL``: shows the kernel of each op and the reason for it, and transfers between devices.

Fluid selects a kernel by data type, layout, place and library (OpKernelType), and converts inputs that do not match. In
fluidjax, each op has a single rule, which XLA compiles for the place; the remaining choices are shown op by op:

type, layout  as Fluid would decide: by the tensors that the op reads or its attribute dtype; and by its data_format
kernel        XLA: inside the compiled step; host: outside of it, on the CPU; control: compiles blocks of ops
primitives    what the rule becomes there (jax's names), for the given batch
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping

import jax
import numpy as np

import lowering
from fluidjax.base.enums import VarType, to_numpy_dtype
from fluidjax.command import models
from fluidjax.command.terms import table
from fluidjax.export.c.convert import draw_feeds
from fluidjax.export.c.trace import Labelled, op_of
from fluidjax.export.files import Model
from fluidjax.export.function import ExportError, to_jax
from fluidjax.export.graph import graph_of
from fluidjax.framework import Block, Operator, Program, program_view
from lowering.engine.plan import Plan, make_plan
from lowering.engine.x64 import with_x64

NAME, HELP = "explain", "show the kernel of each op, and the reason for it"
PLATFORMS = {"cpu": "cpu", "gpu": "cuda", "tpu": "tpu"}
_ASKED = {"use_cudnn": "cuDNN", "use_mkldnn": "MKL-DNN"}
Primitives = Mapping[tuple[int, int], Counter[str]]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", metavar="MODEL", help="a model directory, or its program file")
    parser.add_argument("--params", metavar="FILE", help="name of the combined parameter file")
    parser.add_argument("--place", choices=sorted(PLATFORMS), default="cpu", help="the target (default %(default)s)")
    parser.add_argument("--batch", type=int, default=2, metavar="N", help="value of unknown dimensions")


def main(options: argparse.Namespace) -> int:
    """Print the report."""
    path = models.find(options.model, options.params)
    model = Model(path.folder, path.program, path.parameters)
    try:
        found: Primitives | str = primitives(model, options.place, options.batch)
    except ExportError as error:
        found = str(error).splitlines()[0]
    print("\n".join(describe(model.program, model.fetches, options.place, found)))
    return 0


def primitives(model: Model, place: str, batch: int) -> Primitives:
    """(block, op) -> its primitives. Raises ExportError for programs that are not a single function of arrays."""
    function, parameters = to_jax(model.program, model.feeds, model.fetches, scope=model.scope, platform=place)
    function = function.with_runner(Labelled)
    drawn = draw_feeds(model.program, model.feeds, batch, None)
    given = {name: feed.value(16 * batch) for name, feed in drawn.items()}
    key = np.zeros(2, np.uint32)
    closed = with_x64(jax.make_jaxpr(lambda *arguments: function(*arguments)), parameters, given, key)
    found: dict[tuple[int, int], Counter[str]] = {}
    for node in graph_of(closed, PLATFORMS[place]).nodes:
        op = op_of(function, node)
        if op is not None:
            found.setdefault((op.block_idx, op.index), Counter())[node.prim] += 1
    return found


def describe(program: Program, fetches: list[str], place: str, found: Primitives | str) -> Iterator[str]:
    """The lines about a program; ``found`` is the result of ``primitives``, or the reason why there is none."""
    plan = make_plan(program_view(program), fetches)
    yield from _transforms(plan, place)
    yield f"primitives: {found}" if isinstance(found, str) else f"primitives on {place}, unused ones left out"
    for block in program.blocks:
        yield f"block {block.idx}:"
        ops = [(at, op) for at, op in enumerate(block.ops) if op.type not in ("feed", "fetch")]
        yield table(_row(block, at, op, place, {} if isinstance(found, str) else found) for at, op in ops)


def _transforms(plan: Plan, place: str) -> Iterator[str]:
    """Transfers between the compiled parts and the host."""
    parts = [segment for segment in plan.segments if not segment.host]
    hosts = [segment for segment in plan.segments if segment.host]
    sizes = ", ".join(str(len(segment.ops)) for segment in parts) or "no"
    yield f"compiled parts: {len(parts)}, of {sizes} ops; on the host: {sum(len(segment.ops) for segment in hosts)}"
    for segment in hosts:
        ops = ", ".join(f"#{op.index} {op.type}" for op in segment.ops)
        made = {name for part in parts for name in part.writes}
        down = [name for name in segment.reads if name in made]
        up = list(segment.writes)
        yield f"  {ops}: {place} to host {down or 'nothing'}, host to {place} {up or 'nothing'}"
    if not hosts:
        yield "data transforms: none; feeds go to the place once, fetches come from it"


def _row(block: Block, at: int, op: Operator, place: str, found: Primitives) -> tuple[str, ...]:
    outputs = ", ".join(op.output_arg_names[:2])
    known = lowering.has_op(op.type)
    kind = lowering.get_op(op.type).kind if known else "unknown"
    kernel = {"plain": f"XLA {place}", "host": "host", "block": f"control {place}"}.get(kind, kind)
    counted = found.get((block.idx, at), Counter())
    words = ", ".join(f"{name} {n}" if n > 1 else name for name, n in counted.items())
    return f"#{at}", op.type, outputs, _type(block, op), _layout(op), kernel, "; ".join([*_why(op, kind), words][:3])


def _type(block: Block, op: Operator) -> str:
    """The data type by which Fluid would select a kernel: that of the op's inputs, or its attribute."""
    variables = [block._find_var_recursive(name) for name in op.input_arg_names]
    tensors = [v for v in variables if v is not None and v.type in (VarType.LOD_TENSOR, VarType.SELECTED_ROWS)]
    kinds = dict.fromkeys(to_numpy_dtype(v.dtype) for v in tensors)
    floats = [kind for kind in kinds if "float" in str(kind)]
    if len(floats) > 1:
        return f"{floats[0]} (mixed: {', '.join(map(str, floats))})"
    if floats or kinds:
        return str((floats or list(kinds))[0])
    return str(to_numpy_dtype(op.attr("dtype"))) if "dtype" in op.attr_names else "-"


def _layout(op: Operator) -> str:
    named = [op.attr(name) for name in ("data_format", "data_layout") if name in op.attr_names]
    return str(named[0]) if named and named[0] != "AnyLayout" else "any"


def _why(op: Operator, kind: str) -> Iterator[str]:
    if kind == "host":
        yield "works on files, Python or the network: cuts the compiled step"
    if kind == "block":
        yield "reads blocks, arrays or values: compiled as a loop or branch, op by op where sizes follow from values"
    if kind == "unknown":
        yield "not registered: does not run here"
    asked = [library for name, library in _ASKED.items() if name in op.attr_names and op.attr(name)]
    if asked:
        yield f"asks for {' and '.join(asked)}: XLA chooses its own"
