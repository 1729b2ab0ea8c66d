"""When two numbers are equal: integers exactly, floats to 1e-8."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowering.dtypes import is_float

NEAR = 1e-8


def equal(lib: Any, x: Any, y: Any) -> Any:
    """Whether X equals Y, element by element; for floats |X - Y| < 1e-8, whatever their size, as Fluid's kernels say.

    The difference is made in the floats' own type and compared in float64. Infinities of one sign are equal, as in
    Paddle 2; in 1.8.5 their difference, NaN, is not below the limit. NaN equals nothing.

    Args:
        lib: ``numpy`` for known values, ``jax.numpy`` for others.
        x: an array.
        y: an array of the same dtype that broadcasts with it.
    """
    same = lib.equal(x, y)
    if not is_float(x.dtype):
        return same
    with np.errstate(invalid="ignore"):  # of infinities
        return same | (lib.abs(x - y).astype(np.float64) < NEAR)


def not_equal(lib: Any, x: Any, y: Any) -> Any:
    """The opposite of ``equal``."""
    return ~equal(lib, x, y)
