"""Pooling over regions of interest: roi_pool, roi_align, psroi_pool, prroi_pool.

ROIs [R, 4] are (x0, y0, x1, y1) in image pixels; ``spatial_scale`` converts to those of X [N, C, H, W]. The regions
of image i form the i-th sequence of ROIs. Bins are separable, so each is a product of weights or masks along H and W.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lowering.errors import NeedsExact
from lowering.ops import fitting
from lowering.ops.shared import round_half_away
from lowering.ragged import rows as seq
from lowering.registry import MASKED, op
from lowering.values import LoDArray, Meta, Wide, fill_padding, row_mask
from lowering.wide.sizes import used_shape

_SLOTS = {"rois": "ROIs", "rois_lod": "RoisLod", "rois_num": "RoisNum"}


def image_of(rois: LoDArray, given=None, numbers=None) -> jax.Array:
    """int32 [R]: the image of each region, from the counts [N] (Paddle 2), offsets [N + 1] or the LoD; otherwise 0."""
    rows = seq.row_numbers(rois.capacity)
    if numbers is not None:
        return jnp.searchsorted(jnp.cumsum(numbers.reshape(-1)), rows, side="right").astype(jnp.int32)
    if given is not None:
        found = seq.segments(given.reshape(-1).astype(jnp.int32), rows)
    elif rois.lod:
        found = seq.segments(seq.offsets(rois), rows)
    else:
        return jnp.zeros((rois.capacity,), jnp.int32)
    return jnp.asarray(found, jnp.int32)


def _maps(x: LoDArray | Wide):
    """(X, its height and width): those that a run uses where X has room for more."""
    return jnp.asarray(x.data), _extent(x)


def _extent(x: LoDArray | Meta | Wide):
    """The height and width of maps; NeedsExact where only the run knows how many maps there are."""
    if isinstance(x, Wide):
        return used_shape(x)[2:]
    if x.padded:
        raise NeedsExact("regions of maps whose number only the run knows")
    return x.shape[2:]


def per_region(rois: LoDArray, out) -> LoDArray:
    """The result of a pooling, one row a region, without LoD as in Fluid; padding regions are copies of the first."""
    return LoDArray(fill_padding(out, rois.nrows, backward=False), (), rois.nrows)


def valid(rois: LoDArray, d_out):
    """Output gradients, zero for padding regions."""
    return jnp.where(row_mask(rois, d_out.ndim), d_out, 0) if rois.padded else d_out


# --- roi_pool -----------------------------------------------------------------------------------------------------


def _max_bins(start, size, bins, room, extent):
    """bool [R, bins, room]: which rows (or columns) of the map, the first ``extent`` ones, fall into each bin."""
    k = jnp.arange(bins, dtype=size.dtype)
    step = size / bins
    low = jnp.clip(jnp.floor(k * step[:, None]) + start[:, None], 0, extent)
    high = jnp.clip(jnp.ceil((k + 1) * step[:, None]) + start[:, None], 0, extent)
    cell = jnp.arange(room, dtype=size.dtype)
    return (cell >= low[..., None]) & (cell < high[..., None])


def _masked_max(x, mask, axis):
    """(max, first index) of x along ``axis`` where ``mask`` allows; -inf where nowhere."""
    masked = jnp.where(mask, x, -jnp.inf)
    return masked.max(axis=axis), masked.argmax(axis=axis)


@op(
    out="Out Argmax~",
    slots=_SLOTS,
    diff="x",
    rows=MASKED,
    lod=None,
    undeclared="Argmax:dtype",
    newer="rois_num",
)
def roi_pool(
    x: LoDArray,
    rois: LoDArray,
    rois_lod=None,
    rois_num=None,
    *,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
):
    """Out[r, c, i, j] = max of X over bin (i, j) of region r, 0 if empty; Argmax (int64) is its h * W + w or -1."""
    data, (height, width) = _maps(x)
    corners = round_half_away(rois.data * spatial_scale)
    size = jnp.maximum(corners[:, 2:] - corners[:, :2] + 1, 1)
    rows = _max_bins(corners[:, 1], size[:, 1], pooled_height, x.shape[2], height)
    columns = _max_bins(corners[:, 0], size[:, 0], pooled_width, x.shape[3], width)
    maps = data[image_of(rois, rois_lod, rois_num)]  # [R, C, H, W]

    def one(region):
        map_, in_rows, in_columns = region
        best, at_w = _masked_max(map_[:, :, None, :], in_columns[None, None], -1)  # [C, H, PW]
        top, at_h = _masked_max(best[:, None], in_rows[None, :, :, None], 2)  # [C, PH, PW]
        w = jnp.take_along_axis(at_w[:, None].repeat(pooled_height, 1), at_h[:, :, None], axis=2)[:, :, 0]
        return top, at_h * width + w

    top, where = jax.lax.map(one, (maps, rows, columns))
    empty = jnp.isneginf(top)
    out = jnp.where(empty, 0, top)
    return per_region(rois, out), per_region(rois, jnp.where(empty, -1, where).astype(jnp.int64))


@roi_pool.fits
def _(x, rois, *, pooled_height, pooled_width):
    _check_rois(x, rois, pooled_height, pooled_width)


def _check_rois(x, rois, pooled_height, pooled_width):
    fitting.rank("X", x, 4)
    fitting.rank("ROIs", rois, 2)
    fitting.dim("ROIs", rois, 1, 4)
    fitting.within("pooled_height", pooled_height, 1)
    fitting.within("pooled_width", pooled_width, 1)


@roi_pool.grad(slots=_SLOTS)
def _(x: Meta, rois: LoDArray, argmax, d_out, rois_lod=None, rois_num=None):
    n, c, h, w = x.shape
    image = image_of(rois, rois_lod, rois_num)[:, None, None, None]
    d_out = jnp.where(argmax >= 0, valid(rois, d_out), 0)
    row, column = jnp.divmod(jnp.maximum(argmax, 0), jnp.asarray(_extent(x)[1], argmax.dtype))
    flat = jnp.zeros((n, c, h * w), d_out.dtype)
    channel = jnp.arange(c)[None, :, None, None]
    return flat.at[image, channel, row * w + column].add(d_out).reshape(x.shape)


# --- roi_align ----------------------------------------------------------------------------------------------------


def _tap(at, room, extent):
    """Bilinear weights [..., room] of the point ``at`` along one axis; none further than 1 outside the map."""
    inside = (at >= -1) & (at <= extent)
    at = jnp.clip(at, 0, extent - 1)
    weight = jnp.maximum(1 - jnp.abs(at[..., None] - jnp.arange(room, dtype=at.dtype)), 0)
    return jnp.where(inside[..., None], weight, 0)


def _align_weights(start, size, bins, room, extent, ratio):
    """[R, bins, room]: the mean of the bilinear weights of a bin's sample points along one axis."""
    step = size / bins
    count = jnp.full_like(step, ratio) if ratio > 0 else jnp.ceil(step)
    most = ratio if ratio > 0 else count.max(initial=1).astype(jnp.int32)
    low = start[:, None] + jnp.arange(bins, dtype=size.dtype) * step[:, None]

    def add(i, total):
        at = low + (i + 0.5) * (step / count)[:, None]
        return total + jnp.where((i < count)[:, None, None], _tap(at, room, extent), 0)

    total = jax.lax.fori_loop(0, most, add, jnp.zeros((*low.shape, room), size.dtype))
    return total / count[:, None, None]


