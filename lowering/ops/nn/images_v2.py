"""Padding, folding and rearranging images, as in Paddle 2."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lowering.ops.nn.conv import channel_back, channel_first
from lowering.ops.nn.vision import pixel_shuffle
from lowering.ops.shared import ints
from lowering.registry import WISE, op

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@op(grad="vjp", diff="x", reads="x paddings")
def pad3d(
    x, paddings=None, *, paddings_: list[int] = (), mode: str = "constant", value: float = 0.0,
    data_format: str = "NCDHW",
):  # fmt: skip
    """Out = X [N, C, D, H, W] padded by (left, right, top, bottom, front, back) with ``value`` or elements of X.

    "reflect" mirrors excluding the edge, "replicate" repeats it, "circular" continues from the other side.
    """
    pads = list(paddings_) if paddings is None else ints(paddings, "pad3d: the paddings")
    if mode not in _MODES:
        raise ValueError(f"mode is {mode!r}; expected one of {sorted(_MODES)}; set one of them")
    spatial = [(pads[2 * i], pads[2 * i + 1]) for i in (2, 1, 0)]
    widths = [(0, 0), *spatial, (0, 0)] if data_format == "NDHWC" else [(0, 0), (0, 0), *spatial]
    options = {"constant_values": jnp.asarray(value, x.dtype)} if mode == "constant" else {}
    return jnp.pad(x, widths, mode=_MODES[mode], **options)


@op(rows=WISE)
def pixel_unshuffle(x, *, downscale_factor: int = 1, data_format: str = "NCHW"):
    """Out [N, C r^2, H / r, W / r]: the pixels of each r x r square become channels."""
    x, r = channel_first(x, data_format), downscale_factor
    n, c, h, w = x.shape
    out = x.reshape(n, c, h // r, r, w // r, r).transpose(0, 1, 3, 5, 2, 4).reshape(n, c * r * r, h // r, w // r)
    return channel_back(out, data_format)


@pixel_unshuffle.grad
def _(d_out, *, downscale_factor, data_format):
    return pixel_shuffle.fn(d_out, upscale_factor=downscale_factor, data_format=data_format)


def _shuffled(x, groups: int, data_format: str):
    x = channel_first(x, data_format)
    n, c, *rest = x.shape
    out = x.reshape(n, groups, c // groups, *rest).swapaxes(1, 2).reshape(x.shape)
    return channel_back(out, data_format)


@op(rows=WISE)
def channel_shuffle(x, *, groups: int, data_format: str = "NCHW"):
    """Out = X with its channels taken in turn from each of ``groups`` groups."""
    return _shuffled(x, groups, data_format)


@channel_shuffle.grad
def _(d_out, *, groups, data_format):
    return _shuffled(d_out, d_out.shape[1 if data_format == "NCHW" else -1] // groups, data_format)


@op(out="Y", lod=None, grad="vjp", reads="x")
def fold(
    x, *, output_sizes: list[int], kernel_sizes: list[int], strides: list[int], paddings: list[int],
    dilations: list[int],
):  # fmt: skip
    """Y [N, C, H, W] = the sum of all windows [N, C kh kw, L] at the positions from which ``unfold`` takes them."""
    (h, w), (kh, kw), (sh, sw), (dh, dw) = output_sizes, kernel_sizes, strides, dilations
    top, left, bottom, right = paddings if len(paddings) == 4 else (*paddings, *paddings)
    rows, columns = (h + top + bottom - dh * (kh - 1) - 1) // sh + 1, (w + left + right - dw * (kw - 1) - 1) // sw + 1
    windows = x.reshape(x.shape[0], -1, kh, kw, rows, columns)
    y = jnp.zeros((x.shape[0], windows.shape[1], h + top + bottom, w + left + right), x.dtype)
    for i in range(kh):
        for j in range(kw):
            place = (slice(i * dh, i * dh + sh * rows, sh), slice(j * dw, j * dw + sw * columns, sw))
            y = y.at[:, :, place[0], place[1]].add(windows[:, :, i, j])
    return jax.lax.slice(y, (0, 0, top, left), (*y.shape[:2], top + h, left + w))
