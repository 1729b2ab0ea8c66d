"""instance_norm and group_norm: normalisation over the places of each image, for a channel or a group of channels."""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from lowering.ops import fitting
from lowering.ops.nn.norm import standardised
from lowering.program import declared_product
from lowering.ragged import infer as sequence_infer
from lowering.registry import Wise, op
from lowering.values import LoDArray, Wide
from lowering.wide.means import Places


def _planes(v, x):
    """A per-channel vector [C] as one row per (n, c) plane: [N, C, 1]."""
    return v.reshape(1, -1, 1)


def _flat(x):
    """[N, C, places]."""
    return x.reshape(*x.shape[:2], -1)


def _places(x: LoDArray | Wide):
    """What a plane consists of."""
    return Places(x, range(2, x.data.ndim))


def _instance_norm_grad(x, scale, saved_mean, saved_variance, d_y, average):
    n, c = x.shape[:2]
    flat, d_flat = _flat(x), _flat(d_y)
    mean, inv_std = saved_mean.reshape(n, c, 1), saved_variance.reshape(n, c, 1)
    dx = standardised(flat, mean, inv_std, d_flat * _planes(scale, x), average).reshape(x.shape)
    d_scale = (d_flat * (flat - mean) * inv_std).sum(axis=(0, 2))
    return dx, d_scale, d_flat.sum(axis=(0, 2))


@sequence_infer.inferred
def _infer_instance_norm(of):
    """As in Fluid the statistics are declared N * C long also where N is unknown: -C."""
    x = of("X")
    planes = ((declared_product(x.shape[:2]),), 0, None)
    return {"Y": (x.shape, x.lod_level, x.dtype), "SavedMean": planes, "SavedVariance": planes}


@op(out="Y SavedMean~ SavedVariance~", lod={"Y": "x"}, rows=Wise("x"), infer=_infer_instance_norm, absent="scale bias")
def instance_norm(x: LoDArray, scale, bias, *, epsilon: float = 1e-5):
    """Y = Scale * (X - mean) / sqrt(variance + epsilon) + Bias over each (n, c) plane.

    SavedMean and SavedVariance are [N * C]; SavedVariance is 1 / sqrt(variance + epsilon).
    Paddle 2 programs may omit Scale and Bias.
    """
    places, x = _places(x), x.data
    flat = _flat(x)
    mean = places.mean(flat)
    inv_std = lax.rsqrt(places.mean(jnp.square(flat - mean)) + epsilon)
    y = (flat - mean) * inv_std
    y = y if scale is None else y * _planes(scale, x)
    y = y if bias is None else y + _planes(bias, x)
    return y.reshape(x.shape), mean.reshape(-1), inv_std.reshape(-1)


@instance_norm.grad
def _(x: LoDArray, scale, saved_mean, saved_variance, d_y):
    return _instance_norm_grad(x.data, scale, saved_mean, saved_variance, d_y, _places(x).mean)


@instance_norm.grad_grad(out="DDY DX DScale")
def _(x, scale, saved_mean, saved_variance, dy, ddx=None, ddscale=None, ddbias=None, *, epsilon):
    """The adjoint of instance_norm_grad, its statistics being functions of X."""

    def first(x, scale, d_y):
        flat = _flat(x)
        mean = flat.mean(axis=2)
        inv_std = lax.rsqrt(jnp.square(flat - mean[..., None]).mean(axis=2) + epsilon)
        return _instance_norm_grad(x, scale, mean, inv_std, d_y, partial(jnp.mean, axis=-1, keepdims=True))

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
def group_norm(x: LoDArray, scale=None, bias=None, *, epsilon: float = 1e-5, groups: int, data_layout: str = "NCHW"):
    """Y = Scale * (X - Mean) / sqrt(Variance + epsilon) + Bias over groups of channels; Mean, Variance [N, groups].

    If groups does not divide the channels, each group has ceil(C / groups) channels and the last one the remainder.
    """
    average, x = _average(x, data_layout), x.data
    axis = _channel_axis(x, data_layout)
    if x.shape[axis] % groups == 0:
        return _normalised(x, scale, bias, average, epsilon, groups, data_layout)
    parts = [
        _normalised(p, s, b, average, epsilon, 1, data_layout)
        for p, s, b in _uneven((x,), (scale, bias), groups, data_layout)
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


def _average(x: LoDArray | Wide, data_layout):
    """Takes the mean of each group in values [N, groups, channels of a group, places]."""
    channels = _channel_axis(x.data, data_layout)
    places = Places(x, [d for d in range(1, x.data.ndim) if d != channels])
    return partial(places.mean, over=(2, 3))


def _normalised(x, scale, bias, average, epsilon, groups, data_layout):
    flat = _grouped(x, groups, data_layout)
    mean = average(flat)
    variance = average(jnp.square(flat - mean))
    y = (flat - mean) * lax.rsqrt(variance + epsilon)
    y = y if scale is None else y * _affine(scale, groups)
    y = y if bias is None else y + _affine(bias, groups)
    shape = (x.shape[0], groups)
    return _ungrouped(y, x.shape, data_layout), mean.reshape(shape), variance.reshape(shape)


@group_norm.grad
def _(y: LoDArray, variance, d_y, scale=None, bias=None, *, epsilon, groups, data_layout):
    """Computed from Y rather than X: the normalised value is (Y - Bias) / Scale, or 0 where Scale is 0, as in Fluid."""
    average, y = _average(y, data_layout), y.data
    axis = _channel_axis(y, data_layout)
    if y.shape[axis] % groups == 0:
        return _normalised_grad(y, variance, d_y, scale, bias, average, epsilon, groups, data_layout)
    parts = [
        _normalised_grad(p, variance[:, i : i + 1], d, s, b, average, epsilon, 1, data_layout)
        for i, (p, d, s, b) in enumerate(_uneven((y, d_y), (scale, bias), groups, data_layout))
    ]
    d_x, d_scale, d_bias = (list(column) for column in zip(*parts, strict=True))
    return (
        jnp.concatenate(d_x, axis),
        None if scale is None else jnp.concatenate(d_scale),
        None if bias is None else jnp.concatenate(d_bias),
    )


def _normalised_grad(y, variance, d_y, scale, bias, average, epsilon, groups, data_layout):
    out, d_out = _grouped(y, groups, data_layout), _grouped(d_y, groups, data_layout)
    x_hat = out if bias is None else out - _affine(bias, groups)
    d_hat = d_out
    if scale is not None:
        gain = _affine(scale, groups)
        x_hat = jnp.where(gain == 0, 0, x_hat / jnp.where(gain == 0, 1, gain))
        d_hat = d_out * gain
    inv_std = lax.rsqrt(variance + epsilon)[..., None, None]
    dx = inv_std * (d_hat - average(d_hat) - x_hat * average(d_hat * x_hat))
    d_scale = None if scale is None else (d_out * x_hat).sum(axis=(0, 3)).reshape(scale.shape)
    d_bias = None if bias is None else d_out.sum(axis=(0, 3)).reshape(bias.shape)
    return _ungrouped(dx, y.shape, data_layout), d_scale, d_bias
