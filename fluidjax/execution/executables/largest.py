"""What to report of a step that ran out of memory: the op with the largest result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fluidjax.base.enums import VarType, to_numpy_dtype
from fluidjax.framework import Operator, Program, Variable
from fluidjax.framework.callstack import user_line


def ran_out(error: BaseException) -> bool:
    """Whether memory was refused, by malloc or by XLA."""
    text = str(error).lower()
    return isinstance(error, (RuntimeError, ValueError)) and ("out of memory" in text or "resource_exhausted" in text)


def largest_result(program: Program, feeds: Iterable[Any]) -> str:
    """The op with the largest declared result, with unknown dims as long as the longest feed; "" if there is none."""
    rows = max((n for value in feeds for n in _shape(value)[:1]), default=1)
    sizes = [
        (math.prod(shape) * to_numpy_dtype(var.dtype).itemsize, shape, var, op)
        for op, var in _results(program)
        for shape in [[rows if n < 0 else n for n in var.shape]]
    ]
    if not sizes:
        return ""
    size, shape, var, op = max(sizes, key=lambda found: found[0])
    return f"  largest result: {var.name!r} {shape}, {size / 1e6:.1f} MB, of op {op.type}\n  built at: {user_line(op)}"


def _results(program: Program) -> Iterable[tuple[Operator, Variable]]:
    for block in program.blocks:
        for op in block.ops:
            for name in op.output_arg_names:
                var = block._find_var_recursive(name)
                if var is not None and var.type == VarType.LOD_TENSOR and var.shape is not None:
                    yield op, var


def _shape(value: Any) -> tuple[int, ...]:
    shape = value.shape() if callable(getattr(value, "shape", None)) else np.shape(value)
    return tuple(shape)


def tell(error: BaseException, program: Program, feed: Any) -> None:
    """Add the largest result to an out-of-memory error."""
    values = feed.values() if isinstance(feed, Mapping) else ()
    told = largest_result(program, values)
    if told:
        error.add_note(told)
