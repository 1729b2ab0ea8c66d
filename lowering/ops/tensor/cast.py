"""Copies: cast and assign."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from lowering.dtypes import is_float, to_numpy
from lowering.program import OpSpec
from lowering.registry import WISE, Value, op


@op(rows=WISE, fold=True, linear=True)
def cast(x, *, out_dtype: int, in_dtype: int):
    """Out = X converted to dtype ``out_dtype``.

    A float that an integer type cannot represent is undefined in C++. As on x86, it becomes the lowest int32 (int64 for
    int64), and narrower types take the low bits of the int32; XLA by itself would saturate.
    """
    del in_dtype
    dtype = to_numpy(out_dtype)
    if is_float(x.dtype) and np.issubdtype(dtype, np.integer):
        return _truncated(x, dtype)
    return x.astype(dtype)


def _truncated(x: Any, dtype: np.dtype) -> Any:
    """Floats as integers, rounded towards zero."""
    wide = np.int64 if dtype == np.int64 else np.int32
    lowest = np.iinfo(wide).min
    bound = -float(lowest)
    held = (x < bound) & (x >= -bound)
    xp: Any = np if isinstance(x, np.ndarray) else jnp
    return xp.where(held, xp.where(held, x, 0).astype(wide), xp.asarray(lowest, wide)).astype(dtype)


@cast.grad_maker
def _(g):
    attrs = dict(g.attrs, out_dtype=g.attrs["in_dtype"], in_dtype=g.attrs["out_dtype"])
    return [OpSpec("cast", {"X": g.output_grad("Out")}, {"Out": g.input_grad("X")}, attrs)]


@op(rows=WISE, fold=True, linear=True)
def assign(x: Value = None):
    """Out = X: a tensor, SelectedRows or a tensor array."""
    return x


@assign.grad_maker
def _(g):
    return [OpSpec("assign", {"X": g.output_grad("Out")}, {"Out": g.input_grad("X")}, dict(g.attrs))]
