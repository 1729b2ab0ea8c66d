"""Matrix products of Paddle 2, with operands broadcast as in NumPy."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lowering.errors import NeedsExact
from lowering.registry import op
from lowering.values import data_of, is_padded


def _swapped(x, swap: bool):
    return jnp.swapaxes(x, -1, -2) if swap and x.ndim > 1 else x


@op(grad="vjp", reads="x y")
def matmul_v2(x, y, *, trans_x: bool = False, trans_y: bool = False):
    """Out = X Y over the last two dimensions, optionally transposed; a vector X is a row, a vector Y a column.

    Dims before them broadcast. Transposing a vector does nothing.
    """
    return jnp.matmul(_swapped(x, trans_x), _swapped(y, trans_y))


@matmul_v2.with_room
def _(x: Any, y: Any, *, trans_x, trans_y):
    wide, other = data_of(x).ndim, data_of(y).ndim
    if is_padded(y) or wide < max(2, other) or (trans_x and wide == 2) or (other == wide > 2 and y.shape[0] != 1):
        raise NeedsExact("a product across padded rows")
    return x.with_data(jnp.matmul(_swapped(x.data, trans_x), _swapped(data_of(y), trans_y)))


@op(grad="vjp", reads="x vec")
def mv(x, vec):
    """Out = X [M, N] Vec [N]."""
    return x @ vec


@op(grad="vjp", lod=None)
def multi_dot(x: list):
    """Out = the product of all X, evaluated in the cheapest order; the first and last may be vectors."""
    return jnp.linalg.multi_dot(x) if len(x) > 1 else x[0]
