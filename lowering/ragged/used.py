"""Functions of single rows, computed for few rows where a padded batch has few."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax

from lowering.ragged.rows import row_numbers
from lowering.values import Array

# Batches of few rows share an executable with room for so many (see ``fluidjax.execution.rooms.buckets``). Larger rooms
# are close to their batches: what is computed in vain there costs less than compiling a function once more.
_LEAST, _MOST = 32, 64


def of_used_rows(function: Callable[[Array], Array], x: Array, nrows: Array | None) -> Array:
    """``function(x)`` for a row-wise function of x [capacity, ...]; rows that are not used are copies of row 0.

    Where there is room for 32 to 64 rows, a run that uses a quarter or a half of it at most computes that part alone.

    Args:
        nrows: how many rows are used; None: all.
    """
    capacity = x.shape[0]
    if nrows is None or not _LEAST <= capacity <= _MOST:
        return function(x)
    rows = row_numbers(capacity)

    def of_first(few: int) -> Callable[[Array], Array]:
        return lambda x: jnp.take(function(x[:few]), jnp.where(rows < few, rows, 0), axis=0, mode="clip")

    quarter, half = capacity // 4, capacity // 2
    choice = (nrows > quarter).astype(jnp.int32) + (nrows > half)
    return lax.switch(choice, [of_first(quarter), of_first(half), function], x)