def _align(x, extent, rois, scale, bins, ratio, aligned):
    corners = rois.data.astype(x.dtype) * scale - (0.5 if aligned else 0)
    size = corners[:, 2:] - corners[:, :2]
    size = size if aligned else jnp.maximum(size, 1)
    rows = _align_weights(corners[:, 1], size[:, 1], bins[0], x.shape[2], extent[0], ratio)
    return rows, _align_weights(corners[:, 0], size[:, 0], bins[1], x.shape[3], extent[1], ratio)


@op(slots=_SLOTS, diff="x", rows=MASKED, lod=None, newer="rois_num aligned")
def roi_align(
    x: LoDArray,
    rois: LoDArray,
    rois_lod=None,
    rois_num=None,
    *,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
    sampling_ratio: int = -1,
    aligned: bool = False,
):
    """Out[r, c, i, j] = mean of bilinear samples of X on a grid of points in bin (i, j) of region r.

    ``sampling_ratio`` points along each axis, or ceil(bin size) if it is not positive. ``aligned`` (Paddle 2) shifts
    the corners by half a pixel, and allows regions smaller than a pixel.
    """
    bins, image = (pooled_height, pooled_width), image_of(rois, rois_lod, rois_num)
    data, extent = _maps(x)
    rows, columns = _align(data, extent, rois, spatial_scale, bins, sampling_ratio, aligned)
    return per_region(rois, jnp.einsum("rih,rjw,rchw->rcij", rows, columns, data[image]))


