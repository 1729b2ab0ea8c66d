"""``fluidjax convert MODEL --to FORMAT OUT``: converts a saved model to another format, and verifies the result.

npz          the parameters, for NumPy
safetensors  the parameters, for any program that reads this format
jax          a directory: model.py, a readable module of plain JAX, and weights.npz
c            a directory: model.c, its executable, and its weights; C99 that needs nothing but libm
stablehlo    a directory: the model for any JAX (jax.export) and any StableHLO compiler, for CPU, CUDA and TPU;
             a model that draws random numbers takes a key's data (uint32 [2]) after its inputs; a ragged input is
             {"data": rows, "lod": [offsets of each level]}
"""

from __future__ import annotations

import argparse
from typing import Any

from fluidjax.command import models
from fluidjax.execution.executables.waiting import waiting
from fluidjax.export.files import FORMATS, PLATFORMS, Model

NAME, HELP = "convert", "convert a model to another format"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", metavar="MODEL", help="a model directory, or its program file")
    parser.add_argument("out", metavar="OUT", help="the file or directory to write")
    parser.add_argument("--to", required=True, choices=sorted(FORMATS))
    parser.add_argument("--params", metavar="FILE", help="name of the combined parameter file")
    parser.add_argument("--batch", type=_count, metavar="N", help="value of unknown dimensions (c: 1)")
    parser.add_argument(
        "--size", type=_sizes, action="append", default=[], metavar="INPUT=N,N",
        help="values of the unknown dimensions of one input, in order; can be repeated",
    )  # fmt: skip
    parser.add_argument("--platforms", default=",".join(PLATFORMS), help="stablehlo: a subset of %(default)s")
    parser.add_argument(
        "--rows", type=_count, metavar="N", help="maximum number of rows of a ragged input (16 per sequence)"
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


def _sizes(word: str) -> tuple[str, list[int]]:
    name, _, numbers = word.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{word} is not INPUT=N,N")
    return name, [_count(number) for number in numbers.split(",")]


def main(options: argparse.Namespace) -> int:
    """Write the files and print their names."""
    path = models.find(options.model, options.params)
    model = Model(path.folder, path.program, path.parameters)
    extra: dict[str, Any] = {}
    if options.to in ("c", "jax", "stablehlo"):
        extra = {"batch": options.batch, "rows": options.rows, "sizes": dict(options.size)}
    if options.to == "stablehlo":
        extra["platforms"] = options.platforms.split(",")
    if options.to == "c":
        extra |= {
            "train": options.train,
            "fetch": [name for name in (options.fetch or "").split(",") if name],
            "inside": None if options.weights is None else options.weights == "inside",
            "check": not options.no_check,
        }
    with waiting(f"Converting to {options.to}"):
        files = model.write(options.out, options.to, **extra)
    print("\n".join(files))
    return 0
