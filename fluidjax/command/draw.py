"""``fluidjax draw MODEL``: the model's graph as an SVG, which any browser shows."""

from __future__ import annotations

import argparse
import os

from fluidjax.command import models
from fluidjax.drawing import draw
from fluidjax.execution.waiting import waiting

NAME, HELP = "draw", "draw a model's graph as an SVG"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", metavar="MODEL", help="a model's folder, or a program's file")
    parser.add_argument("-o", "--output", metavar="FILE", help="the SVG; default MODEL's name with .svg, here")


def main(options: argparse.Namespace) -> int:
    """Write it and say where it is."""
    path = models.find(options.model)
    name = os.path.basename(os.path.abspath(options.model)).removesuffix(".pdmodel")
    with waiting("Drawing"):
        drawing = draw(models.read_program(path))
    print(drawing.save(options.output or f"{name}.svg"))
    return 0
