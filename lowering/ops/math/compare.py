"""Comparisons and logic. Results are bool; none has a gradient."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from lowering import equality
from lowering.dtypes import BOOL
from lowering.errors import NeedsExact
from lowering.ops.math.broadcast import infer_broadcast
from lowering.ops.math.elementwise import aligned
from lowering.program import PADDLE_2
from lowering.registry import MASKED, WISE, op
from lowering.values import LoDArray, Meta, is_concrete


def _compared(compare: Callable, x, y, axis: int):
    """``compare(numpy or jax.numpy, X, Y)``; known values, as a loop's first condition, need no kernel."""
    x, y = aligned(x, y, axis)
    if is_concrete(x) and is_concrete(y) and x.dtype == y.dtype:
        return np.asarray(compare(np, x, y))
    return compare(jnp, x, y)


def _ordered(name: str, x, y, axis: int):
    """The comparison NumPy and JAX know as ``name``."""
    return _compared(lambda lib, x, y: getattr(lib, name)(x, y), x, y, axis)


_comparison = op(
    vendor="force_cpu", rows=WISE, fold=True, infer=infer_broadcast(BOOL, as_x=True), diff="", compares=True
)


@_comparison
def less_than(x, y, *, axis: int = -1):
    """Out = X < Y, broadcast as in elementwise_add."""
    return _ordered("less", x, y, axis)


@_comparison
def less_equal(x, y, *, axis: int = -1):
    """Out = X <= Y."""
    return _ordered("less_equal", x, y, axis)


@_comparison
def greater_than(x, y, *, axis: int = -1):
    """Out = X > Y."""
    return _ordered("greater", x, y, axis)


@_comparison
def greater_equal(x, y, *, axis: int = -1):
    """Out = X >= Y."""
    return _ordered("greater_equal", x, y, axis)


@_comparison
def equal(x, y, *, axis: int = -1):
    """Out = X == Y; floats that differ by less than 1e-8 are equal (``lowering.equality``)."""
    return _compared(equality.equal, x, y, axis)


@_comparison
def not_equal(x, y, *, axis: int = -1):
    """Out = X != Y, the opposite of ``equal``."""
    return _compared(equality.not_equal, x, y, axis)


@op(lod=None, diff="")
def equal_reduce(x, y, *, axis: int = -1):
    """Out[1] = whether all elements of X and the broadcast Y are equal; False for shapes that do not broadcast."""
    if x.shape != y.shape and x.size == y.size:
        return jnp.zeros((1,), np.bool_)
    return jnp.all(equality.equal(jnp, *aligned(x, y, axis))).reshape(1)


def _logic(compute: Callable, x: LoDArray, y: LoDArray, ctx):
    """``compute(X, Y)``, Y in X's shape if it has as many elements: Fluid goes by these alone.

    How many they are is not known of padded rows beside others. Since Paddle 2 the operands broadcast.
    """
    a, b = x.data, y.data
    if ctx.release >= PADDLE_2 or a.shape == b.shape:
        return compute(a, b)
    if x.padded != y.padded and min(a.size, b.size) > 1:
        raise NeedsExact("logic of padded rows beside a value of another shape")
    return compute(a, b.reshape(a.shape) if a.size == b.size else b)


_logical = op(rows=WISE, fold=True, diff="", infer=infer_broadcast(BOOL, as_x=True, by_count=True))


@_logical
def logical_and(x: LoDArray, y: LoDArray, *, ctx):
    """Out = X and Y."""
    return _logic(jnp.logical_and, x, y, ctx)


@_logical
def logical_or(x: LoDArray, y: LoDArray, *, ctx):
    """Out = X or Y."""
    return _logic(jnp.logical_or, x, y, ctx)


@_logical
def logical_xor(x: LoDArray, y: LoDArray, *, ctx):
    """Out = X xor Y."""
    return _logic(jnp.logical_xor, x, y, ctx)


@op(rows=WISE, fold=True, diff="")
def logical_not(x):
    """Out = not X."""
    return jnp.logical_not(x)


@op(lod=None, rows=MASKED, fold=True, diff="")
def is_empty(x: Meta):
    """Out[1] = whether X has no elements."""
    if x.nrows is not None:
        return (x.nrows == 0).reshape(1)
    return np.array([np.prod(x.shape) == 0])
