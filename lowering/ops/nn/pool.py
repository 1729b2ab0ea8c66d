"""pool2d, pool3d, the max pools that return indices, unpool and spp.

Window i along an axis covers rows i * stride - pad ... + ksize; the number of windows is
`windows.count`. `exclusive` averages divide by the number of rows actually in the window; others by ksize, in a
program of Paddle 2 by the rows of it that are in the input or its padding, which `ceil_mode` reaches beyond.
"""

import math

import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering.engine.shapes.infer_rules import by_rule
from lowering.ops.nn import pool_kernels as kernels
from lowering.ops.nn import windows
from lowering.ops.nn.conv import channel_back, channel_first
from lowering.ops.nn.conv_kernels import resolve_padding
from lowering.ops.nn.interpolate import spatial_axes
from lowering.ops.nn.pool_kernels import Axis, adaptive_axis
from lowering.program import PADDLE_2
from lowering.registry import WISE, op
from lowering.sizes.counts import RowSize, sizes_along
from lowering.values import LoDArray, Meta, data_of


def pool_axes(sizes, ksize, strides, paddings, *, global_pooling=False, adaptive=False, ceil_mode=False,
              padding_algorithm="EXPLICIT"):  # fmt: skip
    """The windows of each spatial axis."""
    if global_pooling and not adaptive:
        return [Axis(s, 1, s, 1, 0) for s in sizes]
    ksize = sizes if global_pooling else ksize
    if adaptive:
        return [adaptive_axis(s, k) for s, k in zip(sizes, ksize, strict=True)]
    pads, _ = resolve_padding(padding_algorithm, paddings, sizes, ksize, strides, [1] * len(sizes))
    return [
        Axis(size, windows.count(size, k, s, pad, ceil_mode=ceil_mode), k, s, pad[0])
        for size, k, s, pad in zip(sizes, ksize, strides, pads, strict=True)
    ]


def _at_least_lowest(x, axes):
    """A box that lies in the padding as a whole has the maximum -FLT_MAX, whatever the dtype."""
    if all(axis.filled for axis in axes):
        return x
    return jnp.maximum(x, jnp.asarray(-np.finfo(np.float32).max, x.dtype))


def max_pool(x, axes):
    """Maxima over boxes; the innermost axis first, as the gradient's row-major order wants."""
    for dim in reversed(range(len(axes))):
        x = kernels.max_axis(x, dim + 2, axes[dim])
    return _at_least_lowest(x, axes)


def max_pool_grad(x, out, d_out, axes):
    """Each box's gradient at its first maximum in row-major order."""
    stages = [x]
    for dim in reversed(range(1, len(axes))):
        stages.append(kernels.max_axis(stages[-1], dim + 2, axes[dim]))
    stages.append(out)
    for step, dim in enumerate(range(len(axes))):
        source, target = stages[-2 - step], stages[-1 - step]
        d_out = kernels.max_axis_grad(source, target, d_out, dim + 2, axes[dim])
    return d_out


def _divisor(axes, exclusive, dtype, release):
    """Number of rows averaged in each box, broadcastable to the output."""
    inside = exclusive or any(not isinstance(a, Axis) or isinstance(a.k, RowSize) for a in axes)
    if not inside and (release < PADDLE_2 or not any(a.beyond for a in axes)):
        return jnp.asarray(math.prod(a.k for a in axes), dtype)
    counts = jnp.ones((1,) * len(axes), dtype)
    for dim, axis in enumerate(axes):
        rows = axis.counts() if inside else axis.counts(axis.low)
        counts *= jnp.asarray(rows, dtype).reshape([-1 if d == dim else 1 for d in range(len(axes))])
    return counts


def _at_least_single(dtype):
    """The type in which means are computed: sums and counts of a box may be beyond half precision."""
    return jnp.promote_types(dtype, jnp.float32)


def avg_pool(x, axes, exclusive, release=0):
    """Means over boxes."""
    sums = x.astype(_at_least_single(x.dtype))
    for dim in reversed(range(len(axes))):
        sums = kernels.sum_axis(sums, dim + 2, axes[dim])
    return (sums / _divisor(axes, exclusive, sums.dtype, release)).astype(x.dtype)


def avg_pool_grad(d_out, axes, exclusive, release=0):
    """Each box's gradient divided over its rows."""
    dtype = _at_least_single(d_out.dtype)
    d_x = d_out.astype(dtype) / _divisor(axes, exclusive, dtype, release)
    for dim, axis in enumerate(axes):
        d_x = kernels.sum_axis_grad(d_x, dim + 2, axis)
    return d_x.astype(d_out.dtype)


def _sizes(x, data_format):
    """The sizes that windows move along, which are ``RowSize`` where the op is given a value with its room."""
    return sizes_along(x, spatial_axes(x, data_format))


