"""layer_norm, spectral_norm, lrn, affine_channel.

What layer_norm reads and writes keeps its shape. Between two shapes XLA on CPUs takes a sum for cheap to compute anew,
in every loop that reads it: of normalised sums upon normalised sums, as layers of a Transformer are, each loop computed
all layers before.
"""

import math
from functools import partial

import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering.engine.shapes.infer_rules import by_rule
from lowering.ops import fitting
from lowering.ops.shared import outputs_like
from lowering.program import VarInfo, declared_product
from lowering.registry import WISE, Wise, op
from lowering.values import Meta


def standardised(x, mean, inv_std, d_y, average):
    """The gradient of x through (x - mean) * inv_std, given that of the result; ``average`` takes means."""
    x_hat = (x - mean) * inv_std
    return inv_std * (d_y - average(d_y) - x_hat * average(d_y * x_hat))


def _like_x(shapes, attr):
    x, split = shapes["X"], attr("begin_norm_axis")
    size = (math.prod(x[split:]),)
    fits = 0 < split < len(x) and min(x[split:]) > 0 and all(shapes.get(s, size) == size for s in ("Scale", "Bias"))
    return {"Y": x} if fits else None


_infer_y = by_rule(_like_x)


def _infer_layer_norm(op, var_of):
    """Mean and Variance are as long as Fluid's product of the leading dims is."""
    x = var_of(op.inputs["X"][0])
    rows = VarInfo((declared_product(x.shape[: op.attrs.get("begin_norm_axis", 1)]),), None, 0)
    found = _infer_y(op, var_of)
    return found | outputs_like(op, "Mean", rows) | outputs_like(op, "Variance", rows)


@op(out="Y Mean~ Variance~", lod={"Y": "x"}, rows=Wise("x"), infer=_infer_layer_norm)
def layer_norm(x, scale=None, bias=None, *, epsilon: float = 1e-5, begin_norm_axis: int = 1):
    """Y = Scale * (X - Mean) / sqrt(Variance + epsilon) + Bias over axes begin_norm_axis onward.

    Mean and Variance are [product of the leading dims]; Scale and Bias [product of the normalised dims].
    """
    axes, normalised = tuple(range(x.ndim))[begin_norm_axis:], x.shape[begin_norm_axis:]
    mean = x.mean(axis=axes, keepdims=True)
    centred = x - mean
    variance = jnp.square(centred).mean(axis=axes, keepdims=True)
    y = centred * lax.rsqrt(variance + epsilon)
    y = y if scale is None else y * scale.reshape(normalised)
    y = y if bias is None else y + bias.reshape(normalised)
    return y, mean.reshape(-1), variance.reshape(-1)


@layer_norm.grad
def _(x, mean, variance, d_y, scale=None, bias: Meta = None, *, epsilon, begin_norm_axis):
    dims = tuple(range(x.ndim))
    rows, axes = dims[:begin_norm_axis], dims[begin_norm_axis:]
    one_each = (*x.shape[:begin_norm_axis], *(1,) * len(axes))
    mean, inv_std = mean.reshape(one_each), lax.rsqrt(variance.reshape(one_each) + epsilon)
    d_hat = d_y if scale is None else d_y * scale.reshape(x.shape[begin_norm_axis:])
    dx = standardised(x, mean, inv_std, d_hat, partial(jnp.mean, axis=axes, keepdims=True))
    d_scale = None if scale is None else (d_y * (x - mean) * inv_std).sum(axis=rows).reshape(scale.shape)
    return dx, d_scale, None if bias is None else d_y.sum(axis=rows).reshape(bias.shape)


def unfold_matrix(weight, dim):
    """Weight as a matrix whose rows run over axis `dim`."""
    return jnp.moveaxis(weight, dim, 0).reshape(weight.shape[dim], -1)


def _power_iteration(matrix, u, v, power_iters, eps):
    u, v = u.reshape(-1), v.reshape(-1)
    for _ in range(power_iters):
        v = matrix.T @ u
        v = v / (jnp.sqrt(jnp.square(v).sum()) + eps)
        u = matrix @ v
        u = u / (jnp.sqrt(jnp.square(u).sum()) + eps)
    return u, v


@op(diff="weight", lod={"Out": "weight"})
def spectral_norm(weight, u, v, *, dim: int = 0, power_iters: int = 1, eps: float = 1e-12):
    """Out = Weight / sigma, sigma = u' W v after `power_iters` steps of power iteration from U and V.

    U and V are left unchanged: Fluid's CPU kernel iterates on copies.
    """
    matrix = unfold_matrix(weight, dim)
    u, v = _power_iteration(matrix, u, v, power_iters, eps)
    return weight / (u @ matrix @ v)


