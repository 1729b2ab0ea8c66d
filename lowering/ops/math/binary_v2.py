"""Functions of two arguments introduced in Paddle 2; operands are broadcast as in NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from lowering import equality
from lowering.ops.math.elementwise import aligned
from lowering.registry import WISE, op
from lowering.values import concrete


@op(slots={"x1": "X1", "x2": "X2"}, grad="vjp", reads="x1 x2", lod="x1")
def atan2(x1, x2):
    """Out = the angle of the point (X2, X1); integers give float64."""
    if not jnp.issubdtype(x1.dtype, jnp.floating):
        x1, x2 = x1.astype(np.float64), x2.astype(np.float64)
    return jnp.arctan2(x1, x2)


def _larger(x, y):
    return (x >= y) | jnp.isnan(y)


@op(grad="vjp", reads="x y", vendor="")
def elementwise_fmax(x, y):
    """Out = the larger of X and Y, ignoring NaN if the other is a number. For equal operands, X takes the gradient."""
    return jnp.where(_larger(x, y), x, y) if jnp.issubdtype(x.dtype, jnp.floating) else jnp.maximum(x, y)


@op(grad="vjp", reads="x y")
def elementwise_fmin(x, y):
    """Out = the smaller of X and Y, ignoring NaN if the other is a number. For equal operands, X takes the gradient."""
    return jnp.where((x <= y) | jnp.isnan(y), x, y) if jnp.issubdtype(x.dtype, jnp.floating) else jnp.minimum(x, y)


@op(diff="")
def elementwise_heaviside(x, y):
    """Out = 0 where X < 0, Y where X is 0, 1 where X > 0."""
    return jnp.heaviside(x, y)


@op(grad="vjp", reads="x y weight")
def lerp(x, y, weight):
    """Out = X + Weight (Y - X)."""
    return x + weight * (y - x)


def _bitwise(name: str, fn, doc: str) -> None:
    def rule(x, y):
        return fn(x, y)

    rule.__doc__ = doc
    op(f"bitwise_{name}", diff="")(rule)


_bitwise("and", jnp.bitwise_and, "Out = X and Y, bit by bit.")
_bitwise("or", jnp.bitwise_or, "Out = X or Y, bit by bit.")
_bitwise("xor", jnp.bitwise_xor, "Out = X exclusive-or Y, bit by bit.")


@op(rows=WISE, diff="")
def bitwise_not(x):
    """Out = X with all bits inverted."""
    return jnp.bitwise_not(x)


@op(diff="")
def equal_all(x, y):
    """Out = whether X and Y have the same shape and elements."""
    return jnp.all(equality.equal(jnp, x, y)) if x.shape == y.shape else np.asarray(False)


def _tolerance(attr: str, tensor) -> float:
    """A tolerance, which Paddle stores as text to preserve all digits."""
    return float(attr) if tensor is None else float(concrete(tensor, "the tolerance").reshape(-1)[0])


@op(slots={"input": "Input", "other": "Other", "rtol": "Rtol", "atol": "Atol"}, diff="", lod="input")
def isclose(
    input, other, rtol=None, atol=None, *, rtol_: str = "1e-5", atol_: str = "1e-8", equal_nan: bool = False
):  # fmt: skip
    """Elementwise out = |Input - Other| <= atol + rtol |Other|."""
    bounds = {"rtol": _tolerance(rtol_, rtol), "atol": _tolerance(atol_, atol)}
    return jnp.isclose(input, other, equal_nan=equal_nan, **bounds)


@op(lod=None, diff="operands", out="Out InnerCache*?~ XShape*?~", slots={"operands": "Operands"})
def einsum(operands: list, *, equation: str):
    """Out = the sum over the indices of ``equation`` not in its result; the other outputs are left empty."""
    return jnp.einsum(equation, *operands), None, None


@einsum.grad
def _(operands: list, d_out, *, equation):
    _, back = jax.vjp(lambda *parts: jnp.einsum(equation, *parts), *operands)
    return list(back(d_out))


@op(slots={"x": "x", "y": "y"}, out="out", diff="", lod={"out": "x"})
def nextafter(x, y):
    """out = the number next to x in the direction of y."""
    return jnp.nextafter(x, y)


@op(diff="")
def grad_add(x, y, *, axis: int = -1):
    """Out = X + Y, as in elementwise_add: the sum of two gradients."""
    return jnp.add(*aligned(x, y, axis))
