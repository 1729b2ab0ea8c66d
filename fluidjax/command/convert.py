"""``fluidjax convert MODEL --to FORMAT OUT``: a saved model in another format, read back and compared.

npz          the parameters, for NumPy
safetensors  the parameters, for whatever reads them
stablehlo    a folder: the model for any JAX (jax.export) and any StableHLO compiler, for CPU, CUDA and TPU
"""

from __future__ import annotations

import argparse

from fluidjax.command import models
from fluidjax.export.files import FORMATS, PLATFORMS, Model

NAME, HELP = "convert", "write a model in another format"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", metavar="MODEL", help="a model's folder, or its program's file")
    parser.add_argument("out", metavar="OUT", help="the file, or folder, to write")
    parser.add_argument("--to", required=True, choices=sorted(FORMATS))
    parser.add_argument("--params", metavar="FILE", help="the name of the file that holds all parameters")
    parser.add_argument("--batch", type=int, metavar="N", help="stablehlo: a fixed size for what the model leaves open")
    parser.add_argument("--platforms", default=",".join(PLATFORMS), help="stablehlo: of %(default)s")


def main(options: argparse.Namespace) -> int:
    """Write the files and name them."""
    path = models.find(options.model, options.params)
    model = Model(path.folder, path.program, path.parameters)
    extra = {}
    if options.to == "stablehlo":
        extra = {"batch": options.batch, "platforms": options.platforms.split(",")}
    for file in model.write(options.out, options.to, **extra):
        print(file)
    return 0