def _pool(x, pooling_type, exclusive, data_format, release, ksize, strides, paddings, **options):
    axes = pool_axes(_sizes(x, data_format), ksize, strides, paddings, **options)
    x = channel_first(data_of(x), data_format)
    out = max_pool(x, axes) if _is_max(pooling_type) else avg_pool(x, axes, exclusive, release)
    return channel_back(out, data_format)


def _pool_grad(x: LoDArray, out, d_out, *, pooling_type, ksize, global_pooling, strides, paddings, exclusive,
               adaptive, ceil_mode, data_format, padding_algorithm, ctx):  # fmt: skip
    axes = pool_axes(
        _sizes(x, data_format), ksize, strides, paddings, global_pooling=global_pooling, adaptive=adaptive,
        ceil_mode=ceil_mode, padding_algorithm=padding_algorithm,
    )  # fmt: skip
    x, out, d_out = (channel_first(v, data_format) for v in (data_of(x), out, d_out))
    if _is_max(pooling_type):
        dx = max_pool_grad(x, out, d_out, axes)
    else:
        dx = avg_pool_grad(d_out, axes, exclusive, ctx.release)
    return channel_back(dx, data_format)


def _is_max(pooling_type):
    if pooling_type not in ("max", "avg"):
        raise ValueError(f"pooling_type expects 'max' or 'avg', received {pooling_type!r}; use one of the two")
    return pooling_type == "max"


_AXES = ("global_pooling", "adaptive", "ceil_mode", "padding_algorithm")


def _images(shapes, attr):
    """Of images in NCHW order, of whose sizes the batch alone may be unknown."""
    x = shapes["X"]
    _is_max(attr("pooling_type"))
    if attr("data_format") == "NHWC" or len(x) != 4 or min(x[1:]) < 1:
        return None
    options = {name: attr(name) for name in _AXES}
    axes = pool_axes(x[2:], attr("ksize"), attr("strides"), attr("paddings"), **options)
    return {"Out": (*x[:2], *(axis.out for axis in axes))}


@op(vendor="use_cudnn use_mkldnn use_quantizer", rows=WISE, infer=by_rule(_images))
def pool2d(
    x: LoDArray,
    *,
    pooling_type: str,
    ksize: list[int],
    global_pooling: bool = False,
    strides: list[int] = (1, 1),
    paddings: list[int] = (0, 0),
    exclusive: bool = True,
    adaptive: bool = False,
    ceil_mode: bool = False,
    data_format: str = "NCHW",
    is_test: bool = False,
    padding_algorithm: str = "EXPLICIT",
    ctx,
):
    """Out = max or mean of X over windows along two spatial axes."""
    return _pool(
        x, pooling_type, exclusive, data_format, ctx.release, ksize, strides, paddings, adaptive=adaptive,
        global_pooling=global_pooling, ceil_mode=ceil_mode, padding_algorithm=padding_algorithm,
    )  # fmt: skip


pool2d.grad(_pool_grad)


@op(vendor="use_cudnn use_mkldnn", rows=WISE)
def pool3d(
    x: LoDArray,
    *,
    pooling_type: str,
    ksize: list[int],
    global_pooling: bool = False,
    strides: list[int] = (1, 1, 1),
    paddings: list[int] = (0, 0, 0),
    exclusive: bool = True,
    adaptive: bool = False,
    ceil_mode: bool = False,
    data_format: str = "NCDHW",
    padding_algorithm: str = "EXPLICIT",
    ctx,
):
    """Out = max or mean of X over windows along three spatial axes."""
    return _pool(
        x, pooling_type, exclusive, data_format, ctx.release, ksize, strides, paddings, adaptive=adaptive,
        global_pooling=global_pooling, ceil_mode=ceil_mode, padding_algorithm=padding_algorithm,
    )  # fmt: skip


pool3d.grad(_pool_grad)


def _max_pool_with_index(x, ksize, strides, paddings, global_pooling, adaptive):
    axes = pool_axes(x.shape[2:], ksize, strides, paddings, global_pooling=global_pooling, adaptive=adaptive)
    index = jnp.arange(math.prod(x.shape[2:]), dtype=jnp.int32).reshape(x.shape[2:])
    value, index = x, jnp.broadcast_to(index, x.shape)
    for dim in reversed(range(len(axes))):
        value, index = kernels.argmax_axis(value, index, dim + 2, axes[dim])
    return _at_least_lowest(value, axes), index


def scatter_planes(values, index, shape):
    """Zeros[shape] with `values` added at flat spatial position `index` of their own [n, c] plane; -1 is nowhere."""
    n, c = shape[:2]
    index = jnp.where(index < 0, math.prod(shape[2:]), index)
    planes = jnp.zeros((n * c, math.prod(shape[2:])), values.dtype)
    rows = jnp.arange(n * c)[:, None]
    out = planes.at[rows, index.reshape(n * c, -1)].add(values.reshape(n * c, -1), mode="drop")
    return out.reshape(shape)


