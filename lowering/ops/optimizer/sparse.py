"""What the optimizer rules share: steps of sparse gradients, and the learning rate as a scalar."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import lax

from lowering.errors import SlotError
from lowering.values import Array, SelectedRows, data_of


def scalar(x: Any, dtype: Any) -> Array:
    """The only element of a [1] tensor, in ``dtype``."""
    return jnp.reshape(data_of(x), ()).astype(dtype)


def dense(grad: Any) -> Array:
    """A gradient as a dense array."""
    return grad.to_dense() if isinstance(grad, SelectedRows) else data_of(grad)


def looked_up(grad: Any) -> Array:
    """A gradient as a dense array, as Paddle's momentum and rmsprop see it.

    Their kernels look each row of the table up by binary search in the rows of the merged gradient. Where a row is
    repeated, merging sorts them, and all are found. Where none is, they stay in the order in which they came: unless
    that is ascending, the search passes some, whose gradient is then zero.
    """
    if not isinstance(grad, SelectedRows) or grad.rows.shape[0] < 2:
        return dense(grad)
    seen = _repeats(grad) | _found(grad)
    return replace(grad, values=jnp.where(_beside(seen, grad.values), grad.values, 0)).to_dense()


def _repeats(grad: SelectedRows) -> Array:
    """Whether a row comes twice: of those that name one place, only one is left there."""
    entries = jnp.arange(grad.rows.shape[0], dtype=jnp.int32)
    real = True if grad.nrows is None else entries < grad.nrows
    rows = jnp.where(real, grad.rows, grad.height)
    left = jnp.zeros(grad.height, jnp.int32).at[rows].set(entries, mode="drop")
    return jnp.any(real & (left.at[rows].get(mode="clip") != entries))


def _found(grad: SelectedRows) -> Array:
    """For each entry, whether a binary search among all entries, in whatever order, comes upon its row."""
    rows, count = jnp.asarray(grad.rows), grad.rows.shape[0]
    begin = jnp.zeros(count, jnp.int32)
    last = jnp.full(count, count - 1 if grad.nrows is None else grad.nrows - 1, jnp.int32)

    def halve(_: Any, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        begin, last, found = state
        middle = (begin + last) >> 1
        met = rows.at[middle].get(mode="clip")
        found |= (met == rows) & (begin <= last)
        return jnp.where(met < rows, middle + 1, begin), jnp.where(met < rows, last, middle - 1), found

    return lax.fori_loop(0, count.bit_length(), halve, (begin, last, begin > 0))[2]


def _beside(chosen: Array, values: Array) -> Array:
    """A number for each row in the rank of ``values``."""
    return chosen.reshape(chosen.shape + (1,) * (values.ndim - 1))


def only_dense(grad: Any, op_type: str) -> Array:
    """A dense gradient; SlotError for a sparse one, which the op's real kernel rejects too."""
    if isinstance(grad, SelectedRows):
        raise SlotError(
            f"op {op_type} expects a dense gradient in slot Grad, received SelectedRows (of a look-up with"
            " is_sparse=True); build the embedding with is_sparse=False, or use SGD, Momentum, Adagrad, Adam or Lamb"
        )
    return data_of(grad)


def unless_empty(grad: Any, new: Array, old: Array) -> Array:
    """What a step makes of a value: ``old`` after all if its gradient is sparse and has no row at all."""
    if not isinstance(grad, SelectedRows):
        return new
    if grad.nrows is None:
        return new if grad.rows.shape[0] else data_of(old)
    return jnp.where(grad.nrows > 0, new, data_of(old))


def take_rows(x: Array, grad: SelectedRows) -> Array:
    """The rows of ``x`` that a merged gradient touches; zeros for its padding entries."""
    return jnp.asarray(x).at[grad.rows].get(mode="fill", fill_value=0)


def put_rows(x: Array, grad: SelectedRows, rows: Array) -> Array:
    """``x`` with the rows that a merged gradient touches replaced."""
    return jnp.asarray(x).at[grad.rows].set(rows.astype(x.dtype), mode="drop")
