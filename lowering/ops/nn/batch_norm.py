"""batch_norm and inplace_abn: normalisation over all axes except the channels, with running statistics.

SavedVariance holds 1 / sqrt(variance + epsilon), as in Fluid's CPU kernel.
"""

import math

import jax
import jax.numpy as jnp

from lowering.engine.shapes.infer_rules import by_rule
from lowering.ops.math.extrema import at_least
from lowering.registry import MASKED, op
from lowering.sizes.moves import mask
from lowering.values import LoDArray, Wide, row_mask


def channel_axis(ndim, data_layout):
    """Index of the channel axis."""
    return ndim - 1 if data_layout == "NHWC" and ndim > 2 else 1


def _per_channel(v, x, axis):
    return v.reshape([-1 if d == axis else 1 for d in range(x.ndim)])


def _other_axes(x, axis):
    return tuple(d for d in range(x.ndim) if d != axis)


def _count(x: LoDArray | Wide, axis):
    """Number of values of a channel; a traced one when rows are padded, or dims wide."""
    n = math.prod(x.shape[d] for d in range(x.data.ndim) if d not in (0, axis))
    if isinstance(x, Wide):
        return _used(x, n * x.shape[0]).astype(x.dtype)
    return n * jnp.maximum(x.rows(), 1).astype(x.dtype) if x.padded else n * x.shape[0]


def _used(x: Wide, room):
    """How many of the positions for which there is ``room`` are used: int32."""
    for along, count in zip(x.axes, x.counts, strict=True):
        room = room // along.room * jnp.maximum(count, 1)
    return room


def _single(x: LoDArray | Wide, axis):
    """Whether a channel has one value alone, which has no variance; traced when rows are padded, or dims wide."""
    n = math.prod(x.shape[d] for d in range(x.data.ndim) if d not in (0, axis))
    if isinstance(x, Wide):
        return _used(x, n * x.shape[0]) == 1
    if n != 1:
        return False
    return x.rows() == 1 if x.padded else x.shape[0] == 1


def _choose(condition, these, others):
    """``these`` where ``condition``, else ``others``; a condition that is known chooses while tracing."""
    if not isinstance(condition, jax.Array):
        return these if condition else others
    return tuple(jnp.where(condition, a, b) for a, b in zip(these, others, strict=True))


def _valid(x: LoDArray | Wide, values):
    """`values`, zero in padding rows and at unused positions of wide dims."""
    if isinstance(x, Wide):
        for along, count in zip(x.axes, x.counts, strict=True):
            values = jnp.where(mask(x.shape, along, count), values, 0)
        return values
    return jnp.where(row_mask(x), values, 0) if x.padded else values


def statistics(x: LoDArray | Wide, axis):
    """(mean, biased variance) of each channel over the valid rows, two passes."""
    over, n = _other_axes(x.data, axis), _count(x, axis)
    mean = _valid(x, x.data).sum(axis=over) / n
    centred = x.data - _per_channel(mean, x.data, axis)
    return mean, _valid(x, jnp.square(centred)).sum(axis=over) / n


def uses_running(is_test, use_global_stats, trainable_statistics):
    """Whether X is normalised by the running statistics."""
    return use_global_stats or (is_test and not trainable_statistics)


def _affine(mean, scale, bias):
    """Scale and Bias; a program of Paddle 2 may have none."""
    return jnp.ones_like(mean) if scale is None else scale, jnp.zeros_like(mean) if bias is None else bias


def _normalise(x, scale, bias, mean, inv_std, axis):
    gain = scale * inv_std
    shift = bias - mean * gain
    return x * _per_channel(gain, x, axis) + _per_channel(shift, x, axis)


def _widened(rows: LoDArray | Wide, like):
    """Rows in the precision of the statistics: sums of half-precision numbers would soon be beyond their range."""
    return rows.with_data(rows.data.astype(jnp.promote_types(rows.dtype, like.dtype)))


