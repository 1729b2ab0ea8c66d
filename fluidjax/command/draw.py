"""``fluidjax draw MODEL|SCRIPT``: draws a graph as an SVG, for any browser.

A script runs up to its first training step, whose program is drawn (in eager mode, the ops that produced the loss). A
script that does not train runs to its end, and the first program from which it fetched something is drawn.
"""

from __future__ import annotations

import argparse
import os

from fluidjax.command import models, steps
from fluidjax.drawing import Drawing, draw
from fluidjax.execution.executables.waiting import waiting
from fluidjax.framework import Program
from fluidjax.gradcheck.eager import recorded

NAME, HELP = "draw", "draw a model's or script's graph as an SVG"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    steps.add(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="output file (default: MODEL.svg in the current directory)"
    )


def main(options: argparse.Namespace) -> int:
    """Write the SVG and print its path."""
    name = os.path.basename(os.path.abspath(options.model)).removesuffix(".pdmodel").removesuffix(".py")
    where = os.path.abspath(options.output or f"{name}.svg")  # before a script goes elsewhere
    if steps.is_script(options.model):
        drawing = steps.first_step(
            options.model,
            options.arguments,
            lambda step: _draw(step.program),
            lambda loss: _draw(recorded(loss).program),
            trains=False,
        )
    else:
        drawing = _draw(models.read_program(models.find(options.model)))
    drawing.save(where)
    print(options.output or f"{name}.svg")
    return 0


def _draw(program: Program) -> Drawing:
    with waiting("Drawing"):
        return draw(program)
