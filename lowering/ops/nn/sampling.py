"""Sampling images at real coordinates: grid_sampler, affine_grid, deformable_conv(_v1), deformable_psroi_pooling."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np

from lowering.engine.shapes.infer_rules import by_rule
from lowering.errors import NeedsExact
from lowering.ops import fitting
from lowering.ops.nn import windows
from lowering.ops.nn.conv_kernels import pad_pairs
from lowering.ops.shared import round_half_away
from lowering.program import VarInfo
from lowering.registry import WISE, Wise, op
from lowering.values import LoDArray, concrete


def pixels(image, at):
    """image[c, at...] for an integer position along each spatial axis [...]: [c, ...], 0 where one is outside."""
    sizes = image.shape[1:]
    inside = True
    for position, size in zip(at, sizes, strict=True):
        inside = inside & (position >= 0) & (position < size)
    clipped = (jnp.clip(position, 0, size - 1) for position, size in zip(at, sizes, strict=True))
    return jnp.where(inside, jnp.asarray(image)[:, *clipped], 0)


def linear(image, *at):
    """image [c, H, W] (or [c, D, H, W]) at real positions y, x [...]: [c, ...]; what is outside counts as zeros."""
    first = [jnp.floor(position) for position in at]
    part = [position - low for position, low in zip(at, first, strict=True)]
    cell = [low.astype(jnp.int32) for low in first]
    total = 0
    for step in itertools.product((0, 1), repeat=len(at)):
        weights = (f if d else 1 - f for d, f in zip(step, part, strict=True))
        total = total + math.prod(weights) * pixels(image, [low + d for low, d in zip(cell, step, strict=True)])
    return total


def _unnormalized(at, size, align_corners):
    return (at + 1) * 0.5 * (size - 1) if align_corners else ((at + 1) * size - 1) * 0.5


def _mirrored(at, size, align_corners):
    """Positions outside thrown back at the edge pixels' centres (align_corners), or at their outer edges."""
    low, span = (0, size - 1) if align_corners else (-0.5, size)
    if span == 0:
        return jnp.zeros_like(at)
    away = jnp.abs(at - low)
    rest = away - jnp.floor(away / (2 * span)) * (2 * span)
    return jnp.where(rest > span, 2 * span - rest, rest) + low


def _held(at, size, padding_mode, align_corners):
    if padding_mode == "zeros":
        return at
    at = _mirrored(at, size, align_corners) if padding_mode == "reflection" else at
    # Not a clip: at the very edge the position takes the whole gradient.
    return jnp.where(at < 0, 0, jnp.where(at > size - 1, size - 1, at))


def _nearest(image, *at):
    """The nearest pixel; of volumes zero at positions that are themselves outside, as Paddle has it."""
    found = pixels(image, [jnp.round(position).astype(jnp.int32) for position in at])
    if len(at) == 2:
        return found
    inside = [(position >= 0) & (position <= size - 1) for position, size in zip(at, image.shape[1:], strict=True)]
    return jnp.where(math.prod(inside), found, 0)


_SAMPLED = {"bilinear": linear, "nearest": _nearest}


def _as_gridded(shapes, attr):
    """Of images; channels and the pixels of the grid."""
    x, grid = shapes["X"], shapes["Grid"]
    fitting.same("images and coordinates", (x[0], len(x), 2), (grid[0], 4, grid[-1]))
    return {"Output": (*x[:2], *grid[1:-1])} if len(grid) == 4 else None


@op(
    out="Output", lod="x", rows=WISE, vendor={"use_cudnn": True}, grad="vjp", reads="x grid",
    infer=by_rule(_as_gridded), newer="mode padding_mode align_corners",
)  # fmt: skip
def grid_sampler(x, grid, *, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = True):
    """Output[n, c, h, w] = X[n, c] at (x, y) = (Grid[n, h, w] + 1) / 2 * (size - 1), bilinear, zero outside.

    Paddle 2 has volumes, too (Grid [N, D, H, W, 3]), and may use the ``nearest`` pixel, clamp positions at the
    ``border`` or mirror them (``reflection``); without ``align_corners``, -1 and 1 are the outer edges of the first and
    last pixels.
    """
    if mode not in _SAMPLED or padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"mode is {mode!r}, padding_mode {padding_mode!r}; expected bilinear or nearest, and zeros,"
                         " border or reflection; set one of them")  # fmt: skip
    sizes = x.shape[:1:-1]
    at = [_unnormalized(grid[..., i], size, align_corners) for i, size in enumerate(sizes)]
    held = [_held(position, size, padding_mode, align_corners) for position, size in zip(at, sizes, strict=True)]
    return jax.vmap(_SAMPLED[mode])(x, *reversed(held))


@grid_sampler.fits
def _(x, grid):
    fitting.rank("X", x, 4)
    fitting.rank("Grid", grid, 4)
    fitting.dim("Grid", grid, 3, 2)
    fitting.same("N, H and W of X and Grid", [x.shape[0], *x.shape[2:]], grid.shape[:3])


