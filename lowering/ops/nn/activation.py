"""Activation functions. Gradients read the output instead of the input wherever Fluid's do."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from lowering.engine.shapes.infer_rules import by_rule, like
from lowering.ops.math.extrema import at_least, at_most, exp_at_least
from lowering.ops.shared import off_rows
from lowering.program import PADDLE_2
from lowering.registry import WISE, op


@op(vendor="use_mkldnn use_cudnn", rows=WISE, infer=like("X"))
def relu(x):
    """Out = max(X, 0)."""
    return at_least(x, 0)


@relu.grad
def _(out, d_out):
    return jnp.where(out > 0, d_out, 0)


@relu.grad_grad(out="DDOut")
def _(out, ddx):
    return jnp.where(out > 0, ddx, 0)


@op(vendor="use_mkldnn use_cudnn", rows=WISE, infer=like("X"))
def sigmoid(x):
    """Out = 1 / (1 + exp(-X))."""
    return jax.nn.sigmoid(x)


@sigmoid.grad
def _(out, d_out):
    return d_out * out * (1 - out)


@op(vendor="use_mkldnn use_cudnn", rows=WISE)
def logsigmoid(x):
    """Out = log(1 / (1 + exp(-X)))."""
    return jnp.minimum(x, 0) - jnp.log1p(jnp.exp(-jnp.abs(x)))


@logsigmoid.grad
def _(x, d_out):
    return d_out * jax.nn.sigmoid(-x)


@op(vendor="use_mkldnn use_cudnn", rows=WISE, infer=like("X"))
def tanh(x):
    """Out = tanh(X)."""
    return jnp.tanh(x)


@tanh.grad
def _(out, d_out):
    return d_out * (1 - out * out)


@op(vendor="use_mkldnn use_cudnn", rows=WISE)
def tanh_shrink(x):
    """Out = X - tanh(X)."""
    return x - jnp.tanh(x)


@tanh_shrink.grad
def _(x, d_out):
    return d_out * jnp.square(jnp.tanh(x))


@op(rows=WISE)
def softshrink(x, *, lambda_: float = 0.5):
    """Out = X - lambda where X > lambda; X + lambda where X < -lambda; else 0; their sum where both hold."""
    return jnp.where(x > lambda_, x - lambda_, 0 * x) + jnp.where(x < -lambda_, x + lambda_, 0)


@softshrink.grad
def _(x, d_out, *, lambda_):
    return jnp.where(x > lambda_, d_out, 0) + jnp.where(x < -lambda_, d_out, 0)


@op(rows=WISE)
def hard_shrink(x, *, threshold: float = 0.5):
    """Out = X where X > threshold or X < -threshold, else 0; twice X where both hold."""
    return x * ((x > threshold).astype(x.dtype) + (x < -threshold).astype(x.dtype))


@hard_shrink.grad
def _(x, d_out, *, threshold):
    return jnp.where(x > threshold, d_out, 0) + jnp.where(x < -threshold, d_out, 0)


@op(rows=WISE)
def brelu(x, *, t_min: float = 0.0, t_max: float = 24.0):
    """Out = min(max(X, t_min), t_max)."""
    return jnp.clip(x, t_min, t_max)


@brelu.grad
def _(x, d_out, *, t_min, t_max):
    return jnp.where((x > t_min) & (x < t_max), d_out, 0)


@op(rows=WISE, infer=like("X"))
def relu6(x, *, threshold: float = 6.0):
    """Out = min(max(X, 0), threshold)."""
    return jnp.clip(x, 0, threshold)


@relu6.grad
def _(out, d_out, *, threshold):
    return jnp.where((out > 0) & (out < threshold), d_out, 0)


@op(vendor="use_mkldnn", rows=WISE, infer=like("X"))
def leaky_relu(x, *, alpha: float = 0.02, ctx):
    """Out = max(X, alpha * X); since Paddle 2 alpha * X for X <= 0, which differs if alpha is above 1."""
    return jnp.where(x > 0, x, alpha * x) if ctx.release >= PADDLE_2 else jnp.maximum(x, alpha * x)


@leaky_relu.grad(newer="x")
def _(d_out, out=None, x=None, *, alpha):
    return jnp.where((x if out is None else out) > 0, d_out, alpha * d_out)


@leaky_relu.grad_grad(out="DDOut")
def _(out, ddx, *, alpha):
    return jnp.where(out > 0, ddx, alpha * ddx)


@op(rows=WISE)
def elu(x, *, alpha: float = 1.0):
    """Out = max(X, 0) + min(0, alpha * (exp(X) - 1))."""
    return at_least(x, 0) + at_most(alpha * (jnp.exp(x) - 1), 0)


def _elu_slope(x, alpha):
    return jnp.where(x > 0, jnp.ones_like(x), alpha * jnp.exp(at_most(x, 0)))


@elu.grad
def _(x, d_out, *, alpha):
    return d_out * _elu_slope(x, alpha)


@elu.grad_grad(out="DDOut DX")
def _(x, dout, ddx, *, alpha):
    curved = jnp.where(x > 0, jnp.zeros_like(x), alpha * jnp.exp(at_most(x, 0)))
    return ddx * _elu_slope(x, alpha), ddx * dout * curved


@op(vendor="use_mkldnn use_cudnn", rows=WISE, grad="vjp", reads="x", infer=like("X"))
def gelu(x, *, approximate: bool = False):
    """Out = 0.5 X (1 + erf(X / sqrt 2)), or its tanh approximation."""
    return jax.nn.gelu(x, approximate=approximate)


@op(rows=WISE)
def selu(x, *, scale: float = 1.0507009873554805, alpha: float = 1.6732632423543772):
    """Out = scale * (X where X > 0, else alpha * (exp(X) - 1))."""
    return scale * jnp.where(x > 0, x, alpha * jnp.exp(at_most(x, 0)) - alpha)


@selu.grad
def _(out, d_out, *, scale, alpha):
    return d_out * jnp.where(out > 0, scale, out + scale * alpha)


@op(rows=WISE)
def soft_relu(x, *, threshold: float = 40.0):
    """Out = log(1 + exp(clip(X, -threshold, threshold)))."""
    return jnp.log1p(jnp.exp(jnp.clip(x, -threshold, threshold)))


@soft_relu.grad
def _(out, d_out, *, threshold):
    return jnp.where((out > -threshold) & (out < threshold), d_out * (1 - jnp.exp(-out)), 0)


@op(vendor="use_mkldnn use_cudnn", rows=WISE, newer="beta threshold")
def softplus(x, *, beta: float = 1.0, threshold: float = float("inf")):
    """Out = log(1 + exp(beta X)) / beta; Paddle 2 uses X itself where beta X exceeds a threshold."""
    z = x if beta == 1 else beta * x
    soft = jnp.maximum(z, 0) + jnp.log1p(jnp.exp(-jnp.abs(z)))
    soft = soft if beta == 1 else soft / beta
    return soft if np.isinf(threshold) else jnp.where(z > threshold, x, soft)


@softplus.grad
def _(x, d_out, *, beta, threshold):
    z = x if beta == 1 else beta * x
    slope = jax.nn.sigmoid(z)
    return d_out * (slope if np.isinf(threshold) else jnp.where(z > threshold, 1, slope))


@op(vendor="use_mkldnn use_cudnn", rows=WISE)
def softsign(x):
    """Out = X / (1 + |X|)."""
    return x / (1 + jnp.abs(x))


@softsign.grad
def _(x, d_out):
    return d_out / jnp.square(1 + jnp.abs(x))


@op(rows=WISE)
def stanh(x, *, scale_a: float = 0.67, scale_b: float = 1.7159):
    """Out = scale_b * tanh(scale_a * X)."""
    return scale_b * jnp.tanh(scale_a * x)


@stanh.grad
def _(x, d_out, *, scale_a, scale_b):
    t = jnp.tanh(scale_a * x)
    return d_out * scale_a * scale_b * (1 - t * t)


@op(vendor="use_mkldnn", rows=WISE)
def swish(x, *, beta: float = 1.0):
    """Out = X / (1 + exp(-beta X))."""
    return x * jax.nn.sigmoid(beta * x)


@swish.grad
def _(x, d_out, *, beta):
    s = jax.nn.sigmoid(beta * x)
    return d_out * (s + beta * x * s * (1 - s))


@op(rows=WISE)
def hard_sigmoid(x, *, slope: float = 0.2, offset: float = 0.5):
    """Out = clip(slope * X + offset, 0, 1)."""
    return jnp.clip(slope * x + offset, 0, 1)


@hard_sigmoid.grad
def _(out, d_out, *, slope):
    return jnp.where((out > 0) & (out < 1), d_out * slope, 0)


@op(rows=WISE)
def hard_swish(x, *, threshold: float = 6.0, scale: float = 6.0, offset: float = 3.0):
    """Out = X * min(max(0, X + offset), threshold) / scale."""
    return x * jnp.clip(x + offset, 0, threshold) / scale


@hard_swish.grad
def _(x, d_out, *, threshold, scale, offset):
    inner = jnp.where(x + offset > 0, (2 * x + offset) / scale, 0)
    return d_out * jnp.where(x + offset < threshold, inner, 1)


@op(rows=WISE)
def thresholded_relu(x, *, threshold: float = 1.0):
    """Out = X where X > threshold, else 0."""
    return jnp.where(x <= threshold, 0, x)


@thresholded_relu.grad
def _(x, d_out, *, threshold):
    return jnp.where(x > threshold, d_out, 0)


def _mish_softplus(x, threshold):
    small = jnp.exp(at_most(x, limit := threshold if threshold > 0 else np.inf))
    return jnp.where(x > limit, x, jnp.where(x < -limit, small, jnp.log1p(small)))


@op(rows=WISE)
def mish(x, *, threshold: float = 20.0):
    """Out = X * tanh(softplus(X)), softplus linear above a positive threshold and exp below -threshold."""
    return x * jnp.tanh(_mish_softplus(x, threshold))


@mish.grad
def _(x, d_out, *, threshold):
    softplus = _mish_softplus(x, threshold)
    t = jnp.tanh(softplus)
    return d_out * (t - x * (1 - t * t) * jnp.expm1(-softplus))


def _over_an_axis(shapes, attr):
    ndim = len(shapes["X"])
    return {"Out": shapes["X"]} if -ndim <= attr("axis") < ndim else None


@op(vendor="use_mkldnn use_cudnn", rows=off_rows, infer=by_rule(_over_an_axis))
def softmax(x, *, axis: int = -1, data_format: str = "AnyLayout", is_test: bool = False):
    """Out = exp(X - max) / sum exp(X - max) over ``axis``; X - max is clipped at -64, as Fluid's CPU kernel does."""
    del data_format, is_test
    e = exp_at_least(x - jnp.max(x, axis=axis, keepdims=True), -64)
    return e / jnp.sum(e, axis=axis, keepdims=True)


