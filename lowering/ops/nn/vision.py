"""Rearranged channels and pixels: pixel_shuffle, space_to_depth, shuffle_channel, temporal_shift, unfold."""

import jax.numpy as jnp
import numpy as np

from lowering.ops import fitting
from lowering.ops.nn import windows
from lowering.ops.nn.conv import channel_back, channel_first
from lowering.ops.shared import transpose_of
from lowering.registry import WISE, Long, op
from lowering.values import Meta


@op(rows=WISE, lod=None, newer="data_format")
def pixel_shuffle(x, *, upscale_factor: int = 1, data_format: str = "NCHW"):
    """Out[n, c, h r + i, w r + j] = X[n, c r^2 + i r + j, h, w], r = upscale_factor."""
    x, r = channel_first(x, data_format), upscale_factor
    n, c, h, w = x.shape
    blocks = x.reshape(n, c // (r * r), r, r, h, w)
    return channel_back(blocks.transpose(0, 1, 4, 2, 5, 3).reshape(n, c // (r * r), h * r, w * r), data_format)


@pixel_shuffle.grad
def _(d_out, *, upscale_factor, data_format):
    d_out, r = channel_first(d_out, data_format), upscale_factor
    n, c, h, w = d_out.shape
    blocks = d_out.reshape(n, c, h // r, r, w // r, r)
    return channel_back(blocks.transpose(0, 1, 3, 5, 2, 4).reshape(n, c * r * r, h // r, w // r), data_format)


@op(rows=WISE)
def space_to_depth(x, *, blocksize: Long = 2):
    """X [N, C, H, W] to [N, C b^2, H / b, W / b] in the order of Darknet's reorg layer.

    The result's buffer is that of an image [N, C / b^2, H b, W b] in which channel k of X fills the pixels at offset
    k // (C / b^2) of each b x b block.
    """
    n, c, h, w = x.shape
    b = blocksize
    if c % (b * b) or h % b or w % b:
        raise ValueError(
            f"space_to_depth with blocksize {b} expects channels divisible by {b * b} and sides by {b}, received "
            f"{list(x.shape)}; pad X or choose another blocksize"
        )
    blocks = x.reshape(n, b, b, c // (b * b), h, w)
    return blocks.transpose(0, 3, 4, 1, 5, 2).reshape(n, c * b * b, h // b, w // b)


@space_to_depth.grad
def _(x: Meta, d_out, *, blocksize):
    n, c, h, w = x.shape
    b = blocksize
    blocks = d_out.reshape(n, c // (b * b), h, b, w, b)
    return blocks.transpose(0, 3, 5, 1, 2, 4).reshape(x.shape)


def _shuffle(x, groups):
    n, c, h, w = x.shape
    return x.reshape(n, groups, c // groups, h, w).swapaxes(1, 2).reshape(x.shape)


@op(rows=WISE, lod=None)
def shuffle_channel(x, *, group: int = 1):
    """Out[n, j * group + i] = X[n, i * (C / group) + j]."""
    return _shuffle(x, group)


@shuffle_channel.grad
def _(d_out, *, group):
    return _shuffle(d_out, d_out.shape[1] // group)


def _shift(x, seg_num, shift_ratio, step):
    """The first share of channels from frame t - step, the second from t + step, zeros at the ends."""
    nt, c, h, w = x.shape
    frames = x.reshape(nt // seg_num, seg_num, c, h, w)
    one, two = int(np.float32(c) * np.float32(shift_ratio)), int(np.float32(c) * np.float32(2 * shift_ratio))
    pad = jnp.pad(frames, ((0, 0), (1, 1), (0, 0), (0, 0), (0, 0)))
    past, future = pad[:, 1 - step : seg_num + 1 - step], pad[:, 1 + step : seg_num + 1 + step]
    shifted = [past[:, :, :one], future[:, :, one:two], frames[:, :, two:]]
    return jnp.concatenate(shifted, axis=2).reshape(x.shape)


@op(newer="data_format")
def temporal_shift(x, *, seg_num: int, shift_ratio: float = 0.25, data_format: str = "NCHW"):
    """X [N seg_num, C, H, W]: the first C * ratio channels come from the previous frame, the next from the next one."""
    return channel_back(_shift(channel_first(x, data_format), seg_num, shift_ratio, 1), data_format)


@temporal_shift.fits
def _(x, *, seg_num, shift_ratio):
    fitting.rank("X", x, 4)
    fitting.within("seg_num", seg_num, 1)
    fitting.within("shift_ratio", shift_ratio, 0, 0.5)


@temporal_shift.grad
def _(d_out, *, seg_num, shift_ratio, data_format):
    return channel_back(_shift(channel_first(d_out, data_format), seg_num, shift_ratio, -1), data_format)


def patches(x, kernel_sizes, strides, paddings, dilations):
    """Columns [N, C * kh * kw, oh * ow] of X; paddings are top, left, bottom, right."""
    n, c, h, w = x.shape
    (kh, kw), (sh, sw), (dh, dw) = kernel_sizes, strides, dilations
    top, left, bottom, right = paddings
    rows, columns = (h, kh, sh, (top, bottom), dh), (w, kw, sw, (left, right), dw)
    oh, ow = windows.count(*rows), windows.count(*columns)
    padded = jnp.pad(x, ((0, 0), (0, 0), windows.reached(*rows), windows.reached(*columns)))
    taps = [
        padded[:, :, i * dh : i * dh + (oh - 1) * sh + 1 : sh, j * dw : j * dw + (ow - 1) * sw + 1 : sw]
        for i in range(kh)
        for j in range(kw)
    ]
    return jnp.stack(taps, axis=2).reshape(n, c * kh * kw, oh * ow)


@op(out="Y", lod=None, rows=WISE)
def unfold(x, *, kernel_sizes: list[int], strides: list[int], paddings: list[int], dilations: list[int]):
    """Y[N, C * kh * kw, L]: each column is one sliding window of X (im2col)."""
    return patches(x, kernel_sizes, strides, paddings, dilations)


@unfold.grad
def _(x: Meta, d_y, *, kernel_sizes, strides, paddings, dilations):
    return transpose_of(lambda v: patches(v, kernel_sizes, strides, paddings, dilations), x, d_y)
