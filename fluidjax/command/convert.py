"""``fluidjax convert MODEL --to FORMAT OUT``: converts a saved model to another format, and verifies the result.

npz          the parameters, for NumPy
safetensors  the parameters, for any program that reads this format
jax          a directory: model.py, a readable module of plain JAX, and weights.npz
c            a directory: model.c, its executable, and its weights; C99 that needs nothing but libm
stablehlo    a directory: the model for any JAX (jax.export) and any StableHLO compiler, for CPU, CUDA and TPU;
             a model that draws random numbers takes a key's data (uint32 [2]) after its inputs
"""

from __future__ import annotations

import argparse
from typing import Any

from fluidjax.command import models
from fluidjax.execution.waiting import waiting
from fluidjax.export.files import FORMATS, PLATFORMS, Model

NAME, HELP = "convert", "convert a model to another format"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", metavar="MODEL", help="a model directory, or its program file")
    parser.add_argument("out", metavar="OUT", help="the file or directory to write")
    parser.add_argument("--to", required=True, choices=sorted(FORMATS))
    parser.add_argument("--params", metavar="FILE", help="name of the combined parameter file")
    parser.add_argument("--batch", type=_count, metavar="N", help="value of unknown dimensions (c: 1)")
    parser.add_argument("--platforms", default=",".join(PLATFORMS), help="stablehlo: a subset of %(default)s")
    parser.add_argument(
        "--rows", type=_count, metavar="N", help="c, jax: maximum number of rows of a ragged input (16 per sequence)"
    )
    c = parser.add_argument_group("for c")
    c.add_argument("--train", action="store_true", help="training: each run updates the parameters")
    c.add_argument("--fetch", metavar="NAMES", help="comma-separated outputs, overriding the model's")
    c.add_argument("--weights", choices=("inside", "beside"), help="embed in model.c, or store in model.safetensors")
    c.add_argument("--no-check", action="store_true", help="only write model.c, without compiling and verifying it")


def _count(word: str) -> int:
    number = int(word)
    if not 0 < number < 1 << 31:
        raise argparse.ArgumentTypeError(f"{word} is not a number from 1 to {(1 << 31) - 1}")
    return number


def main(options: argparse.Namespace) -> int:
    """Write the files and print their names."""
    path = models.find(options.model, options.params)
    model = Model(path.folder, path.program, path.parameters)
    extra: dict[str, Any] = {}
    if options.to == "stablehlo":
        extra = {"batch": options.batch, "platforms": options.platforms.split(",")}
    if options.to == "jax":
        extra = {"batch": options.batch, "rows": options.rows}
    if options.to == "c":
        inside = None if options.weights is None else options.weights == "inside"
        fetch = [name for name in (options.fetch or "").split(",") if name]
        extra = {
            "batch": options.batch, "rows": options.rows, "train": options.train, "fetch": fetch, "inside": inside,
            "check": not options.no_check,
        }  # fmt: skip
    with waiting(f"Converting to {options.to}"):
        files = model.write(options.out, options.to, **extra)
    print("\n".join(files))
    return 0
