"""``fluidjax convert MODEL --to FORMAT OUT``: a saved model in another format, read back and compared.

npz          the parameters, for NumPy
safetensors  the parameters, for whatever reads them
jax          a folder: model.py, a readable module of plain JAX, and weights.npz
c            a folder: model.c, its executable, and its weights; C99 that needs nothing but libm
stablehlo    a folder: the model for any JAX (jax.export) and any StableHLO compiler, for CPU, CUDA and TPU
"""

from __future__ import annotations

import argparse
from typing import Any

from fluidjax.command import models
from fluidjax.execution.waiting import waiting
from fluidjax.export.files import FORMATS, PLATFORMS, Model

NAME, HELP = "convert", "write a model in another format"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", metavar="MODEL", help="a model's folder, or its program's file")
    parser.add_argument("out", metavar="OUT", help="the file, or folder, to write")
    parser.add_argument("--to", required=True, choices=sorted(FORMATS))
    parser.add_argument("--params", metavar="FILE", help="the name of the file that holds all parameters")
    parser.add_argument("--batch", type=_count, metavar="N", help="a fixed size for what the model leaves open (c: 1)")
    parser.add_argument("--platforms", default=",".join(PLATFORMS), help="stablehlo: of %(default)s")
    parser.add_argument(
        "--rows", type=_count, metavar="N", help="c, jax: the most rows of a ragged input (16 for each sequence)"
    )
    c = parser.add_argument_group("for c")
    c.add_argument("--train", action="store_true", help="steps replace the parameters that the program writes")
    c.add_argument("--fetch", metavar="NAMES", help="other outputs than the model's own, with commas")
    c.add_argument("--weights", choices=("inside", "beside"), help="in model.c, or in model.safetensors (large ones)")
    c.add_argument("--no-check", action="store_true", help="write model.c alone: not compiled, not compared")


def _count(word: str) -> int:
    number = int(word)
    if not 0 < number < 1 << 31:
        raise argparse.ArgumentTypeError(f"{word} is not a number from 1 to {(1 << 31) - 1}")
    return number


def main(options: argparse.Namespace) -> int:
    """Write the files and name them."""
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
