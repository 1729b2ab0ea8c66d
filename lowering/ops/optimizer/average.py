"""average_accumulates: the running sums of ModelAverage."""

from __future__ import annotations

import jax.numpy as jnp

from lowering.ragged.infer import Facts, Inputs, inferred
from lowering.registry import Long, op
from lowering.values import Array

# The first sum is moved to the second after this many updates, so that adding to it stays exact.
_MOVE_AFTER = 16384

_SLOTS = ["sum_1", "sum_2", "sum_3", "num_accumulates", "old_num_accumulates", "num_updates"]


@inferred
def _sums_like_the_parameter(of: Inputs) -> Facts:
    """The sums have the parameter's shape, also where a server has a part of it; the counts are numbers."""
    shape = of("param").shape
    return {f"out_{name}": (shape if name.startswith("sum") else (1,), 0, None) for name in _SLOTS}


@op(
    out=" ".join(f"out_{name}" for name in _SLOTS),
    slots={"param": "param", **{f"{way}_{name}": f"{way}_{name}" for way in ("in", "out") for name in _SLOTS}},
    lod=None,
    infer=_sums_like_the_parameter,
    inplace={f"out_{name}": f"in_{name}" for name in _SLOTS},
)
def average_accumulates(
    param,
    in_sum_1,
    in_sum_2,
    in_sum_3,
    in_num_accumulates,
    in_old_num_accumulates,
    in_num_updates,
    *,
    average_window: float = 0.0,
    max_average_window: Long,
    min_average_window: Long = 10000,
):
    """Add Param to sum_1 and count it; a full window is moved to sum_3 and a new one starts.

    A window is full if num_accumulates >= min_average_window and num_accumulates >= min(max_average_window,
    num_updates * average_window). The average is (sum_1 + sum_2 + sum_3) / (num_accumulates + old_num_accumulates).
    """
    updates, count = in_num_updates + 1, in_num_accumulates + 1
    sum_1 = in_sum_1 + param
    move = jnp.reshape(updates % _MOVE_AFTER == 0, ())
    sum_2 = jnp.where(move, in_sum_2 + sum_1, in_sum_2)
    sum_1 = jnp.where(move, jnp.zeros_like(sum_1), sum_1)
    limit = jnp.minimum(max_average_window, (updates * average_window).astype(jnp.int64))
    full = jnp.reshape((count >= min_average_window) & (count >= limit), ())

    def reset(x: Array) -> Array:
        return jnp.where(full, jnp.zeros_like(x), x)

    sum_3 = jnp.where(full, sum_1 + sum_2, in_sum_3)
    old = jnp.where(full, count, in_old_num_accumulates)
    return reset(sum_1), reset(sum_2), sum_3, reset(count), old, updates