def _base_grid(output_shape, output_shape_tensor, dtype, align_corners):
    """Homogeneous positions (x, y, 1) [H, W, 3], or (x, y, z, 1), over [-1, 1]; of centres without align_corners."""
    shape = output_shape
    if output_shape_tensor is not None and not shape:  # the attribute, where it is given, goes before the tensor
        shape = [int(v) for v in concrete(output_shape_tensor, "OutputShape").reshape(-1)]
    shrink = lambda n: 1 if align_corners else (n - 1) / n  # noqa: E731
    span = lambda n: jnp.linspace(-1, 1, n, dtype=dtype) * shrink(n) if n > 1 else jnp.full(1, -1, dtype)  # noqa: E731
    axes = jnp.meshgrid(*map(span, shape[2:]), indexing="ij")[::-1]
    return jnp.stack([*axes, jnp.ones_like(axes[0])], axis=-1)


def _infer_affine_grid(op, var_of):
    """The batch of Theta; Fluid leaves the image's sides open also where they are attributes."""
    theta = var_of(op.inputs["Theta"][0])
    rank = theta.shape[1]
    shape = (theta.shape[0], *[-1] * rank, rank)
    return {op.outputs["Output"][0]: VarInfo(shape, theta.dtype, theta.lod_level)}


@op(
    out="Output", diff="theta", lod="theta", vendor={"use_cudnn": True}, rows=Wise("theta"), infer=_infer_affine_grid,
    newer="align_corners",
)  # fmt: skip
def affine_grid(theta, output_shape=None, *, output_shape_: list[int] = (), align_corners: bool = True):
    """Output[n, h, w] = Theta[n] (x, y, 1), with x and y from -1 to 1 over an image of output_shape [N, C, H, W]."""
    base = _base_grid(output_shape_, output_shape, theta.dtype, align_corners)
    return jnp.einsum("...k,njk->n...j", base, theta)


@affine_grid.fits
def _(theta, output_shape=None, *, output_shape_):
    fitting.rank("Theta", theta, 3)
    if output_shape is None:
        fitting.as_many("output_shape", output_shape_, theta.shape[1] + 2)
    else:
        fitting.rank("OutputShape", output_shape, 1)
    fitting.dim("Theta", theta, 1, 2, 3)
    fitting.dim("Theta", theta, 2, theta.shape[1] + 1)