@spectral_norm.fits
def _(weight, u, v, *, dim, power_iters):
    fitting.rank("Weight", weight, 2, 3, 4, 5)
    fitting.one_of("dim", dim, (0, 1))
    fitting.within("power_iters", power_iters, 0)
    rows = weight.shape[dim]
    fitting.same("U and the rows of Weight", u.shape, [rows])
    if min(weight.shape) > 0:
        fitting.same("V and the columns of Weight", v.shape, [math.prod(weight.shape) // rows])


@spectral_norm.grad
def _(weight, u, v, d_out, *, dim, power_iters, eps):
    """u and v are treated as constants: dW = (dOut - sum(dOut * W / sigma) u v') / sigma.

    Fluid's kernel computes dOut * (1 - sum(W / sigma) u v') / sigma, which agrees only if dOut is constant.
    """
    matrix, d_matrix = unfold_matrix(weight, dim), unfold_matrix(d_out, dim)
    u, v = _power_iteration(matrix, u, v, power_iters, eps)
    sigma = u @ matrix @ v
    grad = (d_matrix - (d_matrix * matrix).sum() / sigma * jnp.outer(u, v)) / sigma
    moved = grad.reshape(weight.shape[dim], *weight.shape[:dim], *weight.shape[dim + 1 :])
    return jnp.moveaxis(moved, 0, dim)


def _channel_window_sum(v, n, low):
    """Sum over channels c - low ... c - low + n - 1 of axis 1."""
    return lax.reduce_window(
        v, np.zeros((), v.dtype), lax.add, (1, n, 1, 1), (1, 1, 1, 1), ((0, 0), (low, n - 1 - low), (0, 0), (0, 0))
    )


@op(out="Out MidOut", vendor="use_mkldnn", rows=WISE, lod={"Out": "x"})
def lrn(x, *, n: int = 5, k: float = 2.0, alpha: float = 1e-4, beta: float = 0.75,
        data_format: str = "AnyLayout", is_test: bool = False):  # fmt: skip
    """Out = X * MidOut^-beta, MidOut = k + alpha * sum of X^2 over n (odd) neighbouring channels."""
    if n % 2 == 0:
        raise ValueError(f"lrn expects an odd n, received {n}; use {n + 1}")
    x4 = jnp.moveaxis(x, -1, 1) if data_format == "NHWC" else x
    mid = k + alpha * _channel_window_sum(jnp.square(x4), n, (n - 1) // 2)
    out = x4 * mid**-beta
    if data_format == "NHWC":
        return jnp.moveaxis(out, 1, -1), jnp.moveaxis(mid, 1, -1)
    return out, mid


@lrn.grad
def _(x, out, mid_out, d_out, *, n, alpha, beta, data_format):
    if data_format == "NHWC":
        x, out, mid_out, d_out = (jnp.moveaxis(v, -1, 1) for v in (x, out, mid_out, d_out))
    spread = _channel_window_sum(d_out * out / mid_out, n, n - 1 - (n - 1) // 2)
    dx = d_out * mid_out**-beta - 2 * alpha * beta * x * spread
    return jnp.moveaxis(dx, 1, -1) if data_format == "NHWC" else dx


def _channels_of(v, x, data_layout):
    axis = x.ndim - 1 if data_layout == "NHWC" else 1
    return v.reshape([-1 if d == axis else 1 for d in range(x.ndim)]), tuple(d for d in range(x.ndim) if d != axis)


@op(rows=Wise("x"))
def affine_channel(x, scale, bias, *, data_layout: str = "AnyLayout"):
    """Out = Scale[c] * X + Bias[c]."""
    gain, _ = _channels_of(scale, x, data_layout)
    return x * gain + _channels_of(bias, x, data_layout)[0]


@affine_channel.fits
def _(x, scale, bias, *, data_layout):
    fitting.one_of("data_layout", data_layout, ("NCHW", "NHWC", "AnyLayout"))
    channels = x.shape[-1] if data_layout == "NHWC" or len(x.shape) == 1 else x.shape[1]
    for name, var in (("Scale", scale), ("Bias", bias)):
        fitting.rank(name, var, 1)
        fitting.same(f"{name} and the channels of X", var.shape, [channels])


@affine_channel.grad
def _(x, scale, d_out, *, data_layout):
    gain, over = _channels_of(scale, x, data_layout)
    return d_out * gain, (d_out * x).sum(axis=over), d_out.sum(axis=over)
