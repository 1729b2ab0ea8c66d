"""dropout: zeroes elements at random, keeping the mask for the gradient."""

import jax
import jax.numpy as jnp

from lowering.draws.random_bits import Placed, bits
from lowering.dtypes import UINT8
from lowering.engine.shapes.infer_rules import Out, by_rule
from lowering.registry import Wise, op


def _like_x(shapes, attr):
    """Mask has no LoD, and is not there at test time."""
    x = shapes["X"]
    if "Seed" in shapes:
        return None
    return {"Out": x} if attr("is_test") else {"Out": x, "Mask": Out(x, UINT8)}


@op(out="Out Mask~", diff="x", rows=Wise("x"), infer=by_rule(_like_x))
def dropout(
    x,
    seed=None,
    *,
    dropout_prob: float = 0.5,
    is_test: bool = False,
    fix_seed: bool = False,
    seed_: int = 0,
    dropout_implementation: str = "downgrade_in_infer",
    key,
):
    """Out = X * Mask, where Mask (uint8) is 1 with probability 1 - dropout_prob.

    downgrade_in_infer scales by 1 - dropout_prob at test time, upscale_in_train by its inverse during training (a
    probability of 1 gives zeros). There is no Mask at test time.
    """
    upscale = dropout_implementation == "upscale_in_train"
    keep = 1 - dropout_prob
    if is_test:
        return (x if upscale else x * keep), None
    if dropout_prob == 1:
        return jnp.zeros_like(x), jnp.zeros(x.shape, jnp.uint8)
    if seed is not None:
        key = _reseeded(key, seed.reshape(()).astype(jnp.uint32))
    elif fix_seed:
        key = _reseeded(key, seed_)
    mask = kept(key, x.shape, dropout_prob)
    return jnp.where(mask, x / keep if upscale else x, 0), mask.astype(jnp.uint8)


def _reseeded(key, seed):
    new = jax.random.key(seed)
    return key._replace(key=new) if isinstance(key, Placed) else new


def kept(key, shape, dropout_prob):
    """bool[shape], False with probability `dropout_prob` (to 2^-32)."""
    if dropout_prob == 0:
        return jnp.ones(shape, bool)
    threshold = min(round(dropout_prob * 2**32), 2**32 - 1)
    return bits(key, shape) >= jnp.uint32(threshold)


@dropout.grad(rows=Wise("mask d_out"))
def _(mask, d_out, *, dropout_prob, dropout_implementation):
    if dropout_implementation == "upscale_in_train":
        d_out = jnp.zeros_like(d_out) if dropout_prob == 1 else d_out / (1 - dropout_prob)
    return d_out * mask.astype(d_out.dtype)


@op(out="Out Mask~", diff="x", lod=None)
def dropout_nd(
    x,
    seed=None,
    *,
    dropout_prob: float = 0.5,
    is_test: bool = False,
    fix_seed: bool = False,
    seed_: int = 0,
    dropout_implementation: str = "downgrade_in_infer",
    axis: list[int] = (),
    key,
):
    """As dropout, with what is drawn over the axes ``axis`` alone: Mask has size 1 along the others."""
    sizes = [n if i in axis or not axis else 1 for i, n in enumerate(x.shape)]
    given = {"dropout_prob": dropout_prob, "is_test": is_test, "fix_seed": fix_seed, "seed_": seed_}
    factor, mask = dropout(
        jnp.ones(sizes, x.dtype), seed, dropout_implementation=dropout_implementation, key=key, **given
    )
    return x * factor, mask


@dropout_nd.grad
def _(mask, d_out, *, dropout_prob, dropout_implementation):
    return dropout.gradient.fn(mask, d_out, dropout_prob=dropout_prob, dropout_implementation=dropout_implementation)