@affine_grid.grad(rows=Wise("d_output"))
def _(d_output, output_shape=None, *, output_shape_, align_corners):
    base = _base_grid(output_shape_, output_shape, d_output.dtype, align_corners)
    return jnp.einsum("n...j,...k->njk", d_output, base)


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
    out = [windows.count(x.shape[2 + a], k[a], strides[a], pads[a], dilations[a]) for a in (0, 1)]
    if tuple(offset.shape[2:]) != tuple(out):
        raise ValueError(f"Offset covers {list(offset.shape[2:])} positions and the output has {out}; make them equal")
    y, xs = _deformable_positions(offset, x.shape, k, strides, pads, dilations, deformable_groups)
    grouped = x.reshape(n, deformable_groups, c // deformable_groups, *x.shape[2:])
    columns = jax.vmap(jax.vmap(linear))(grouped, y, xs)
    if mask is not None:
        columns = columns * mask.reshape(n, deformable_groups, 1, k[0] * k[1], *out)
    columns = columns.reshape(n, groups, (c // groups) * k[0] * k[1], -1)
    kernel = filter.reshape(groups, filter.shape[0] // groups, -1)
    return jnp.einsum("gok,ngkp->ngop", kernel, columns).reshape(n, filter.shape[0], *out)


def _convolved(shapes, attr):
    """Where a size is unknown, Offset and Mask, whose sizes may be known, say nothing about the Output's."""
    x, filter = shapes["Input"], shapes["Filter"]
    if len(x) != 4 or len(filter) != 4 or min(map(min, shapes.values())) > 0:
        return None
    k, pads = filter[2:], pad_pairs(attr("paddings"), 2)
    of_axis = zip(x[2:], k, attr("strides"), pads, attr("dilations"), strict=True)
    return {"Output": (x[0], filter[0], *(-1 if axis[0] < 0 else windows.count(*axis) for axis in of_axis))}


@op(
    out="Output", lod=None, rows=Wise("input offset mask"), grad="vjp", reads="input offset mask filter",
    infer=by_rule(_convolved),
)  # fmt: skip
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


@op(
    out="Output", lod=None, rows=Wise("input offset"), grad="vjp", reads="input offset filter",
    infer=by_rule(_convolved),
)  # fmt: skip
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


def _roi_images(rois: LoDArray):
    """Index of the image that each region of interest belongs to; exact rows only."""
    if rois.padded:
        raise NeedsExact("regions of interest")
    if not rois.lod:
        return jnp.zeros(rois.shape[0], jnp.int32)
    return (jnp.arange(rois.shape[0])[:, None] >= rois.lod[-1][1:]).sum(axis=1)


def _bin_starts(rois, trans, scale, pooled, part, trans_std, classes):
    """(hstart, wstart, bin height, bin width), each broadcastable to [R, classes, PH, PW]."""
    corner = round_half_away(rois)
    x0, y0 = corner[:, 0] * scale - 0.5, corner[:, 1] * scale - 0.5
    width = jnp.maximum((corner[:, 2] + 1) * scale - 0.5 - x0, 0.1).reshape(-1, 1, 1, 1)
    height = jnp.maximum((corner[:, 3] + 1) * scale - 0.5 - y0, 0.1).reshape(-1, 1, 1, 1)
    ph, pw = np.arange(pooled[0]).reshape(-1, 1), np.arange(pooled[1])
    bin_h, bin_w = height / pooled[0], width / pooled[1]
    shift_x = shift_y = 0
    if trans is not None:
        part_h = np.floor(ph / pooled[0] * part[0]).astype(int)
        part_w = np.floor(pw / pooled[1] * part[1]).astype(int)
        moved = trans.reshape(trans.shape[0], classes, 2, *trans.shape[2:])[:, :, :, part_h, part_w] * trans_std
        shift_x, shift_y = moved[:, :, 0], moved[:, :, 1]
    hstart = ph * bin_h + y0.reshape(-1, 1, 1, 1) + shift_y * height
    wstart = pw * bin_w + x0.reshape(-1, 1, 1, 1) + shift_x * width
    return hstart, wstart, bin_h, bin_w


def _sampled(image, channels, h, w):
    """image [C, H, W] at channels [O, PH, PW] and real positions [O, PH, PW, S, S] inside the image."""
    height, width = image.shape[1:]
    y, x = jnp.clip(h, 0, height - 1), jnp.clip(w, 0, width - 1)
    y0, x0 = jnp.floor(y).astype(jnp.int32), jnp.floor(x).astype(jnp.int32)
    y1, x1 = jnp.minimum(y0 + 1, height - 1), jnp.minimum(x0 + 1, width - 1)
    fy, fx, c = y - y0, x - x0, channels[..., None, None]
    top = image[c, y0, x0] * (1 - fx) + image[c, y0, x1] * fx
    return top * (1 - fy) + (image[c, y1, x0] * (1 - fx) + image[c, y1, x1] * fx) * fy


@op(
    out="TopCount Output",
    slots={"rois": "ROIs"},
    diff="input trans",
    lod=None,
    grad="vjp",
    reads="input rois trans top_count d_output",
    undeclared="TopCount:dtype",
)
def deformable_psroi_pooling(
    input,
    rois: LoDArray,
    trans,
    *,
    no_trans: bool,
    spatial_scale: float,
    output_dim: int,
    group_size: list[int],
    pooled_height: int,
    pooled_width: int,
    part_size: list[int],
    sample_per_part: int,
    trans_std: float,
):
    """Position-sensitive pooling whose bins are displaced by Trans: Output [R, output_dim, PH, PW] = mean of the
    sample_per_part^2 bilinear samples of the bin's own channel inside the image; TopCount is their number.
    """
    pooled, s = (pooled_height, pooled_width), sample_per_part
    classes = 1 if no_trans else trans.shape[1] // 2
    hstart, wstart, bin_h, bin_w = _bin_starts(
        rois.data, None if no_trans else trans, spatial_scale, pooled, part_size, trans_std, classes
    )
    per_class = output_dim // classes
    spread = lambda v: jnp.repeat(v, per_class, axis=1)[..., None, None]  # noqa: E731
    step = np.arange(s)
    h = spread(hstart) + step[:, None] * (bin_h / s)[..., None, None]
    w = spread(wstart) + step * (bin_w / s)[..., None, None]
    h, w = jnp.broadcast_arrays(h, w)
    shape = (output_dim, *pooled, s, s)
    h, w = (jnp.broadcast_to(v, (v.shape[0], *shape)) for v in (h, w))
    gh, gw = (np.clip(np.arange(p) * g // p, 0, g - 1) for p, g in zip(pooled, group_size, strict=True))
    top = np.arange(output_dim)[:, None, None] * group_size[0] * group_size[1]
    channels = jnp.asarray(top + gh[:, None] * group_size[1] + gw)
    height, width = input.shape[2:]
    inside = (w >= -0.5) & (w <= width - 0.5) & (h >= -0.5) & (h <= height - 0.5)
    samples = jax.vmap(_sampled, in_axes=(0, None, 0, 0))(jnp.asarray(input)[_roi_images(rois)], channels, h, w)
    count = inside.sum(axis=(-2, -1))
    total = jnp.where(inside, samples, 0).sum(axis=(-2, -1))
    return count.astype(input.dtype), total / jnp.maximum(count, 1)
