"""Attention and related ops, fused as in Paddle 2."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lowering.ops.shared import own_names, wide
from lowering.registry import op


def _causal(scores):
    """Scores [..., q, k] with a causal mask; the last query sees all keys."""
    q, k = scores.shape[-2:]
    return jnp.where(jnp.tril(jnp.ones((q, k), bool), k - q), scores, -jnp.inf)


@op(grad="vjp", reads="x mask", diff="x")
def fused_softmax_mask(x, mask):
    """Out = softmax(X + Mask) over the last dimension."""
    return jax.nn.softmax(wide(x + mask), axis=-1).astype(x.dtype)


@op(grad="vjp", reads="x")
def fused_softmax_mask_upper_triangle(x):
    """Out = softmax of X over the last dimension, with each row restricted to the columns up to the diagonal."""
    return jax.nn.softmax(_causal(wide(x)), axis=-1).astype(x.dtype)


_FLASH = {
    "out": "out softmax~ softmax_lse~ seed_offset~",
    "slots": own_names("q k v fixed_seed_offset attn_mask"),
}


@op(diff="", lod=None, **_FLASH)
def flash_attn(
    q, k, v, fixed_seed_offset=None, attn_mask=None, *, dropout: float = 0.0, causal: bool = False,
    return_softmax: bool = False, is_test: bool = False, rng_name: str = "",
):  # fmt: skip
    """out = softmax(q k^T / sqrt(size) + attn_mask) v for [batch, length, heads, size]; missing k and v heads repeat.

    Dropout of the probabilities during training is not implemented.
    """
    del fixed_seed_offset, rng_name
    if dropout and not is_test:
        raise ValueError(
            f"flash_attn drops {dropout} of the probabilities while training: expected dropout 0 or is_test;"
            " use scaled products, softmax and dropout as ops of their own"
        )
    repeat = q.shape[2] // k.shape[2]
    k, v = (jnp.repeat(t, repeat, axis=2) for t in (k, v)) if repeat > 1 else (k, v)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) / q.shape[-1] ** 0.5
    scores = scores if attn_mask is None else scores + attn_mask
    scores = _causal(scores) if causal else scores
    weights = jax.nn.softmax(scores, axis=-1).astype(q.dtype)
    lse = jax.nn.logsumexp(scores, axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v), weights if return_softmax else None, lse, None
