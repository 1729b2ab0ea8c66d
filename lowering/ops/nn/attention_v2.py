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


@op(
    out="output logsumexp seed_and_offset", lod=None, diff="",
    slots=own_names("query key value bias cu_seqlens_q cu_seqlens_k causal_diagonal seqlen_k"),
)  # fmt: skip
def memory_efficient_attention(
    query, key, value, bias=None, cu_seqlens_q=None, cu_seqlens_k=None, causal_diagonal=None, seqlen_k=None, *,
    max_seqlen_q: float = 0.0, max_seqlen_k: float = 0.0, causal: bool = False, dropout_p: float = 0.0,
    scale: float = 0.0, is_test: bool = False,
):  # fmt: skip
    """output = softmax(scale query key^T + bias) value for [batch, length, heads, size].

    logsumexp [batch, heads, length]: of the scores. A negative ``scale`` is 1 / sqrt(size). Joined sequences, and
    dropout during training, are not implemented.
    """
    del max_seqlen_q, max_seqlen_k
    joined = any(given is not None for given in (cu_seqlens_q, cu_seqlens_k, causal_diagonal, seqlen_k))
    for wrong, what in (
        (dropout_p and not is_test, f"dropout {dropout_p} while training"),
        (joined, "joined sequences"),
    ):
        if wrong:
            raise ValueError(
                f"memory_efficient_attention has {what}: expected a batch of equally long sequences, without dropout or"
                " with is_test; use scaled products, softmax and dropout as ops of their own"
            )
    if causal and query.shape[1] != key.shape[1]:
        raise ValueError(
            f"memory_efficient_attention: {query.shape[1]} queries and {key.shape[1]} keys with causal; expected as"
            " many; give a bias"
        )
    scores = wide(jnp.einsum("bqhd,bkhd->bhqk", query, key)) * (scale if scale >= 0 else query.shape[-1] ** -0.5)
    scores = scores if bias is None else scores + bias
    scores = _causal(scores) if causal else scores
    weights = jax.nn.softmax(scores, axis=-1).astype(value.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, value), jax.nn.logsumexp(scores, axis=-1), None
