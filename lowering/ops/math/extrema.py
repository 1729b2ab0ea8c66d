"""Bounds that a NaN passes.

XLA:CPU hands large reductions, with what stands around them, to a library whose maximum and minimum take the other
operand in place of a NaN: softmax of nothing but NaN would be uniform, and the loss calm. A select is not taken there.
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