@roi_align.fits
def _(x, rois, *, pooled_height, pooled_width):
    _check_rois(x, rois, pooled_height, pooled_width)


@roi_align.grad(slots=_SLOTS)
def _(
    x: Meta, rois: LoDArray, d_out, rois_lod=None, rois_num=None, *,
    spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned,
):  # fmt: skip
    bins, image = (pooled_height, pooled_width), image_of(rois, rois_lod, rois_num)
    zeros = jnp.zeros(x.shape, x.dtype)
    rows, columns = _align(zeros, _extent(x), rois, spatial_scale, bins, sampling_ratio, aligned)
    return zeros.at[image].add(jnp.einsum("rih,rjw,rcij->rchw", rows, columns, valid(rois, d_out)))


# --- psroi_pool ---------------------------------------------------------------------------------------------------


def _mean_weights(start, size, bins, room, extent):
    """[R, bins, room]: one for each cell of the bin over the number of cells along this axis; zero if empty."""
    step = size / bins
    k = jnp.arange(bins, dtype=size.dtype)
    low = jnp.clip(jnp.floor(k * step[:, None] + start[:, None]), 0, extent)
    high = jnp.clip(jnp.ceil((k + 1) * step[:, None] + start[:, None]), 0, extent)
    cell = jnp.arange(room, dtype=size.dtype)
    inside = (cell >= low[..., None]) & (cell < high[..., None])
    return inside / jnp.maximum(high - low, 1)[..., None]


def _position_weights(x, extent, rois, scale, bins):
    corners = round_half_away(rois.data)
    start, end = corners[:, :2] * scale, (corners[:, 2:] + 1) * scale
    size = jnp.maximum(end - start, 0.1)
    rows = _mean_weights(start[:, 1], size[:, 1], bins[0], x.shape[2], extent[0])
    return rows, _mean_weights(start[:, 0], size[:, 0], bins[1], x.shape[3], extent[1])


_PS = {"rois": "ROIs", "rois_num": "RoisNum"}


@op(slots=_PS, diff="x", rows=MASKED, lod=None, newer="rois_num")
def psroi_pool(
    x: LoDArray,
    rois: LoDArray,
    rois_num=None,
    *,
    output_channels: int,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
):
    """Out[r, c, i, j] = mean over bin (i, j) of region r of channel (c * pooled_height + i) * pooled_width + j of X."""
    bins = (pooled_height, pooled_width)
    x, extent = _maps(x)
    rows, columns = _position_weights(x, extent, rois, spatial_scale, bins)
    maps = x.reshape(x.shape[0], output_channels, *bins, *x.shape[2:])[image_of(rois, None, rois_num)]
    return per_region(rois, jnp.einsum("rih,rjw,rcijhw->rcij", rows, columns, maps))


