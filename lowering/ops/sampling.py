"""Sampling images at real coordinates: grid_sampler, affine_grid, deformable_conv (v1, v2), deformable_psroi_pooling."""

import jax
import jax.numpy as jnp
import numpy as np

from lowering.registry import LoDArray, concrete, op

from .conv_kernels import conv_out_size, pad_pairs


def corner(image, row, col, inside):
    """image[c, row, col] for integer positions [...]: [c, ...], 0 where not `inside`."""
    rows, cols = jnp.clip(row, 0, image.shape[1] - 1), jnp.clip(col, 0, image.shape[2] - 1)
    return jnp.where(inside, image[:, rows, cols], 0)


def bilinear(image, y, x):
    """image [c, H, W] at real positions y, x [...]: [c, ...]; pixels outside the image count as zeros."""
    height, width = image.shape[1:]
    y0, x0 = jnp.floor(y), jnp.floor(x)
    fy, fx = y - y0, x - x0
    row, col = y0.astype(jnp.int32), x0.astype(jnp.int32)
    total = 0
    for dy, wy in ((0, 1 - fy), (1, fy)):
        for dx, wx in ((0, 1 - fx), (1, fx)):
            r, c = row + dy, col + dx
            inside = (r >= 0) & (r < height) & (c >= 0) & (c < width)
            total = total + wy * wx * corner(image, r, c, inside)
    return total


@op(out="Output", lod="x", rows="wise", vendor={"use_cudnn": True}, grad="vjp", reads="x grid")
def grid_sampler(x, grid):
    """Output[n, c, h, w] = X[n, c] at (x, y) = (Grid[n, h, w] + 1) / 2 * (size - 1), bilinear, zeros outside."""
    height, width = x.shape[2:]
    col = (grid[..., 0] + 1) * 0.5 * (width - 1)
    row = (grid[..., 1] + 1) * 0.5 * (height - 1)
    return jax.vmap(bilinear)(x, row, col)


def _base_grid(output_shape, output_shape_tensor, dtype):
    """Homogeneous positions (x, y, 1) [H, W, 3] over [-1, 1]."""
    shape = output_shape
    if output_shape_tensor is not None:
        shape = [int(v) for v in concrete(output_shape_tensor, "OutputShape").reshape(-1)]
    height, width = shape[2:]
    span = lambda n: jnp.linspace(-1, 1, n, dtype=dtype) if n > 1 else jnp.full(1, -1, dtype)  # noqa: E731
    x, y = jnp.meshgrid(span(width), span(height))
    return jnp.stack([x, y, jnp.ones_like(x)], axis=-1)


@op(out="Output", diff="theta", lod="theta", vendor={"use_cudnn": True}, rows="wise theta")
def affine_grid(theta, output_shape=None, *, output_shape_: list[int] = ()):
    """Output[n, h, w] = Theta[n] (x, y, 1), x and y running from -1 to 1 over an image of output_shape [N, C, H, W]."""
    base = _base_grid(output_shape_, output_shape, theta.dtype)
    return jnp.einsum("hwk,njk->nhwj", base, theta)


@affine_grid.grad(rows="wise d_output")
def _(d_output, output_shape=None, *, output_shape_):
    base = _base_grid(output_shape_, output_shape, d_output.dtype)
    return jnp.einsum("nhwj,hwk->njk", d_output, base)


def _deformable_positions(offset, x_shape, k, strides, pads, dilations, groups):
    """Sampling rows and columns [N, deformable_groups, taps, oh, ow]."""
    n = x_shape[0]
    oh, ow = offset.shape[2:]
    offset = offset.reshape(n, groups, k[0] * k[1], 2, oh, ow)
    tap_y, tap_x = (v.reshape(-1, 1, 1) for v in np.meshgrid(np.arange(k[0]), np.arange(k[1]), indexing="ij"))
    base_y = np.arange(oh)[:, None] * strides[0] - pads[0][0] + tap_y * dilations[0]
    base_x = np.arange(ow)[None] * strides[1] - pads[1][0] + tap_x * dilations[1]
    return offset[:, :, :, 0] + base_y.astype(offset.dtype), offset[:, :, :, 1] + base_x.astype(offset.dtype)


def deformable(x, offset, mask, filter, strides, paddings, dilations, groups, deformable_groups):
    """A convolution whose taps read X at offset positions, weighted by `mask` (None: 1)."""
    n, c = x.shape[:2]
    k, pads = filter.shape[2:], pad_pairs(paddings, 2)
    out = [conv_out_size(x.shape[2 + a], k[a], strides[a], pads[a], dilations[a]) for a in (0, 1)]
    if tuple(offset.shape[2:]) != tuple(out):
        raise ValueError(f"Offset covers {list(offset.shape[2:])} positions and the output has {out}; make them equal")
    y, xs = _deformable_positions(offset, x.shape, k, strides, pads, dilations, deformable_groups)
    grouped = x.reshape(n, deformable_groups, c // deformable_groups, *x.shape[2:])
    columns = jax.vmap(jax.vmap(bilinear))(grouped, y, xs)
    if mask is not None:
        columns = columns * mask.reshape(n, deformable_groups, 1, k[0] * k[1], *out)
    columns = columns.reshape(n, groups, (c // groups) * k[0] * k[1], -1)
    kernel = filter.reshape(groups, filter.shape[0] // groups, -1)
    return jnp.einsum("gok,ngkp->ngop", kernel, columns).reshape(n, filter.shape[0], *out)


@op(out="Output", lod=None, grad="vjp", reads="input offset mask filter")
def deformable_conv(
    input,
    offset,
    mask,
    filter,
    *,
    strides: list[int] = (1, 1),
    paddings: list[int] = (0, 0),
    dilations: list[int] = (1, 1),
    groups: int = 1,
    deformable_groups: int = 1,
    im2col_step: int = 64,
):
    """Deformable convolution v2: tap t of output p reads Input at p * stride + t * dilation + Offset, times Mask."""
    return deformable(input, offset, mask, filter, strides, paddings, dilations, groups, deformable_groups)


@op(out="Output", lod=None, grad="vjp", reads="input offset filter")
def deformable_conv_v1(
    input,
    offset,
    filter,
    *,
    strides: list[int] = (1, 1),
    paddings: list[int] = (0, 0),
    dilations: list[int] = (1, 1),
    groups: int = 1,
    deformable_groups: int = 1,
    im2col_step: int = 64,
):
    """Deformable convolution v1: `deformable_conv` without a Mask."""
    return deformable(input, offset, None, filter, strides, paddings, dilations, groups, deformable_groups)
