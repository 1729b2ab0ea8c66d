"""Random inputs of a saved model, for commands that run it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluidjax.base.enums import to_numpy_dtype
from fluidjax.base.places import CPUPlace
from fluidjax.command.terms import BadUse
from fluidjax.framework import Program, Variable
from fluidjax.lod_tensor import create_lod_tensor

# Rows of each made-up sequence.
_LENGTH = 8


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that control random inputs."""
    parser.add_argument(
        "--batch", type=int, default=1, metavar="N", help="number of samples or sequences (default %(default)s)"
    )
    add_shape(parser, "shape of an input with unknown dimensions")


def add_shape(parser: argparse.ArgumentParser, help: str) -> None:
    """Declare the argument that gives the shapes of inputs."""
    parser.add_argument("--shape", type=shape_of, action="append", default=[], metavar="NAME=N,N,...", help=help)


def shape_of(word: str) -> tuple[str, tuple[int, ...]]:
    """Parse ``image=1,3,224,224``."""
    name, _, sizes = word.partition("=")
    try:
        return name, tuple(int(size) for size in sizes.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is not NAME=SIZE,SIZE,...") from None


def feed(program: Program, names: Sequence[str], batch: int, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """A random input for each name: normally distributed floats, or integers 0 and 1.

    Args:
        batch: the size of unknown first dimensions; the number of sequences.
        shapes: complete shapes of inputs with other unknown dimensions; raises BadUse if one is missing.
    """
    rng = np.random.default_rng(0)
    return {name: _value(program.global_block().var(name), batch, shapes.get(name), rng) for name in names}


def _value(var: Variable, batch: int, given: tuple[int, ...] | None, rng: np.random.Generator) -> Any:
    shape = list(given or var.shape)
    ragged = var.lod_level > 0
    if shape and shape[0] < 0:
        shape[0] = batch * _LENGTH if ragged else batch
    if any(size < 0 for size in shape):
        raise BadUse(
            f"the model leaves open how large its input {var.name!r} is",
            "a size for each dim but the first",
            f"{list(var.shape)}",
            f"say it: --shape {var.name}=" + ",".join(str(batch if size < 0 else size) for size in shape),
        )
    dtype = to_numpy_dtype(var.dtype)
    numbers = rng.standard_normal(shape) if np.issubdtype(dtype, np.floating) else rng.integers(0, 2, shape)
    array = numbers.astype(dtype)
    if not ragged:
        return array
    lengths = [[1] * batch for _ in range(var.lod_level - 1)] + [_lengths(shape[0], batch)]
    return create_lod_tensor(array, lengths, CPUPlace())


def _lengths(rows: int, sequences: int) -> list[int]:
    """Different lengths with a given sum."""
    ends = np.linspace(0, rows, sequences + 1).astype(int)
    return [int(n) for n in np.diff(ends)]
