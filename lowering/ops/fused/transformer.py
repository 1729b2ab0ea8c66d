"""Layers of transformers in one op, as Paddle 2's incubated layers and inference passes write them.

Paddle runs these on GPUs alone. What only a gradient op would read is left out of their results.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lowering.ops.fused.norms import kept_share, normalised, without_dropout
from lowering.registry import op

_UNARY = {
    "none": lambda x: x, "": lambda x: x, "relu": jax.nn.relu,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
}  # fmt: skip


def _activation(type, name):
    if name not in _UNARY:
        raise ValueError(f"{type}: activation is {name!r}; expected one of {sorted(_UNARY)}; set one of them")
    return _UNARY[name]


def _plus(x, bias):
    return x if bias is None else x + bias.reshape(-1)


@op(out="Out ReserveSpace?", diff="", lod=None)
def fused_gemm_epilogue(x, y, bias, *, trans_x: bool = False, trans_y: bool = False, activation: str = "none"):
    """Out = act(X Y + Bias), X flattened to a matrix by all but its last axis; act is relu, gelu or none."""
    left = x.reshape(-1, x.shape[-1])
    product = (left.T if trans_x else left) @ (y.T if trans_y else y)
    out = _activation("fused_gemm_epilogue", activation)(_plus(product, bias))
    return out if trans_x else out.reshape(*x.shape[:-1], -1), None


@op(
    out="Out Dropout1Mask? Dropout2Mask? Ln1Mean? Ln1Variance? Ln2Mean? Ln2Variance? Linear1Out? Ln1Out? Dropout1Out?"
    " Dropout2Out?",
    diff="", lod={"Out": "x"},
)  # fmt: skip
def fused_feedforward(
    x, linear1_weight, linear2_weight, dropout1_seed=None, dropout2_seed=None, linear1_bias=None, linear2_bias=None,
    ln1_scale=None, ln1_bias=None, ln2_scale=None, ln2_bias=None, *, pre_layer_norm: bool = False,
    ln1_epsilon: float = 1e-5, ln2_epsilon: float = 1e-5, act_method: str = "gelu", dropout1_rate: float = 0.5,
    dropout2_rate: float = 0.5, dropout1_implementation: str = "downgrade_in_infer",
    dropout2_implementation: str = "downgrade_in_infer", is_test: bool = False, dropout1_fix_seed: bool = False,
    dropout2_fix_seed: bool = False, dropout1_seed_: int = 0, dropout2_seed_: int = 0, add_residual: bool = True,
    ring_id: int = -1,
):  # fmt: skip
    """Out = X + dropout2(act(norm1(X) W1 + b1) W2 + b2); with ``pre_layer_norm`` false, norm2 of that for norm1."""
    del dropout1_seed, dropout2_seed, dropout1_fix_seed, dropout2_fix_seed, dropout1_seed_, dropout2_seed_
    without_dropout("fused_feedforward", max(dropout1_rate, dropout2_rate), is_test)
    _alone("fused_feedforward", ring_id)
    last = x.ndim - 1
    inner = normalised(x, ln1_scale, ln1_bias, ln1_epsilon, last)[0].astype(x.dtype) if pre_layer_norm else x
    inner = _activation("fused_feedforward", act_method)(_plus(inner @ linear1_weight, linear1_bias))
    inner = kept_share(inner, dropout1_rate, dropout1_implementation)
    out = kept_share(_plus(inner @ linear2_weight, linear2_bias), dropout2_rate, dropout2_implementation)
    out = x + out if add_residual else out
    out = out if pre_layer_norm else normalised(out, ln2_scale, ln2_bias, ln2_epsilon, last)[0].astype(x.dtype)
    return out, *[None] * 10


def _alone(type, ring_id):
    if ring_id >= 0:
        raise ValueError(
            f"{type}: ring_id is {ring_id}, a layer split over processes; expected -1; export the model of one process"
        )


def attend(q, k, v, mask, scale):
    """softmax(scale q k^T + mask) v for [batch, heads, length, size]."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype(jnp.promote_types(q.dtype, jnp.float32)) * scale
    scores = scores if mask is None else scores + mask
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1).astype(v.dtype), v)