def batch_norm_forward(rows: LoDArray | Wide, scale, bias, mean, variance, momentum, *, epsilon, running, axis):
    """(Y, MeanOut, VarianceOut, SavedMean, SavedVariance); Fluid leaves the saved ones unset when running.

    Fluid skips channels with a single value: Y = X, and the running statistics are unchanged. Y has the type of X.
    """
    narrow = rows.dtype
    rows = _widened(rows, mean)
    x = rows.data
    unused = jnp.zeros_like(mean)
    if running:
        inv_std = 1 / jnp.sqrt(variance + epsilon)
        return _normalise(x, scale, bias, mean, inv_std, axis).astype(narrow), mean, variance, unused, unused
    m, v = statistics(rows, axis)
    inv_std = 1 / jnp.sqrt(v + epsilon)
    y = _per_channel(scale * inv_std, x, axis) * (x - _per_channel(m, x, axis)) + _per_channel(bias, x, axis)
    momentum = jnp.asarray(momentum, x.dtype)
    moved = mean * momentum + m * (1 - momentum), variance * momentum + v * (1 - momentum)
    y, *rest = _choose(_single(rows, axis), (x, mean, variance, unused, unused), (y, *moved, m, inv_std))
    return y.astype(narrow), *rest


def batch_norm_backward(rows: LoDArray | Wide, scale, d_y, mean, inv_std, *, running, axis):
    """(X@GRAD, Scale@GRAD, Bias@GRAD); (Y@GRAD, 0, 0) where Fluid has skipped channels of one value."""
    narrow = rows.dtype
    rows, d_y = _widened(rows, mean), d_y.astype(jnp.promote_types(d_y.dtype, mean.dtype))
    x = rows.data
    over = _other_axes(x, axis)
    x_hat = (x - _per_channel(mean, x, axis)) * _per_channel(inv_std, x, axis)
    d_bias = d_y.sum(axis=over)
    d_scale = (d_y * x_hat).sum(axis=over)
    gain = _per_channel(scale * inv_std, x, axis)
    if running:
        return _rows_like(rows, (d_y * gain).astype(narrow)), d_scale, d_bias
    n = _count(rows, axis)
    mean_part = _per_channel(d_bias / n, x, axis) + x_hat * _per_channel(d_scale / n, x, axis)
    skipped = d_y, jnp.zeros_like(d_scale), jnp.zeros_like(d_bias)
    d_x, *rest = _choose(_single(rows, axis), skipped, (_valid(rows, gain * (d_y - mean_part)), d_scale, d_bias))
    return _rows_like(rows, d_x.astype(narrow)), *rest


def _rows_like(rows: LoDArray | Wide, data):
    return rows.with_data(data) if isinstance(rows, LoDArray) and rows.padded else data


def _like_x(shapes, attr):
    x = shapes["X"]
    channels = x[channel_axis(len(x), attr("data_layout"))] if len(x) > 1 else 0
    fits = {shapes.get(s) for s in ("Scale", "Bias", "Mean", "Variance")} == {(channels,)}
    if channels < 1 or not fits or "MomentumTensor" in shapes:
        return None
    return {"Y": x} | dict.fromkeys(("MeanOut", "VarianceOut", "SavedMean", "SavedVariance"), (channels,))


OUTPUTS = "Y MeanOut VarianceOut SavedMean~ SavedVariance~ ReserveSpace?"


@op(out=OUTPUTS, diff="x scale bias", lod={"Y": "x"}, rows=MASKED,
    inplace={"MeanOut": "mean", "VarianceOut": "variance"}, spare="scale bias", infer=by_rule(_like_x))  # fmt: skip
def batch_norm(
    x: LoDArray,
    scale,
    bias,
    mean,
    variance,
    momentum_tensor=None,
    *,
    is_test: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    data_layout: str = "NCHW",
    use_global_stats: bool = False,
    trainable_statistics: bool = False,
    use_mkldnn: bool = False,
    fuse_with_relu: bool = False,
):
    """Y = Scale * (X - mean) / sqrt(variance + epsilon) + Bias; MeanOut = Mean * momentum + mean * (1 - momentum).

    oneDNN's ``fuse_with_relu`` makes max(Y, 0) of Y.
    """
    if momentum_tensor is not None:
        momentum = momentum_tensor.reshape(())
    running = uses_running(is_test, use_global_stats, trainable_statistics)
    scale, bias = _affine(mean, scale, bias)
    y, *rest = batch_norm_forward(
        x, scale, bias, mean, variance, momentum,
        epsilon=epsilon, running=running, axis=channel_axis(x.data.ndim, data_layout),
    )  # fmt: skip
    y = at_least(y, 0) if use_mkldnn and fuse_with_relu else y
    return (_rows_like(x, y), *rest, None)


