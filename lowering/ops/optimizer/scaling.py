"""Scaled losses of Paddle 2's mixed precision: gradients without their scale, and the scale of the next step."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from lowering.ops.optimizer.sparse import scalar
from lowering.registry import op


@op(out="Out* FoundInfinite", diff="", lod=None, inplace={"Out": "x"})
def check_finite_and_unscale(x: list, scale):
    """Out = X / Scale; FoundInfinite [1] = whether an element of X is infinite or no number."""
    found = jnp.zeros((1,), bool)
    for value in x:
        found = found | ~jnp.isfinite(value).all()
    return [value / scalar(scale, value.dtype) for value in x], found


@op(
    out="Out* LossScaling OutGoodSteps OutBadSteps",
    diff="",
    lod=None,
    inplace={
        "Out": "x",
        "LossScaling": "prev_loss_scaling",
        "OutGoodSteps": "in_good_steps",
        "OutBadSteps": "in_bad_steps",
    },
)
def update_loss_scaling(
    x: list,
    found_infinite,
    prev_loss_scaling,
    in_good_steps,
    in_bad_steps,
    stop_update=None,
    *,
    incr_every_n_steps: int,
    decr_every_n_nan_or_inf: int,
    incr_ratio: float,
    decr_ratio: float,
    stop_update_: bool = False,
):
    """Out = X, or zeros where FoundInfinite; LossScaling grows after good steps in a row, and shrinks after bad ones.

    It is multiplied by ``incr_ratio``, unless that is infinite, after ``incr_every_n_steps`` good ones, and by
    ``decr_ratio``, down to 1, after ``decr_every_n_nan_or_inf`` bad ones. Where ``StopUpdate``, only Out changes.
    """
    bad = found_infinite.reshape(())
    out = [jnp.where(bad, jnp.zeros_like(value), value) for value in x]
    if stop_update is None and stop_update_:
        return out, prev_loss_scaling, in_good_steps, in_bad_steps
    goods, bads = jnp.where(bad, 0, in_good_steps + 1), jnp.where(bad, in_bad_steps + 1, 0)
    grow, shrink = goods == incr_every_n_steps, bads == decr_every_n_nan_or_inf
    larger = prev_loss_scaling * incr_ratio
    scale = jnp.where(grow & jnp.isfinite(larger), larger, prev_loss_scaling)
    scale = jnp.where(shrink, jnp.maximum(prev_loss_scaling * decr_ratio, 1), scale).astype(prev_loss_scaling.dtype)
    goods, bads = (jnp.where(done, 0, n).astype(np.int32) for done, n in ((grow, goods), (shrink, bads)))
    if stop_update is None:
        return out, scale, goods, bads
    kept = stop_update.reshape(())
    new = ((scale, prev_loss_scaling), (goods, in_good_steps), (bads, in_bad_steps))
    return out, *(jnp.where(kept, old, value) for value, old in new)
