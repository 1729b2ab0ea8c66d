"""``fluidjax info MODEL|SCRIPT``: a model's inputs, outputs, parameters and ops, including unsupported ones.

A script is only read, not run: its uses of paddle are listed. With --run, it runs up to its first training step and no
further, and the program of that step is described like a model.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterator, Sequence

import lowering
from fluidjax.base.enums import VarType, to_numpy_dtype
from fluidjax.command import models, scripts, steps
from fluidjax.command.check import problems_of
from fluidjax.command.terms import size, table
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.framework import Program, Variable
from fluidjax.gradcheck.eager import recorded

NAME, HELP = "info", "describe a model or script"
_Row = tuple[object, ...]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    steps.add(parser)
    parser.add_argument(
        "--run", action="store_true", help="run the script, and describe the program of its training step"
    )


def main(options: argparse.Namespace) -> int:
    """Print the description; returns 0 even if something is not supported (see ``check``)."""
    if steps.is_script(options.model):
        lines = _of_run(options) if options.run else list(scripts.describe(options.model))
        print("\n".join(lines))
    else:
        print("\n".join(describe(models.read_program(models.find(options.model)))))
    return 0


def _of_run(options: argparse.Namespace) -> list[str]:
    def of_program(step: steps.Step) -> list[str]:
        return list(describe(step.program, step.fetches))

    def of_loss(loss: VarBase) -> list[str]:
        written = recorded(loss)
        return list(describe(written.program, (written.loss,)))

    return steps.first_step(options.model, options.arguments, of_program, of_loss, trains=False)


def describe(program: Program, fetched: Sequence[str] = ()) -> Iterator[str]:
    """The lines about a program; ``fetched`` are its outputs if it has no fetch ops."""
    block = program.global_block()
    feeds, fetches = _ends(program)
    fetches = fetches or list(fetched)
    yield from _section("inputs", [_row(block.var(name)) for name in feeds if block.has_var(name)])
    yield from _section("outputs", [_row(block.var(name)) for name in fetches if block.has_var(name)])
    yield from _section("parameters", *_parameters(program))
    ops = Counter(op.type for b in program.blocks for op in b.ops if op.type not in ("feed", "fetch"))
    total = sum(ops.values())
    yield f"ops: {total} in {len(program.blocks)} block{'s' if len(program.blocks) > 1 else ''}"
    yield table((count, name) for name, count in ops.most_common())
    hosts = [name for name in ops if lowering.has_op(name) and lowering.get_op(name).kind == "host"]
    if hosts:
        yield f"ops that work on the host (files, Python functions): {', '.join(sorted(hosts))}"
    problems = problems_of(program)
    yield "runs here: yes" if not problems else "runs here: no\n" + "\n".join(f"  {p}" for p in problems)


def _section(title: str, rows: list[_Row], total: _Row | None = None) -> Iterator[str]:
    yield f"{title}: {len(rows)}"
    if rows:
        yield table([*rows, total] if total else rows)


def _ends(program: Program) -> tuple[list[str], list[str]]:
    ops = program.global_block().ops
    feeds = sorted((op.attr("col"), op.output("Out")[0]) for op in ops if op.type == "feed" and op.output("Out"))
    fetches = sorted((op.attr("col"), op.input("X")[0]) for op in ops if op.type == "fetch" and op.input("X"))
    data = [var.name for var in program.global_block().vars.values() if var.is_data]
    return [name for _, name in feeds] or data, [name for _, name in fetches]


def _row(var: Variable) -> _Row:
    level = f"lod level {var.lod_level}" if var.lod_level else ""
    return var.name, to_numpy_dtype(var.dtype), list(var.shape), level


def _parameters(program: Program) -> tuple[list[_Row], _Row]:
    kinds = (VarType.FEED_MINIBATCH, VarType.FETCH_LIST, VarType.RAW, VarType.READER)
    held = [v for v in program.global_block().vars.values() if v.persistable and v.type not in kinds]
    sizes = [math.prod(max(n, 1) for n in var.shape) * to_numpy_dtype(var.dtype).itemsize for var in held]
    rows: list[_Row] = [
        (var.name, to_numpy_dtype(var.dtype), list(var.shape), size(count))
        for var, count in zip(held, sizes, strict=True)
    ]
    values = sum(math.prod(max(n, 1) for n in var.shape) for var in held)
    return rows, ("all of them", "", f"{values:,} values", size(sum(sizes)))