def _make_grad(g):
    """The grad op reads the updated running statistics with use_global_stats, and ReserveSpace where there is one."""
    spec = g.regular()
    del spec.inputs["Mean"], spec.inputs["Variance"]
    if g.attrs.get("use_global_stats"):
        spec.inputs |= {"Mean": g.output("MeanOut"), "Variance": g.output("VarianceOut")}
    if not spec.inputs.get("ReserveSpace"):
        spec.inputs.pop("ReserveSpace", None)
    return [spec] if g.grad_to_var else []


batch_norm.grad_maker(_make_grad)


@batch_norm.grad(rows=MASKED)
def _(x: LoDArray, scale, bias, saved_mean, saved_variance, d_y, mean=None, variance=None, reserve_space=None, *,
      epsilon, data_layout, use_global_stats):  # fmt: skip
    if use_global_stats:
        saved_mean, saved_variance = mean, 1 / jnp.sqrt(variance + epsilon)
    return batch_norm_backward(
        x, scale, d_y, saved_mean, saved_variance, running=use_global_stats, axis=channel_axis(x.data.ndim, data_layout)
    )


def _activate(y, activation, alpha):
    if activation not in ("", "identity", "leaky_relu", "elu"):
        raise ValueError(
            f"inplace_abn cannot undo activation {activation!r}; expected identity, leaky_relu or elu; choose one"
        )
    if activation == "leaky_relu":
        return jnp.where(y > 0, y, y * alpha)
    if activation == "elu":
        return jnp.where(y > 0, y, alpha * jnp.expm1(y))
    return y


def _undo_activation(y, d_y, activation, alpha):
    """(the value before the activation, its gradient) from the value after it."""
    if activation == "leaky_relu":
        return jnp.where(y > 0, y, y / alpha), jnp.where(y > 0, d_y, d_y * alpha)
    if activation == "elu":
        return jnp.where(y > 0, y, jnp.log1p(y / alpha)), jnp.where(y > 0, d_y, d_y * (y + alpha))
    return y, d_y


@op(out=OUTPUTS, diff="x scale bias", vendor="use_mkldnn fuse_with_relu", lod={"Y": "x"},
    inplace={"Y": "x", "MeanOut": "mean", "VarianceOut": "variance"})  # fmt: skip
def inplace_abn(
    x,
    scale,
    bias,
    mean,
    variance,
    momentum_tensor=None,
    *,
    is_test: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    data_layout: str = "NCHW",
    use_global_stats: bool = False,
    trainable_statistics: bool = False,
    activation: str = "",
    alpha: float = 0.1,
    use_sync_bn: bool = False,
):
    """Y = activation(batch_norm(X)), computed in place; activation is identity, leaky_relu or elu."""
    if momentum_tensor is not None:
        momentum = momentum_tensor.reshape(())
    running = uses_running(is_test, use_global_stats, trainable_statistics)
    y, *rest = batch_norm_forward(
        LoDArray(x), scale, bias, mean, variance, momentum,
        epsilon=epsilon, running=running, axis=channel_axis(x.ndim, data_layout),
    )  # fmt: skip
    return (_activate(y, activation, alpha), *rest, None)


inplace_abn.grad_maker(_make_grad)


@inplace_abn.grad(rows=None)
def _(y, scale, bias, saved_mean, saved_variance, d_y, mean=None, variance=None, *, epsilon, data_layout,
      use_global_stats, activation, alpha):  # fmt: skip
    axis = channel_axis(y.ndim, data_layout)
    if use_global_stats:
        saved_mean, saved_variance = mean, 1 / jnp.sqrt(variance + epsilon)
    y, d_y = _undo_activation(y, d_y, activation, alpha)
    x_hat = (y - _per_channel(bias, y, axis)) / _per_channel(scale, y, axis)
    x = x_hat / _per_channel(saved_variance, y, axis) + _per_channel(saved_mean, y, axis)
    return batch_norm_backward(LoDArray(x), scale, d_y, saved_mean, saved_variance, running=use_global_stats, axis=axis)