@softmax.grad
def _(out, d_out, *, axis):
    return out * (d_out - jnp.sum(out * d_out, axis=axis, keepdims=True))


def _maxout_groups(x, groups, axis):
    axis %= x.ndim
    shape = x.shape
    return x.reshape(*shape[:axis], shape[axis] // groups, groups, *shape[axis + 1 :]), axis + 1


@op(lod=None, rows=off_rows)
def maxout(x, *, groups: int, axis: int = 1):
    """Out[.., c, ..] = max over g of X[.., c * groups + g, ..] along ``axis`` (1 of NCHW, or the last)."""
    grouped, along = _maxout_groups(x, groups, axis)
    return jnp.max(grouped, axis=along)


@maxout.grad
def _(x, out, d_out, *, groups, axis):
    """The first of equal maxima takes the whole gradient."""
    del out
    grouped, along = _maxout_groups(x, groups, axis)
    first = jnp.expand_dims(jnp.argmax(grouped, axis=along), along)
    index = jax.lax.broadcasted_iota(first.dtype, grouped.shape, along)
    return jnp.where(index == first, jnp.expand_dims(d_out, along), 0).reshape(x.shape)


def _prelu_alpha(alpha, x, mode, data_format):
    """Alpha as something that broadcasts against X [N, C, ...]."""
    if mode == "all":
        return alpha.reshape((1,) * x.ndim)
    if mode == "channel":
        broadcast = (1,) * (x.ndim - 1) + (-1,) if data_format == "NHWC" else (1, -1) + (1,) * (x.ndim - 2)
        return alpha.reshape(broadcast)
    return alpha.reshape((1, *x.shape[1:]))


@op(rows=WISE, newer="data_format")
def prelu(x, alpha, *, mode: str = "all", data_format: str = "NCHW"):
    """Out = X where X > 0, else Alpha * X; a single Alpha ("all"), one per channel, or one per element."""
    return jnp.where(x > 0, x, _prelu_alpha(alpha, x, mode, data_format) * x)


@prelu.grad
def _(x, alpha, d_out, *, mode, data_format):
    view = _prelu_alpha(alpha, x, mode, data_format)
    d_alpha = jnp.where(x > 0, 0, x * d_out)
    axes = tuple(i for i, n in enumerate(view.shape) if n == 1)
    return jnp.where(x > 0, d_out, view * d_out), jnp.sum(d_alpha, axis=axes).reshape(alpha.shape)
