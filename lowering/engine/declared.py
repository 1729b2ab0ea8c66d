"""The rank that a program of Paddle 2 declares for single numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from lowering import symbols
from lowering.dtypes import LOD_TENSOR
from lowering.program import OpView, ProgramView
from lowering.registry import get_op


def in_declared_rank(program: ProgramView, op: OpView, name: str, value: Any, env: Mapping[str, Any]) -> Any:
    """A single number in a program of Paddle 2 as [] or [1], whichever its variable declares.

    Fluid's ops return [1]; since Paddle 2.5 the same ops return a scalar, and nothing marks the difference.
    What a host op counts may be undeclared, since Paddle infers no shape for it: it is returned unchanged, and so is
    what is computed from it.
    """
    if getattr(value, "ndim", 2) > 1 or getattr(value, "size", 0) != 1:
        return value
    var = program.find_var(op.block_idx, name)
    if var is None or var.type != LOD_TENSOR:
        return value
    scalar = program.has_scalars and var.shape == ()
    if scalar and (get_op(op.type).kind == "host" or any(_undeclared(program, op, n, env) for n in op.input_names())):
        return value
    dims = () if scalar else (1,)
    if value.shape == dims or not isinstance(value, (jax.Array, np.ndarray)):
        return value
    return symbols.same(value.reshape(dims), value)


def _undeclared(program: ProgramView, op: OpView, name: str, env: Mapping[str, Any]) -> bool:
    """Whether a value has a dim though its variable is declared a scalar."""
    var = program.find_var(op.block_idx, name)
    return var is not None and var.type == LOD_TENSOR and var.shape == () and getattr(env.get(name), "ndim", 0) == 1
