"""``fluidjax check MODEL|SCRIPT``: whether everything is supported. Exit status 0: yes; 1: no, with the reasons."""

from __future__ import annotations

import argparse
from collections import Counter

import lowering
from fluidjax.command import models, scripts
from fluidjax.framework import Program, program_view
from lowering.engine.shapes.validate import fused_problems, newer_problems

NAME, HELP = "check", "check whether a model or script is supported"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", metavar="MODEL|SCRIPT", help="a model directory, a program file, or a Python script")


def main(options: argparse.Namespace) -> int:
    """Print what is not supported; returns 1 if there is anything."""
    script = options.model.endswith(".py")
    if script:
        problems = scripts.problems_of(options.model)
    else:
        problems = problems_of(models.read_program(models.find(options.model)))
    print("\n".join(problems) or f"{options.model}: {'all names are there' if script else 'all of it runs here'}")
    return 1 if problems else 0


def problems_of(program: Program) -> list[str]:
    """The operators of a program that are not registered, each with its count and first position."""
    unknown: Counter[str] = Counter()
    first: dict[str, str] = {}
    for block in program.blocks:
        for index, op in enumerate(block.ops):
            if not lowering.has_op(op.type):
                unknown[op.type] += 1
                first.setdefault(op.type, f"op {index} of block {block.idx}")
    found = [
        f"operator {name}: not registered ({count} time{'s' * (count > 1)}, first {first[name]})"
        for name, count in unknown.items()
    ]
    view = program_view(program)
    return found + newer_problems(view) + fused_problems(view)
