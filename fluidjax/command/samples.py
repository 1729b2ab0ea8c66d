"""Made-up inputs of a saved model, for commands that have to run it."""

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
    """Declare what says how inputs are made up."""
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="samples, or sequences (default %(default)s)")
    parser.add_argument(
        "--shape", type=shape_of, action="append", default=[], metavar="NAME=N,N,...", help="of an open input"
    )


def shape_of(word: str) -> tuple[str, tuple[int, ...]]:
    """``image=1,3,224,224`` of a command line."""
    name, _, sizes = word.partition("=")
    try:
        return name, tuple(int(size) for size in sizes.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is not NAME=SIZE,SIZE,...") from None


def feed(program: Program, names: Sequence[str], batch: int, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """An input for each name: floats drawn from a normal distribution, 0 and 1 for whole numbers.

    Args:
        batch: the size of first dims that are open; the number of sequences.
        shapes: whole shapes of inputs whose other dims are open; BadUse where one is missing.
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
    """Lengths that differ and add up."""
    ends = np.linspace(0, rows, sequences + 1).astype(int)
    return [int(n) for n in np.diff(ends)]
