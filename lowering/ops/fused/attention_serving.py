"""Attention of language models while they write: rotated positions, caches of keys and values, lengths of their own.

Paddle runs these on GPUs alone.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lowering.ops.fused.norms import COMPUTED, stored
from lowering.ops.shared import own_names, wide
from lowering.registry import op


def _neighbours(x):
    """(-x1, x0, -x3, x2 ...): the partner of each number in its pair of neighbours."""
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    return jnp.stack([-pairs[..., 1], pairs[..., 0]], axis=-1).reshape(x.shape)


def _halves(x):
    """(-second half, first half)."""
    half = x.shape[-1] // 2
    return jnp.concatenate([-x[..., half:], x[..., :half]], axis=-1)


def _angles(q, sin, cos, position_ids, base):
    """sin and cos [batch or 1, length, 1, size] of each position."""
    length, size = q.shape[1], q.shape[-1]
    if sin is None or cos is None:
        places = jnp.arange(length)[None] if position_ids is None else position_ids
        frequencies = 1.0 / base ** (jnp.arange(size) // 2 * 2 / size).astype(jnp.float32)
        angles = (places[..., None].astype(jnp.float32) * frequencies)[:, :, None]
        return jnp.sin(angles), jnp.cos(angles)
    tables = (wide(t).reshape(-1, size) for t in (sin, cos))
    if position_ids is None:
        return tuple(t.reshape(1, length, 1, size) for t in tables)
    return tuple(jnp.take(t, position_ids, axis=0)[:, :, None] for t in tables)


@op(
    out="out_q out_k? out_v?", slots=own_names("q k v sin cos position_ids"), lod=None, diff="q k v", grad="vjp",
    reads="q k v sin cos position_ids",
)  # fmt: skip
def fused_rotary_position_embedding(
    q, k=None, v=None, sin=None, cos=None, position_ids=None, *, use_neox_rotary_style: bool = True,
    time_major: bool = False, rotary_emb_base: float = 10000.0,
):  # fmt: skip
    """out = x cos + partner(x) sin for x of q, k, v [batch, length, heads, size]; first the length if ``time_major``.

    Partners are neighbours, or the two halves with ``use_neox_rotary_style`` false. sin and cos [1, length, 1, size]
    are those of position / base^(2 floor(i / 2) / size) by default; position_ids [batch, length] chooses their rows.
    """
    given = [x if x is None or not time_major else x.swapaxes(0, 1) for x in (q, k, v)]
    sin, cos = _angles(given[0], sin, cos, position_ids, rotary_emb_base)
    partner = _neighbours if use_neox_rotary_style else _halves

    def rotated(x):
        x = None if x is None else (wide(x) * cos + partner(wide(x)) * sin).astype(x.dtype)
        return x if x is None or not time_major else x.swapaxes(0, 1)

    return tuple(rotated(x) for x in given)


@op(out="out", slots=own_names("query key value seq_lens kv_seq_lens mask"), lod=None, diff="")
def variable_length_memory_efficient_attention(
    query, key, value, seq_lens, kv_seq_lens, mask=None, *, scale: float = 0.0, causal: bool = False,
    pre_cache_length: int = 0,
):  # fmt: skip
    """out = softmax(scale q k^T + mask) v over the first kv_seq_lens[b] + pre_cache_length keys of each sequence.

    query [batch, heads, length, size]; fewer heads of key and value repeat. Rows after seq_lens[b] are zero.
    """
    length, keys = query.shape[2], key.shape[2]
    if causal and length != keys:
        raise ValueError(
            f"variable_length_memory_efficient_attention: {length} queries and {keys} keys with causal; expected as"
            " many; give a mask"
        )
    repeat = query.shape[1] // key.shape[1]
    key, value = (jnp.repeat(t, repeat, axis=1) for t in (key, value))
    scores = wide(jnp.einsum("bhqd,bhkd->bhqk", query, key)) * (scale or query.shape[-1] ** -0.5)
    scores = scores if mask is None else scores + mask[..., :length, :keys]
    seen = jnp.arange(keys) < kv_seq_lens.reshape(-1, 1, 1, 1) + pre_cache_length
    seen = seen & jnp.tril(jnp.ones((length, keys), bool)) if causal else seen
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1).astype(value.dtype)
    out = jnp.einsum("bhqk,bhkd->bhqd", weights, value)
    return jnp.where(jnp.arange(length)[:, None] < seq_lens.reshape(-1, 1, 1, 1), out, 0)


@op(
    out="out softmax~ softmax_lse~ seed_offset~", lod=None, diff="",
    slots=own_names("q k v cu_seqlens_q cu_seqlens_k fixed_seed_offset attn_mask"),
)  # fmt: skip
def flash_attn_unpadded(
    q, k, v, cu_seqlens_q, cu_seqlens_k, fixed_seed_offset=None, attn_mask=None, *, max_seqlen_q: int = 0,
    max_seqlen_k: int = 0, scale: float, dropout: float = 0.0, causal: bool = False, return_softmax: bool = False,
    is_test: bool = False, rng_name: str = "",
):  # fmt: skip
    """out = softmax(scale q k^T) v for rows [total, heads, size] of sequences that begin at cu_seqlens [batch + 1].

    With ``causal`` the last row of a sequence sees all its keys. Missing heads of k and v repeat.
    """
    del fixed_seed_offset, max_seqlen_q, max_seqlen_k, rng_name
    for wrong, what in ((dropout and not is_test, "dropout"), (return_softmax, "return_softmax")):
        if wrong:
            raise ValueError(f"flash_attn_unpadded with {what}: expected it off; use products and softmax as ops")
    if attn_mask is not None:
        raise ValueError("flash_attn_unpadded with attn_mask: expected none; use products and softmax as ops")
    own, left = _from_the_end(cu_seqlens_q, q.shape[0])
    theirs, following = _from_the_end(cu_seqlens_k, k.shape[0])
    k, v = (jnp.repeat(t, q.shape[1] // k.shape[1], axis=1) for t in (k, v))
    scores = wide(jnp.einsum("qhd,khd->hqk", q, k)) * scale
    seen = own[:, None] == theirs
    seen = seen & (following >= left[:, None]) if causal else seen
    scores = jnp.where(seen, scores, -jnp.inf)
    return jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores, axis=-1).astype(v.dtype), v), None, None, None


def _from_the_end(starts, rows):
    """The sequence of each row, and how many rows of that sequence follow it."""
    places = jnp.arange(rows)
    sequence = jnp.searchsorted(starts[1:], places, side="right")
    return sequence, jnp.take(starts, sequence + 1, mode="clip") - 1 - places


def _rotated(x, cos, sin, dims, halves):
    """x [batch, heads, size] at the angles of its position; halves of each of ``dims`` parts, or neighbours."""
    if not dims:
        return x
    if not halves:
        return x * cos + _neighbours(x) * sin
    parts = x.reshape(*x.shape[:-1], dims, -1)
    return x * cos + _halves(parts).reshape(x.shape) * sin


def _by_position(cache, size):
    """Keys [batch, heads, positions, size] of a cache that holds them as [batch, heads, size / n, positions, n]."""
    batch, heads, positions, _ = cache.shape
    n = 16 // cache.dtype.itemsize
    return cache.reshape(batch, heads, size // n, positions, n).swapaxes(2, 3).reshape(cache.shape)


def _by_sixteen_bytes(keys):
    batch, heads, positions, size = keys.shape
    n = 16 // keys.dtype.itemsize
    return keys.reshape(batch, heads, positions, size // n, n).swapaxes(2, 3).reshape(keys.shape)


def _refuse(cum_offsets, beam_cache_offset, steps):
    for value, name in ((cum_offsets, "cum_offsets"), (beam_cache_offset, "beam_cache_offset")):
        if value is not None:
            raise ValueError(f"masked_multihead_attention with {name}: expected none; export the model without")
    if steps is None:
        raise ValueError(
            "masked_multihead_attention is told no position: expected sequence_lengths or src_mask; give one of them"
        )


@op(
    out="out cache_kv_out beam_cache_offset_out?", lod=None, diff="", inplace={"cache_kv_out": "cache_kv"},
    slots=own_names(
        "x cache_kv bias src_mask cum_offsets sequence_lengths rotary_tensor beam_cache_offset qkv_out_scale"
        " out_shift out_smooth"
    ),
)  # fmt: skip
def masked_multihead_attention(
    x, cache_kv, bias=None, src_mask=None, cum_offsets=None, sequence_lengths=None, rotary_tensor=None,
    beam_cache_offset=None, qkv_out_scale=None, out_shift=None, out_smooth=None, *, seq_len: int = 1,
    rotary_emb_dims: int = 0, use_neox_rotary_style: bool = False, compute_dtype: str = "default",
    out_scale: float = -1.0, quant_round_type: int = 1, quant_max_bound: float = 127.0,
    quant_min_bound: float = -127.0,
):  # fmt: skip
    """One step of decoding: the new key and value enter the cache, and out [batch, heads * size] sees all up to it.

    x [batch, (heads + 2 kv heads) size] holds q, k, v; bias adds to it. cache_kv [2, batch, kv heads, positions, size]
    keeps its keys sixteen bytes at a time, [size / n, positions, n]. The position is sequence_lengths[b], or the
    length of src_mask [batch, 1 or heads, 1, position + 1] less one; a negative one leaves the row out. rotary_tensor
    holds the cosines, then the sines, of q and k: of neighbours, or with ``use_neox_rotary_style`` of halves.
    """
    del seq_len
    steps = sequence_lengths if src_mask is None or sequence_lengths is not None else src_mask.shape[-1] - 1
    _refuse(cum_offsets, beam_cache_offset, steps)
    _, batch, kv_heads, positions, size = cache_kv.shape
    dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else jnp.dtype(COMPUTED[compute_dtype])
    qkv = wide(x) if qkv_out_scale is None else x.astype(jnp.float32) * qkv_out_scale.reshape(-1)
    qkv = (qkv if bias is None else qkv + bias.reshape(-1)).astype(dtype).reshape(batch, -1, size)
    q, k, v = jnp.split(qkv, (qkv.shape[1] - 2 * kv_heads, qkv.shape[1] - kv_heads), axis=1)
    if rotary_emb_dims:
        cos, sin = rotary_tensor.reshape(2, batch, 1, size)
        q, k = (_rotated(wide(t), cos, sin, rotary_emb_dims, use_neox_rotary_style).astype(dtype) for t in (q, k))
    at = jnp.broadcast_to(jnp.asarray(steps).reshape(-1), (batch,))
    here = (jnp.arange(positions) == at[:, None])[:, None, :, None]
    keys = jnp.where(here, k[:, :, None], _by_position(cache_kv[0], size))
    values = jnp.where(here, v[:, :, None], cache_kv[1])
    out = _one_query(q, keys, values, at, src_mask).reshape(batch, -1)
    out = out if out_shift is None else (out + out_shift) * out_smooth
    out = stored(out, dtype, out_scale, quant_round_type, quant_max_bound, quant_min_bound)
    return out, jnp.stack([_by_sixteen_bytes(keys), values]), None


def _one_query(q, keys, values, at, mask):
    """softmax(q k^T / sqrt(size) + mask) v of the keys up to each row's position; zero where that is negative."""
    keys, values = (jnp.repeat(t, q.shape[1] // t.shape[1], axis=1) for t in (keys, values))
    scores = jnp.einsum("bhd,bhkd->bhk", wide(q), wide(keys)) * q.shape[-1] ** -0.5
    if mask is not None:
        width = min(mask.shape[-1], scores.shape[-1])
        scores = scores.at[..., :width].add(mask[:, :, 0, :width])
    seen = jnp.arange(keys.shape[2]) <= jnp.maximum(at, 0)[:, None, None]
    out = jnp.einsum("bhk,bhkd->bhd", jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1), wide(values))
    return jnp.where(at[:, None, None] < 0, 0, out)
