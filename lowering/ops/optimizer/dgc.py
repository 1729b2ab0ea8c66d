"""What deep gradient compression leaves to one process: the step of its momentum and its clipping of a gradient."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lowering.ops.math.clip_by_norm import clip_by_norm
from lowering.ops.optimizer.momentum import momentum, sgd
from lowering.ops.optimizer.sparse import scalar
from lowering.registry import op
from lowering.values import Array

_OWN_NAMES = {"current_step": "current_step", "nranks": "nranks"}


def _begun(current_step: Any, rampup_begin_step: float) -> Array:
    """Whether compression has begun; both steps are whole numbers in floats."""
    return scalar(current_step, jnp.int32) >= int(rampup_begin_step)


@op(
    out="Grad_out ParamOut VelocityOut",
    lod=None,
    slots=_OWN_NAMES,
    inplace={"Grad_out": "grad", "ParamOut": "param", "VelocityOut": "velocity"},
)
def dgc_momentum(
    current_step,
    nranks,
    param,
    grad,
    velocity,
    learning_rate,
    *,
    mu: float,
    use_nesterov: bool = False,
    rampup_begin_step: float = -1.0,
):
    """Grad_out = Grad / nranks, and with it a step of momentum before step ``rampup_begin_step``, of SGD from it on.

    From there on, the momentum is in the gradient, which has been compressed. Where ``rampup_begin_step`` is -1 or
    less, nothing changes.
    """
    if int(rampup_begin_step) < 0:
        return grad, param, velocity
    mean = grad / scalar(nranks, grad.dtype)
    moved, moving = momentum(param, mean, velocity, learning_rate, mu=mu, use_nesterov=use_nesterov)
    begun = _begun(current_step, rampup_begin_step)
    return mean, jnp.where(begun, sgd(param, learning_rate, mean), moved), jnp.where(begun, velocity, moving)


@op(slots=_OWN_NAMES, inplace={"Out": "x"})
def dgc_clip_by_norm(current_step, x, *, max_norm: float, rampup_begin_step: float = -1.0):
    """Out is ``clip_by_norm`` of X from step ``rampup_begin_step`` on; X before it, or where it is -1 or less."""
    if int(rampup_begin_step) < 0:
        return x
    return jnp.where(_begun(current_step, rampup_begin_step), clip_by_norm(x, max_norm=max_norm), x)
