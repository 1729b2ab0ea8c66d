"""layer_norm, instance_norm, group_norm, spectral_norm, lrn, affine_channel.

What layer_norm reads and writes keeps its shape. Between two shapes XLA on CPUs takes a sum for cheap to compute anew,
in every loop that reads it: of normalised sums upon normalised sums, as layers of a Transformer are, each loop computed
all layers before.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering.engine.infer_rules import by_rule
from lowering.ops import fitting
from lowering.ops.shared import outputs_like
from lowering.program import VarInfo, declared_product
from lowering.ragged import infer as sequence_infer
from lowering.registry import WISE, Wise, op
from lowering.values import Meta


def _standardised(x, mean, inv_std, d_y, axes):
    """The gradient of x through (x - mean) * inv_std along ``axes``, given that of the result."""
    x_hat = (x - mean) * inv_std
    centred = d_y - d_y.mean(axis=axes, keepdims=True)
    return inv_std * (centred - x_hat * (d_y * x_hat).mean(axis=axes, keepdims=True))


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
    dx = _standardised(x, mean, inv_std, d_hat, axes)
    d_scale = None if scale is None else (d_y * (x - mean) * inv_std).sum(axis=rows).reshape(scale.shape)
    return dx, d_scale, None if bias is None else d_y.sum(axis=rows).reshape(bias.shape)


def _planes(v, x):
    """A per-channel vector [C] as one row per (n, c) plane: [N, C, 1]."""
    return v.reshape(1, -1, 1)


def _instance_norm_grad(x, scale, saved_mean, saved_variance, d_y):
    n, c = x.shape[:2]
    flat, d_flat = x.reshape(n, c, -1), d_y.reshape(n, c, -1)
    mean, inv_std = saved_mean.reshape(n, c, 1), saved_variance.reshape(n, c, 1)
    dx = _standardised(flat, mean, inv_std, d_flat * _planes(scale, x), -1).reshape(x.shape)
    d_scale = (d_flat * (flat - mean) * inv_std).sum(axis=(0, 2))
    return dx, d_scale, d_flat.sum(axis=(0, 2))


@sequence_infer.inferred
def _infer_instance_norm(of):
    """As in Fluid the statistics are declared N * C long also where N is unknown: -C."""
    x = of("X")
    planes = ((declared_product(x.shape[:2]),), 0, None)
    return {"Y": (x.shape, x.lod_level, x.dtype), "SavedMean": planes, "SavedVariance": planes}


@op(out="Y SavedMean~ SavedVariance~", lod={"Y": "x"}, rows=Wise("x"), infer=_infer_instance_norm, absent="scale bias")
def instance_norm(x, scale, bias, *, epsilon: float = 1e-5):
    """Y = Scale * (X - mean) / sqrt(variance + epsilon) + Bias over each (n, c) plane.

    SavedMean and SavedVariance are [N * C]; SavedVariance is 1 / sqrt(variance + epsilon).
    Paddle 2 programs may omit Scale and Bias.
    """
    flat = x.reshape(*x.shape[:2], -1)
    mean = flat.mean(axis=2, keepdims=True)
    inv_std = lax.rsqrt(jnp.square(flat - mean).mean(axis=2, keepdims=True) + epsilon)
    y = (flat - mean) * inv_std
    y = y if scale is None else y * _planes(scale, x)
    y = y if bias is None else y + _planes(bias, x)
    return y.reshape(x.shape), mean.reshape(-1), inv_std.reshape(-1)


@instance_norm.grad
def _(x, scale, saved_mean, saved_variance, d_y):
    return _instance_norm_grad(x, scale, saved_mean, saved_variance, d_y)


@instance_norm.grad_grad(out="DDY DX DScale")
def _(x, scale, saved_mean, saved_variance, dy, ddx=None, ddscale=None, ddbias=None, *, epsilon):
    """The adjoint of instance_norm_grad, its statistics being functions of X."""

    def first(x, scale, d_y):
        flat = x.reshape(*x.shape[:2], -1)
        mean = flat.mean(axis=2)
        inv_std = lax.rsqrt(jnp.square(flat - mean[..., None]).mean(axis=2) + epsilon)
        return _instance_norm_grad(x, scale, mean, inv_std, d_y)

    outs, pull = jax.vjp(first, x, scale, dy)
    given = (ddx, ddscale, ddbias)
    d_x, d_scale, d_dy = pull(tuple(jnp.zeros_like(o) if v is None else v for o, v in zip(outs, given, strict=True)))
    return d_dy, d_x, d_scale


def _grouped(x, groups, data_layout):
    """X as [N, groups, C / groups, rest]."""
    x = jnp.moveaxis(x, -1, 1) if data_layout == "NHWC" else x
    return x.reshape(x.shape[0], groups, x.shape[1] // groups, math.prod(x.shape[2:]))


def _ungrouped(v, shape, data_layout):
    if data_layout != "NHWC":
        return v.reshape(shape)
    return jnp.moveaxis(v.reshape(shape[0], shape[-1], *shape[1:-1]), 1, -1)


def _affine(v, groups):
    return v.reshape(1, groups, v.size // groups, 1)


@op(out="Y Mean~ Variance~", lod={"Y": "x"}, rows=Wise("x"))
def group_norm(x, scale=None, bias=None, *, epsilon: float = 1e-5, groups: int, data_layout: str = "NCHW"):
    """Y = Scale * (X - Mean) / sqrt(Variance + epsilon) + Bias over groups of channels; Mean, Variance [N, groups].

    If groups does not divide the channels, each group has ceil(C / groups) channels and the last one the remainder.
    """
    axis = _channel_axis(x, data_layout)
    if x.shape[axis] % groups == 0:
        return _normalised(x, scale, bias, epsilon, groups, data_layout)
    parts = [
        _normalised(p, s, b, epsilon, 1, data_layout) for p, s, b in _uneven((x,), (scale, bias), groups, data_layout)
    ]
    y, mean, variance = (list(column) for column in zip(*parts, strict=True))
    return jnp.concatenate(y, axis), jnp.concatenate(mean, 1), jnp.concatenate(variance, 1)


@group_norm.fits
def _(x, *, groups, data_layout):
    channels = x.shape[-1 if data_layout == "NHWC" else 1]
    if channels > 0:
        fitting.within("groups", groups, 1, channels)


def _channel_axis(x, data_layout):
    return x.ndim - 1 if data_layout == "NHWC" else 1


def _uneven(values, affine, groups, data_layout):
    """The channels of each group: slices of the values, then of Scale and Bias (or None)."""
    axis = _channel_axis(values[0], data_layout)
    channels = values[0].shape[axis]
    size = -(-channels // groups)
    for low in range(0, size * groups, size):
        low, high = min(low, channels), min(low + size, channels)
        cut = [lax.slice_in_dim(v, low, high, axis=axis) for v in values]
        yield (*cut, *(None if v is None else v[low:high] for v in affine))


def _normalised(x, scale, bias, epsilon, groups, data_layout):
    flat = _grouped(x, groups, data_layout)
    mean = flat.mean(axis=(2, 3), keepdims=True)
    variance = jnp.square(flat - mean).mean(axis=(2, 3), keepdims=True)
    y = (flat - mean) * lax.rsqrt(variance + epsilon)
    y = y if scale is None else y * _affine(scale, groups)
    y = y if bias is None else y + _affine(bias, groups)
    shape = (x.shape[0], groups)
    return _ungrouped(y, x.shape, data_layout), mean.reshape(shape), variance.reshape(shape)


@group_norm.grad
def _(y, variance, d_y, scale=None, bias=None, *, epsilon, groups, data_layout):
    """Computed from Y rather than X: the normalised value is (Y - Bias) / Scale, or 0 where Scale is 0, as in Fluid."""
    axis = _channel_axis(y, data_layout)
    if y.shape[axis] % groups == 0:
        return _normalised_grad(y, variance, d_y, scale, bias, epsilon, groups, data_layout)
    parts = [
        _normalised_grad(p, variance[:, i : i + 1], d, s, b, epsilon, 1, data_layout)
        for i, (p, d, s, b) in enumerate(_uneven((y, d_y), (scale, bias), groups, data_layout))
    ]
    d_x, d_scale, d_bias = (list(column) for column in zip(*parts, strict=True))
    return (
        jnp.concatenate(d_x, axis),
        None if scale is None else jnp.concatenate(d_scale),
        None if bias is None else jnp.concatenate(d_bias),
    )


def _normalised_grad(y, variance, d_y, scale, bias, epsilon, groups, data_layout):
    out, d_out = _grouped(y, groups, data_layout), _grouped(d_y, groups, data_layout)
    x_hat = out if bias is None else out - _affine(bias, groups)
    d_hat = d_out
    if scale is not None:
        gain = _affine(scale, groups)
        x_hat = jnp.where(gain == 0, 0, x_hat / jnp.where(gain == 0, 1, gain))
        d_hat = d_out * gain
    inv_std = lax.rsqrt(variance + epsilon)[..., None, None]
    centred = d_hat - d_hat.mean(axis=(2, 3), keepdims=True)
    dx = inv_std * (centred - x_hat * (d_hat * x_hat).mean(axis=(2, 3), keepdims=True))
    d_scale = None if scale is None else (d_out * x_hat).sum(axis=(0, 3)).reshape(scale.shape)
    d_bias = None if bias is None else d_out.sum(axis=(0, 3)).reshape(bias.shape)
    return _ungrouped(dx, y.shape, data_layout), d_scale, d_bias


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