def _max_pool_index_grad(x: Meta, mask, d_out):
    """X@GRAD: Out@GRAD added at the positions in Mask."""
    return scatter_planes(d_out, mask, x.shape)


@op(out="Out Mask", lod=None, rows=WISE, undeclared="Mask:dtype")
def max_pool2d_with_index(
    x,
    *,
    ksize: list[int],
    global_pooling: bool = False,
    adaptive: bool = False,
    strides: list[int] = (1, 1),
    paddings: list[int] = (0, 0),
):
    """Out = maxima over windows, Mask = their flat positions h * W + w in X (int32)."""
    return _max_pool_with_index(x, ksize, strides, paddings, global_pooling, adaptive)


@op(out="Out Mask", lod=None, rows=WISE, undeclared="Mask:dtype")
def max_pool3d_with_index(
    x,
    *,
    ksize: list[int],
    global_pooling: bool = False,
    adaptive: bool = False,
    strides: list[int] = (1, 1, 1),
    paddings: list[int] = (0, 0, 0),
):
    """Out = maxima over windows, Mask = their flat positions (d * H + h) * W + w in X (int32)."""
    return _max_pool_with_index(x, ksize, strides, paddings, global_pooling, adaptive)


max_pool2d_with_index.grad(_max_pool_index_grad)
max_pool3d_with_index.grad(_max_pool_index_grad)


def _unpooled(x, indices, sizes):
    """Zeros with X at the flat positions Indices of planes of ``sizes``."""
    planes = jnp.zeros((x.shape[0] * x.shape[1], math.prod(sizes)), x.dtype)
    rows = jnp.arange(planes.shape[0])[:, None]
    flat = planes.at[rows, indices.reshape(planes.shape[0], -1)].set(x.reshape(planes.shape[0], -1), mode="drop")
    return flat.reshape(*x.shape[:2], *sizes)


def _unpool_grad(x: Meta, indices, out: Meta, d_out):
    planes = d_out.reshape(*x.shape[:2], -1)
    flat = jnp.take_along_axis(planes, indices.reshape(*x.shape[:2], -1).astype(jnp.int32), axis=2)
    return flat.reshape(x.shape)


@op(diff="x", lod=None, rows=WISE, newer="output_size")
def unpool(x, indices, *, ksize: list[int], strides: list[int] = (1, 1), paddings: list[int] = (0, 0),
           unpooling_type: str, output_size: list[int] = ()):  # fmt: skip
    """Out = zeros with X at the flat positions Indices; out = (in - 1) * stride - 2 * padding + ksize.

    Paddle 2 specifies ``output_size``.
    """
    sizes = list(output_size)[-2:] or [
        windows.at_least_one((i - 1) * s - 2 * p + k, i, f"unpool with ksize {k} and {p} rows less at each end")
        for i, k, s, p in zip(x.shape[2:], ksize, strides, paddings, strict=True)
    ]
    return _unpooled(x, indices, sizes)


@op(diff="x", lod=None, rows=WISE)
def unpool3d(x, indices, *, ksize: list[int], strides: list[int] = (1, 1, 1), paddings: list[int] = (0, 0, 0),
             output_size: list[int] = ()):  # fmt: skip
    """Out = zeros of ``output_size`` with X at the flat positions Indices."""
    return _unpooled(x, indices, list(output_size)[-3:])


unpool.grad(_unpool_grad)
unpool3d.grad(_unpool_grad)


def _spp_levels(x, pyramid_height):
    """The windows of each pyramid level: 2^level bins per axis, padded so that they cover the input."""
    for level in range(pyramid_height):
        bins = 2**level
        axes = []
        for size in x.shape[2:]:
            k = -(-size // bins)
            axes.append(Axis(size, bins, k, k, (k * bins - size + 1) // 2))
        yield axes


@op(lod=None, rows=WISE)
def spp(x, *, pyramid_height: int, pooling_type: str):
    """Spatial pyramid pooling: for each level, X pooled to 2^level x 2^level bins, flattened and concatenated."""
    pool = max_pool if _is_max(pooling_type) else lambda x, axes: avg_pool(x, axes, True)
    return lax.concatenate([pool(x, axes).reshape(x.shape[0], -1) for axes in _spp_levels(x, pyramid_height)], 1)


@spp.grad
def _(x, out, d_out, *, pyramid_height, pooling_type):
    total, at = jnp.zeros_like(x), 0
    for axes in _spp_levels(x, pyramid_height):
        shape = (*x.shape[:2], *(a.out for a in axes))
        stop = at + math.prod(shape[1:])
        level, d_level = (lax.slice_in_dim(v, at, stop, axis=1).reshape(shape) for v in (out, d_out))
        if _is_max(pooling_type):
            total = total + max_pool_grad(x, level, d_level, axes)
        else:
            total = total + avg_pool_grad(d_level, axes, True)
        at = stop
    return total
