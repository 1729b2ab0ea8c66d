"""Bounds that preserve NaN.

XLA:CPU passes large reductions, with adjacent ops, to a library whose maximum and minimum ignore NaN operands: the
softmax of nothing but NaN would be uniform, and the loss finite. A select is not passed on.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from lowering.values import Array


def at_least(x: Array, low: Any) -> Array:
    """max(x, low), NaN where x is NaN."""
    return jnp.where(x < low, jnp.asarray(low, x.dtype), x)


def at_most(x: Array, high: Any) -> Array:
    """min(x, high), NaN where x is NaN."""
    return jnp.where(x > high, jnp.asarray(high, x.dtype), x)


def exp_at_least(x: Array, low: float) -> Array:
    """exp(max(x, low)), NaN where x is NaN.

    The bound stands after exp: XLA then makes one pass of x, as it does of the maximum that would drop the NaN.
    """
    return at_least(jnp.exp(x), math.exp(low))
