"""Convolution, its two gradients and the geometry they share, on plain arrays in NCHW / OIHW order.

Three linear maps are all that conv, conv_transpose and their gradients (of any order) need:
`forward(x, w)`, its adjoint in x and its adjoint in w.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lowering.ops.nn import conv_depth, conv_strips
from lowering.ops.nn.conv_columns import (
    by_columns,
    filter_grad_columns,
    input_grad_columns,
    many_taps,
    reached,
    size_of,
)
from lowering.ops.nn.windows import Geometry


def pad_pairs(paddings: list, n: int) -> tuple:
    """Fluid's `paddings` attr (one number per axis, or low and high per axis) as (low, high) pairs."""
    if len(paddings) == n:
        return tuple((p, p) for p in paddings)
    if len(paddings) == 2 * n:
        return tuple(zip(paddings[::2], paddings[1::2], strict=True))
    raise ValueError(f"paddings has {len(paddings)} numbers for {n} spatial axes; give {n} or {2 * n}")


def resolve_padding(algorithm, paddings, in_size, ksize, strides, dilations):
    """(pads, dilations) after Fluid's padding_algorithm: SAME drops the dilation, VALID the padding."""
    n = len(in_size)
    if algorithm == "VALID":
        return ((0, 0),) * n, tuple(dilations)
    if algorithm != "SAME":
        return pad_pairs(paddings, n), tuple(dilations)
    totals = [max((-(-i // s) - 1) * s + k - i, 0) for i, k, s in zip(in_size, ksize, strides, strict=True)]
    return tuple((t // 2, t - t // 2) for t in totals), (1,) * n


def forward(x: jax.Array, w: jax.Array, geo: Geometry) -> jax.Array:
    """y[N, O, ...] = x[N, C, ...] (*) w[O, C / groups, ...]; on CPU GEMMs for pointwise kernels, large ones, groups and
    few positions, and images for volumes.
    """
    return _by_platform(_forward_on_cpu(x.shape, w.shape, geo), _general, geo, x, w)


def _forward_on_cpu(x_shape: tuple, w_shape: tuple, geo: Geometry) -> Callable:
    out = reached(x_shape, w_shape, geo)
    if _pointwise(w_shape, geo):
        return pointwise
    if _of_volumes(w_shape):
        return forward_volumes
    if _prefer_gemm(w_shape, x_shape[0], out, geo):
        return by_columns
    return in_strips if conv_strips.pays(w_shape, geo, out[-1]) else _general


def _of_volumes(w_shape: tuple) -> bool:
    """Whether a kernel [O, C / groups, D, H, W] is small enough along depth for a slice of each of its taps there."""
    return len(w_shape) == 5 and w_shape[2] <= 32


def forward_volumes(x: jax.Array, w: jax.Array, geo: Geometry) -> jax.Array:
    """`forward` of volumes, as a convolution of images (see ``conv_depth``)."""
    images = conv_depth.windows_of(x, w.shape[2], reached(x.shape, w.shape, geo)[0], geo)
    kernel, flat = w.reshape(conv_depth.flat_kernel(w.shape)), conv_depth.flat_geometry(geo)
    y = _forward_on_cpu(images.shape, kernel.shape, flat)(images, kernel, flat)
    return conv_depth.volumes_of(y, x.shape[0])


def in_strips(x: jax.Array, w: jax.Array, geo: Geometry) -> jax.Array:
    """`forward` of images with few channels."""
    return conv_strips.forward_strips(x, w, geo, reached(x.shape, w.shape, geo)[1])


def _prefer_gemm(w_shape: tuple, n: int, out: tuple, geo: Geometry) -> bool:
    """Whether GEMMs over columns beat XLA:CPU's convolution.

    They do for groups whose columns stay in cache (3 to 4 times; then both take as long, and columns more memory), and
    for kernels of 25 taps; with 9 they lose: a step of ResNet-20 takes 1.3 times as long.
    """
    fit = _in_cache(w_shape, n, out, geo) and (_grouping(w_shape, geo) or (_dense(geo) and many_taps(w_shape)))
    return fit or _few(w_shape, n, out)


def _grouping(w_shape: tuple, geo: Geometry) -> bool:
    """Whether there are groups, and kernels small enough for a slice of each of an axis' taps."""
    return geo.groups > 1 and _sliceable(w_shape)


def _sliceable(w_shape: tuple) -> bool:
    return all(k <= 32 for k in w_shape[2:])


def _few(w_shape: tuple, n: int, out: tuple) -> bool:
    """Whether there are no more positions than output channels: the last stages of image networks, small batches.

    XLA transposes the kernel in each run there, which takes longer than making the columns: 512 channels of 3x3 take
    43 ms at 8 positions (a GEMM: 0.7), 9.2 at 98 (4.6), 22 at 392 (17); from twice as many positions on it is faster.
    """
    positions = n * size_of(out)
    return isinstance(positions, int) and positions <= w_shape[0] and _sliceable(w_shape)


def _in_cache(w_shape: tuple, n: int, out: tuple, geo: Geometry) -> bool:
    """Whether the columns take 16 MB at most."""
    columns = size_of(w_shape[1:]) * geo.groups * n * size_of(out)
    return isinstance(columns, int) and columns <= 1 << 22


def _dense(geo: Geometry) -> bool:
    """Whether all taps read each value: where they stride over most, columns were not measured to gain."""
    return all(stride == 1 for stride in geo.strides)


def _general(x, w, geo):
    return lax.conv_general_dilated(
        x,
        w,
        geo.strides,
        geo.pads,
        rhs_dilation=geo.dilations,
        dimension_numbers=_numbers(x.ndim),
        feature_group_count=geo.groups,
    )


def _by_platform(on_cpu: Callable, elsewhere: Callable, geo: Geometry, *operands: Any) -> jax.Array:
    """``on_cpu`` or ``elsewhere`` of (operands, shape if there is one, geo), by the platform that is compiled for.

    Args:
        operands: two arrays, then the shape of the result for an adjoint.
    """
    arrays, shape = operands[:2], operands[2:]
    if on_cpu is elsewhere:
        return on_cpu(*operands, geo)
    ways = {"cpu": lambda *given: on_cpu(*given, *shape, geo), "default": lambda *given: elsewhere(*given, *shape, geo)}
    return lax.platform_dependent(*arrays, **ways)


def _pointwise(w_shape: tuple, geo: Geometry) -> bool:
    unpadded = all(p == (0, 0) for p in geo.pads)
    return unpadded and geo.groups == 1 and all(k == 1 for k in w_shape[2:])


def _strided(x: jax.Array, geo: Geometry) -> jax.Array:
    return x[(slice(None), slice(None), *(slice(None, None, s) for s in geo.strides))]


def pointwise(x: jax.Array, w: jax.Array, geo: Geometry) -> jax.Array:
    """`forward` for a kernel of size 1 without padding: the channels' matrix product (1.7 times faster on CPU)."""
    x = _strided(x, geo)
    y = jnp.einsum("oc,ncp->nop", w.reshape(w.shape[:2]), x.reshape(*x.shape[:2], -1))
    return y.reshape(x.shape[0], w.shape[0], *x.shape[2:])


def _numbers(ndim: int) -> tuple:
    spatial = "DHW"[-(ndim - 2) :]
    return ("NC" + spatial, "OI" + spatial, "NC" + spatial)


def input_grad(dy: jax.Array, w: jax.Array, x_shape: tuple, geo: Geometry) -> jax.Array:
    """The adjoint of `forward` in x: the gradient of x[x_shape], and conv_transpose's forward.

    On CPU a general convolution with a dilated left side is slow, so one GEMM makes the columns, which are added at
    their shifted places, or dy is convolved in strips; elsewhere XLA's own transpose convolution is used.
    """
    return _by_platform(_input_grad_on_cpu(dy, w, x_shape, geo), input_grad_direct, geo, dy, w, x_shape)


def _input_grad_on_cpu(dy: jax.Array, w: jax.Array, x_shape: tuple, geo: Geometry) -> Callable:
    if _of_volumes(w.shape) and not _pointwise(w.shape, geo):
        return input_grad_volumes
    if prefer_columns(dy, w, geo):
        return input_grad_columns
    strips = _dense(geo) and conv_strips.pays(_swapped(w.shape), geo, x_shape[-1])
    return input_grad_strips if strips else input_grad_direct


def input_grad_volumes(dy: jax.Array, w: jax.Array, x_shape: tuple, geo: Geometry) -> jax.Array:
    """`input_grad` of volumes, by that of images."""
    taps, kernel, flat = w.shape[2], w.reshape(conv_depth.flat_kernel(w.shape)), conv_depth.flat_geometry(geo)
    images = conv_depth.images_of(dy)
    shape = (images.shape[0], x_shape[1] * taps, *x_shape[3:])
    windows = _input_grad_on_cpu(images, kernel, shape, flat)(images, kernel, shape, flat)
    return conv_depth.windows_added(windows, taps, x_shape, geo)


LEAST_CHANNELS = 4  # of the input, for a convolution of dy to be as fast as its columns


def prefer_columns(dy: jax.Array, w: jax.Array, geo: Geometry) -> bool:
    """Whether GEMMs and shifted adds beat XLA's transposed convolution on CPU.

    Measured on XLA:CPU: they do for pointwise kernels (2.4 times), groups (2 to 7 times), up to three input channels (3
    to 7 times for one), few positions (9 times for 8 of them) and large kernels (3 times for 5x5).
    """
    if geo.groups > 1:
        return _grouping(w.shape, geo)
    if size_of(w.shape[2:]) == 1 or w.shape[1] < LEAST_CHANNELS:
        return True
    n, out = dy.shape[0], dy.shape[2:]
    return _few(w.shape, n, out) or (many_taps(w.shape) and _in_cache(w.shape, n, out, geo))


def input_grad_direct(dy: jax.Array, w: jax.Array, x_shape: tuple, geo: Geometry) -> jax.Array:
    """`input_grad` as XLA's transpose: one convolution over the stride-dilated dy with the flipped kernel."""
    x = jax.ShapeDtypeStruct(x_shape, dy.dtype)
    (dx,) = jax.linear_transpose(lambda x: _general(x, w, geo), x)(dy)
    return dx


def input_grad_strips(dy: jax.Array, w: jax.Array, x_shape: tuple, geo: Geometry) -> jax.Array:
    """`input_grad` where all strides are 1: `in_strips` of dy with the flipped kernel."""
    return in_strips(dy, *_flipped(w, geo))


def _swapped(w_shape: tuple) -> tuple:
    return (w_shape[1], w_shape[0], *w_shape[2:])


def _flipped(w: jax.Array, geo: Geometry) -> tuple:
    """The kernel and the geometry of `input_grad` as a `forward` of dy, where all strides are 1."""
    spans = [dilation * (taps - 1) for taps, dilation in zip(w.shape[2:], geo.dilations, strict=True)]
    pads = tuple((span - low, span - high) for span, (low, high) in zip(spans, geo.pads, strict=True))
    return jnp.flip(w, range(2, w.ndim)).swapaxes(0, 1), geo._replace(pads=pads)


def filter_grad(x: jax.Array, dy: jax.Array, w_shape: tuple, geo: Geometry) -> jax.Array:
    """The adjoint of `forward` in w: the gradient of w[w_shape].

    On CPU it is one GEMM where w is pointwise (3.8 times faster), large (1.4 times) or reaches few positions (7 times
    for 8 of them), and one of each group: of 128 channels in 32 groups XLA's takes 400 times as long (320 ms at 8x8,
    batch 8), with a group for each channel twice.
    """
    return _by_platform(_filter_grad_on_cpu(x, dy, w_shape, geo), filter_grad_direct, geo, x, dy, w_shape)


def _filter_grad_on_cpu(x: jax.Array, dy: jax.Array, w_shape: tuple, geo: Geometry) -> Callable:
    if _pointwise(w_shape, geo):
        return filter_grad_pointwise
    if _of_volumes(w_shape):
        return filter_grad_volumes
    columns = _grouping(w_shape, geo) or _prefer_gemm(w_shape, x.shape[0], dy.shape[2:], geo)
    return filter_grad_columns if columns else filter_grad_direct


def filter_grad_volumes(x: jax.Array, dy: jax.Array, w_shape: tuple, geo: Geometry) -> jax.Array:
    """`filter_grad` of volumes, by that of images."""
    images = conv_depth.windows_of(x, w_shape[2], dy.shape[2], geo), conv_depth.images_of(dy)
    kernel, flat = conv_depth.flat_kernel(w_shape), conv_depth.flat_geometry(geo)
    return _filter_grad_on_cpu(*images, kernel, flat)(*images, kernel, flat).reshape(w_shape)


def filter_grad_pointwise(x: jax.Array, dy: jax.Array, w_shape: tuple, geo: Geometry) -> jax.Array:
    """`filter_grad` of a kernel of size 1 without padding."""
    x = _strided(x, geo).reshape(*x.shape[:2], -1)
    return jnp.einsum("ncp,nop->oc", x, dy.reshape(*dy.shape[:2], -1)).reshape(w_shape)


def filter_grad_direct(x: jax.Array, dy: jax.Array, w_shape: tuple, geo: Geometry) -> jax.Array:
    """`filter_grad` as XLA's transpose of the convolution in its kernel."""
    w = jax.ShapeDtypeStruct(w_shape, x.dtype)
    (dw,) = jax.linear_transpose(lambda w: _general(x, w, geo), w)(dy)
    return dw