@psroi_pool.fits
def _(x, rois, *, output_channels, pooled_height, pooled_width):
    _check_rois(x, rois, pooled_height, pooled_width)
    fitting.dim("X", x, 1, output_channels * pooled_height * pooled_width)


@psroi_pool.grad(slots=_PS, newer="rois_num")
def _(x: Meta, rois: LoDArray, d_out, rois_num=None, *, output_channels, spatial_scale, pooled_height, pooled_width):
    bins = (pooled_height, pooled_width)
    rows, columns = _position_weights(x, _extent(x), rois, spatial_scale, bins)
    zeros = jnp.zeros((x.shape[0], output_channels, *bins, *x.shape[2:]), x.dtype)
    spread = jnp.einsum("rih,rjw,rcij->rcijhw", rows, columns, valid(rois, d_out))
    return zeros.at[image_of(rois, None, rois_num)].add(spread).reshape(x.shape)


# --- prroi_pool ---------------------------------------------------------------------------------------------------


def _hat_integral(t):
    """The integral of max(1 - |s|, 0) from minus infinity to t."""
    t = jnp.clip(t, -1, 1)
    return jnp.where(t < 0, (t + 1) ** 2 / 2, 1 - (1 - t) ** 2 / 2)


def _precise_weights(start, size, bins, extent):
    """[R, bins, extent]: the integral over the bin of each cell's bilinear hat."""
    step = (size / bins)[:, None]
    low = start[:, None] + jnp.arange(bins, dtype=size.dtype) * step
    cell = jnp.arange(extent, dtype=size.dtype)
    return _hat_integral((low + step)[..., None] - cell) - _hat_integral(low[..., None] - cell)


def _precise(x, boxes, image, scale, bins):
    corners = boxes.astype(x.dtype) * scale
    size = jnp.maximum(corners[:, 2:] - corners[:, :2], 0)
    rows = _precise_weights(corners[:, 1], size[:, 1], bins[0], x.shape[2])
    columns = _precise_weights(corners[:, 0], size[:, 0], bins[1], x.shape[3])
    area = (size[:, 0] / bins[1] * size[:, 1] / bins[0])[:, None, None, None]
    total = jnp.einsum("rih,rjw,rchw->rcij", rows, columns, x[image])
    return jnp.where(area > 0, total / jnp.where(area > 0, area, 1), 0)


def _counted(rois: LoDArray, counts):
    return image_of(rois, None if counts is None else seq.offsets_of(counts.reshape(-1)))


_PRECISE_SLOTS = {"rois": "ROIs", "batch_roi_nums": "BatchRoINums"}


@op(slots=_PRECISE_SLOTS, diff="x rois", rows=MASKED, lod=None)
def prroi_pool(
    x, rois: LoDArray, batch_roi_nums=None, *, spatial_scale: float = 1.0, pooled_height: int = 1, pooled_width: int = 1
):
    """Out[r, c, i, j] = the mean over bin (i, j) of region r of the bilinear interpolation of X, integrated exactly.

    BatchRoINums [N] is the number of regions of each image if ROIs has no LoD. X is zero outside.
    """
    bins = (pooled_height, pooled_width)
    return per_region(rois, _precise(x, rois.data, _counted(rois, batch_roi_nums), spatial_scale, bins))


@prroi_pool.grad(slots=_PRECISE_SLOTS)
def _(x, rois: LoDArray, out: Meta, d_out, batch_roi_nums=None, *, spatial_scale, pooled_height, pooled_width):
    image, bins = _counted(rois, batch_roi_nums), (pooled_height, pooled_width)
    _, pull = jax.vjp(lambda a, b: _precise(a, b, image, spatial_scale, bins), x, rois.data)
    d_x, d_rois = pull(valid(rois, d_out))
    return d_x, seq.row_gradient(rois, d_rois)