@op(
    out="LnMean? LnVariance? LnOut? QKVOut? QKVBiasOut? TransposeOut2? QKOut? QKTVOut? SoftmaxOut? AttnDropoutMaskOut?"
    " AttnDropoutOut? SrcMaskOut? FMHAOut? OutLinearOut? DropoutMaskOut? Ln2Mean? Ln2Variance?"
    " BiasDropoutResidualOut? CacheKVOut? Y",
    slots={"qkvw": "QKVW", "qkv_bias": "QKVBias", "cache_kv": "CacheKV", "out_linear_w": "OutLinearW"},
    diff="", lod={"Y": "x"},
)  # fmt: skip
def fused_attention(
    x, qkvw, out_linear_w, ln_scale=None, ln_bias=None, qkv_bias=None, cache_kv=None, src_mask=None,
    out_linear_bias=None, ln2_scale=None, ln2_bias=None, *, num_heads: int = 0, transpose_qkv_wb: bool = False,
    pre_layer_norm: bool = False, epsilon: float = 1e-5, attn_dropout_rate: float = 0.5, is_test: bool = False,
    attn_dropout_fix_seed: bool = False, attn_dropout_seed: int = 0,
    attn_dropout_implementation: str = "downgrade_in_infer", dropout_rate: float = 0.5,
    dropout_fix_seed: bool = False, dropout_seed: int = 0, dropout_implementation: str = "downgrade_in_infer",
    ln_epsilon: float = 1e-5, add_residual: bool = True, ring_id: int = -1,
):  # fmt: skip
    """Y = X + dropout(attention(norm(X)) W + b); with ``pre_layer_norm`` false, norm2 of that for norm.

    X [batch, length, embed]; QKVW [3, heads, size, embed], or [embed, 3 embed] with ``transpose_qkv_wb``; CacheKV
    [2, batch, heads, past, size] goes before the keys and values.
    """
    del attn_dropout_fix_seed, attn_dropout_seed, dropout_fix_seed, dropout_seed
    without_dropout("fused_attention", max(attn_dropout_rate, dropout_rate), is_test)
    _alone("fused_attention", ring_id)
    inner = normalised(x, ln_scale, ln_bias, epsilon, 2)[0].astype(x.dtype) if pre_layer_norm else x
    heads = num_heads if transpose_qkv_wb else qkvw.shape[1]
    weight = qkvw if transpose_qkv_wb else qkvw.reshape(-1, x.shape[-1]).T
    qkv = _plus(inner @ weight, qkv_bias).reshape(*x.shape[:2], 3, heads, -1)
    q, k, v = qkv.transpose(2, 0, 3, 1, 4)
    cache = None if cache_kv is None else jnp.concatenate([cache_kv, jnp.stack([k, v])], axis=3)
    k, v = (k, v) if cache is None else cache
    share = kept_share(v, attn_dropout_rate, attn_dropout_implementation)
    mixed = attend(q, k, share, src_mask, q.shape[-1] ** -0.5).transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)
    out = kept_share(_plus(mixed @ out_linear_w, out_linear_bias), dropout_rate, dropout_implementation)
    out = x + out if add_residual else out
    out = out if pre_layer_norm else normalised(out, ln2_scale, ln2_bias, ln_epsilon, 2)[0].astype(x.dtype)
    return *[None] * 18, cache, out


@op(slots={"bias_qk": "BiasQK"}, lod=None, diff="")
def multihead_matmul(
    input, w, bias, bias_qk=None, *, transpose_Q: bool = False, transpose_K: bool = True, transpose_V: bool = False,
    alpha: float = 1.0, head_number: int = 1,
):  # fmt: skip
    """Out = softmax(alpha q k^T + BiasQK) v, where q, k, v are the three parts of Input W + Bias.

    Input and Out are [batch, length, hidden], W [hidden, 3, hidden].
    """
    del transpose_Q, transpose_K, transpose_V  # Paddle reads none of them
    batch, length, hidden = input.shape
    qkv = _plus(input @ w.reshape(hidden, -1), bias).reshape(batch, length, 3, head_number, -1)
    q, k, v = qkv.transpose(2, 0, 3, 1, 4)
    return attend(q, k, v, bias_qk, alpha).transpose(0, 2, 1, 3).reshape(batch, length, -1)
