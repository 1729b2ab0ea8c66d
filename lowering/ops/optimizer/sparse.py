"""What the optimizer rules share: steps of sparse gradients, and the learning rate as a scalar."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lowering.errors import SlotError
from lowering.values import Array, SelectedRows, data_of


def scalar(x: Any, dtype: Any) -> Array:
    """The only element of a [1] tensor, in ``dtype``."""
    return jnp.reshape(data_of(x), ()).astype(dtype)


def dense(grad: Any) -> Array:
    """A gradient as a dense array."""
    return grad.to_dense() if isinstance(grad, SelectedRows) else data_of(grad)


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
