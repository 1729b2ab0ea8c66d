"""Sums and normalisations of transformers in one op, as Paddle 2 exports them for inference.

Paddle runs these on GPUs alone. What only a gradient op would read is left out of their results.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from lowering.ops.fused.dense import dense
from lowering.ops.math.extrema import at_least
from lowering.ops.nn.norm import layer_norm
from lowering.ops.shared import own_names, round_half_away, wide
from lowering.registry import op

COMPUTED = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


def stored(x, dtype, scale, round_type, high, low):
    """X as ``dtype``, or where ``scale`` is positive the int8 of clip(round(high * scale * X), low, high).

    Type 0 rounds halves to even, 1 away from zero.
    """
    if scale <= 0:
        return x.astype(dtype)
    rounded = (jnp.round if round_type == 0 else round_half_away)(wide(x) * (high * scale))
    return jnp.clip(rounded, low, high).astype(jnp.int8)


def normalised(x, scale, bias, epsilon, axis):
    """(Y, Mean, Variance) of layer_norm, computed in at least float32."""
    return layer_norm.fn(wide(x), scale, bias, epsilon=epsilon, begin_norm_axis=axis)


def without_dropout(type: str, rate: float, is_test: bool):
    """Refuse to drop, which the fused ops do while training."""
    if rate and not is_test:
        raise ValueError(
            f"{type} drops {rate} of its values while training: expected dropout 0 or is_test; use dropout and the ops"
            " that it stands for as ops of their own"
        )


def _sum(x, residual, bias, alpha=1.0):
    """X + alpha * residual + bias; without a residual, X alone: a bias is then left out, as in Paddle."""
    if residual is None:
        return x
    x = x + residual * jnp.asarray(alpha, x.dtype)
    return x if bias is None else x + bias


@op(out="out residual_out? inv_var?", slots=own_names("x bias residual norm_weight norm_bias"), diff="", lod=None)
def rms_norm(
    x, norm_weight, bias=None, residual=None, norm_bias=None, *, epsilon: float = 1e-5, begin_norm_axis: int,
    quant_scale: float = -1.0, quant_round_type: int = 0, quant_max_bound: float = 0.0, quant_min_bound: float = 0.0,
):  # fmt: skip
    """out = v / sqrt(mean(v^2) + epsilon) * norm_weight + norm_bias over axes begin_norm_axis onward.

    v, which is residual_out, is x + residual + bias (x without a residual). With a quant_scale, out is int8.
    """
    total = _sum(x, residual, bias)
    rows = wide(total).reshape(*x.shape[:begin_norm_axis], -1)
    inverse = lax.rsqrt(jnp.square(rows).mean(axis=-1, keepdims=True) + epsilon)
    out = rows * inverse * norm_weight.reshape(-1)
    out = (out if norm_bias is None else out + norm_bias.reshape(-1)).reshape(x.shape)
    out = stored(out, x.dtype, quant_scale, quant_round_type, quant_max_bound, quant_min_bound)
    return out, None if residual is None else total, inverse.reshape(-1)


@op(
    out="out residual_out? mean variance", slots=own_names("x bias residual norm_weight norm_bias"), diff="", lod=None,
)  # fmt: skip
def fused_bias_residual_layernorm(
    x, bias=None, residual=None, norm_weight=None, norm_bias=None, *, epsilon: float, residual_alpha: float = 1.0,
    begin_norm_axis: int = 1, quant_scale: float = -1.0, quant_round_type: int = 0, quant_max_bound: float = 0.0,
    quant_min_bound: float = 0.0,
):  # fmt: skip
    """out = layer_norm(v); v, which is residual_out, is x + residual_alpha * residual + bias (x without a residual).

    With a residual and neither weight nor bias of the norm, out = v. With a quant_scale, out is int8.
    """
    total = _sum(x, residual, bias, residual_alpha)
    if residual is not None and norm_weight is None and norm_bias is None:
        return total, None, None, None
    out, mean, variance = normalised(total, norm_weight, norm_bias, epsilon, begin_norm_axis)
    out = stored(out, x.dtype, quant_scale, quant_round_type, quant_max_bound, quant_min_bound)
    return out, None if residual is None else total, mean, variance


@op(
    out="Y BiasDropoutResidualOut~ DropoutMaskOut~ LnMean~ LnVariance~", diff="", lod={"Y": "x"},
    slots={"ln_scale": "LnScale", "ln_bias": "LnBias"},
)  # fmt: skip
def fused_bias_dropout_residual_layer_norm(
    x, residual, bias=None, ln_scale=None, ln_bias=None, *, dropout_rate: float = 0.5, is_test: bool = False,
    dropout_fix_seed: bool = True, dropout_seed: int = 0, dropout_implementation: str = "downgrade_in_infer",
    ln_epsilon: float = 1e-5,
):  # fmt: skip
    """Y = layer_norm(v) over the last axis; v, which is BiasDropoutResidualOut, is Residual + dropout(X + Bias)."""
    del dropout_fix_seed, dropout_seed
    without_dropout("fused_bias_dropout_residual_layer_norm", dropout_rate, is_test)
    total = residual + kept_share(x if bias is None else x + bias, dropout_rate, dropout_implementation)
    y, mean, variance = normalised(total, ln_scale, ln_bias, ln_epsilon, x.ndim - 1)
    return y.astype(x.dtype), total, None, mean, variance


def kept_share(x, rate, implementation):
    """What dropout makes of X at test time."""
    return x if implementation == "upscale_in_train" else x * jnp.asarray(1 - rate, x.dtype)


@op(
    out="out seed_offset?", slots=own_names("x y seed_tensor p_tensor") | {"p_tensor": "PTensor"}, diff="",
    lod={"out": "x"},
)  # fmt: skip
def fused_dropout_add(
    x, y, seed_tensor=None, p_tensor=None, *, p: float = 0.5, is_test: bool = False, mode: str = "upscale_in_train",
    seed: int = 0, fix_seed: bool = False,
):  # fmt: skip
    """out = dropout(x) + y."""
    del seed_tensor, p_tensor, seed, fix_seed
    without_dropout("fused_dropout_add", p, is_test)
    return kept_share(x, p, mode) + y, None


@op(diff="")
def skip_layernorm(x, y, scale, bias, *, epsilon: float = 1e-5, begin_norm_axis: int = 1):
    """Out = layer_norm(X + Y) over the last axis."""
    del begin_norm_axis
    return normalised(x + y, scale, bias, epsilon, x.ndim - 1)[0].astype(x.dtype)


@op(diff="", lod=None)
def fused_embedding_eltwise_layernorm(ids: list, embs: list, bias, scale, *, epsilon: float = 1e-5):
    """Out [batch, length, size] = layer_norm of the sum of the rows Ids [batch, length, 1] of each of Embs."""
    total = sum(jnp.take(e, i.reshape(i.shape[:2]), axis=0) for i, e in zip(ids, embs, strict=True))
    return normalised(total, scale, bias, epsilon, 2)[0].astype(embs[0].dtype)


@op(out="Out Mean? Variance?", diff="", lod=None)
def fused_fc_elementwise_layernorm(
    x, w, y, bias0=None, scale=None, bias1=None, *, x_num_col_dims: int = 1, activation_type: str = "",
    epsilon: float = 1e-5, begin_norm_axis: int = 1,
):  # fmt: skip
    """Out = layer_norm(act(X W + Bias0) + Y) with Scale and Bias1; act is relu or none."""
    product = dense(x, w, bias0, x_num_col_dims)
    product = at_least(product, 0) if activation_type == "relu" else product
    return normalised(product.reshape(y.shape) + y, scale, bias1, epsilon, begin_norm_axis)


_ACTIVATIONS = {
    "gelu": lambda x: jax.nn.gelu(x, approximate=False), "relu": jax.nn.relu, "swiglu": jax.nn.silu,
    "geglu": lambda x: jax.nn.gelu(x, approximate=False),
}  # fmt: skip


def activated(x, method):
    """act(X); for a gated one, act of the first half of the last axis, times the second half."""
    if method not in _ACTIVATIONS:
        raise ValueError(f"act_method is {method!r}; expected one of {sorted(_ACTIVATIONS)}; set one of them")
    if not method.endswith("glu"):
        return _ACTIVATIONS[method](x)
    half = x.shape[-1] // 2
    return _ACTIVATIONS[method](x[..., :half]) * x[..., half:]


@op(out="out", slots=own_names("x bias dequant_scales shift smooth"), diff="", lod=None)
def fused_bias_act(
    x, bias=None, dequant_scales=None, shift=None, smooth=None, *, act_method: str = "gelu",
    compute_dtype: str = "default", quant_scale: float = -1.0, quant_round_type: int = 1,
    quant_max_bound: float = 127.0, quant_min_bound: float = -127.0,
):  # fmt: skip
    """out = act(x * dequant_scales + bias), then (out + shift) * smooth; int8 with a quant_scale.

    act_method is gelu or relu, or the gated geglu or swiglu, which halve the last axis. An x of integers is computed
    in ``compute_dtype``: fp16, bf16 or fp32.
    """
    dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else jnp.dtype(COMPUTED[compute_dtype])
    value = wide(x.astype(dtype)) if dequant_scales is None else x.astype(jnp.float32) * dequant_scales
    out = activated(value if bias is None else value + bias, act_method)
    out = out if shift is None else (out + shift) * smooth
    return stored(out, dtype, quant_scale, quant_round_type, quant_max_bound, quant_min_bound)
