"""A rough estimate of the memory used by a Program's results."""

from __future__ import annotations

from math import prod

from fluidjax.core import VarDesc
from fluidjax.framework import Program, Variable
from lowering.dtypes import to_numpy

__all__ = ["memory_usage"]

DEBUG = False

_UNITS = ("B", "KB", "MB")
# What a run takes beside its results, as Fluid estimates it.
_LEAST, _MOST = 1.05, 1.1


def memory_usage(program: Program, batch_size: int) -> tuple[float, float, str]:
    """Lower and upper estimates of the memory of all results of the first block's ops, for a batch size.

    XLA reuses buffers and fuses ops, so a run usually needs less.

    Args:
        program: a Program; a negative dimension -n of a result's shape is taken to be batch_size * n.
        batch_size: positive.

    Returns:
        (1.05 * total, 1.1 * total, unit), with unit B, KB or MB.

    Raises:
        TypeError: not a Program.
        ValueError: ``batch_size`` is not positive, or a result has several negative dimensions.
    """
    if not isinstance(program, Program):
        raise TypeError(f"memory_usage takes a Program, received {type(program)}. Pass fluid.default_main_program().")
    if batch_size <= 0:
        raise ValueError(f"memory_usage: batch_size must be positive, received {batch_size}. Pass the rows of a batch.")
    block = program.global_block()
    written = dict.fromkeys(name for op in block.ops for name in op.output_arg_names)
    found = [block.vars[name] for name in written if name in block.vars]
    total = float(sum(_size(var, batch_size) for var in found if var.type == VarDesc.VarType.LOD_TENSOR))
    unit = 0
    while total > 1024 and unit < len(_UNITS) - 1:
        total /= 1024
        unit += 1
    return total * _LEAST, total * _MOST, _UNITS[unit]


def _size(var: Variable, batch_size: int) -> int:
    if sum(dim < 0 for dim in var.shape) > 1:
        raise ValueError(
            f"memory_usage: variable {var.name!r} has shape {tuple(var.shape)}, of which only one dim may be negative."
            " Give the others their sizes."
        )
    size = prod(dim if dim >= 0 else -dim * batch_size for dim in var.shape) * to_numpy(int(var.dtype)).itemsize
    if DEBUG:
        print(f"{var.name}: {size} bytes")
    return size
