"""roi_perspective_transform: quadrilateral regions of interest, warped to rectangles."""

from __future__ import annotations

import jax.numpy as jnp

from lowering.ops.detection.roi_pooling import image_of, valid
from lowering.ops.shared import round_half_away
from lowering.ragged import infer as sequence_infer
from lowering.registry import MASKED, op
from lowering.values import LoDArray, Meta, fill_padding

# Coordinates nearer than this are equal.
_NEAR = 1e-4


def _matrix(corners, height: int, width: int):
    """[R, 9]: the projective map from the (x, y) of the rectangle to those of the quadrilaterals [R, 4, 2].

    The rectangle keeps the proportions of the quadrilateral, at most ``width`` wide.
    """
    p0, p1, p2, p3 = (corners[:, i] for i in range(4))
    length = [jnp.linalg.norm(a - b, axis=1) for a, b in ((p0, p1), (p1, p2), (p2, p3), (p3, p0))]
    high, wide = (length[1] + length[3]) / 2, (length[0] + length[2]) / 2
    bottom = max(2, height) - 1
    right = jnp.clip(round_half_away(wide * bottom / high) + 1, 2, max(2, width)) - 1
    d1, d2, d3 = p1 - p2, p3 - p2, p0 - p1 + p2 - p3
    determinant = d1[:, 0] * d2[:, 1] - d2[:, 0] * d1[:, 1] + 1e-5
    g = (d3[:, 0] * d2[:, 1] - d2[:, 0] * d3[:, 1]) / determinant / right
    h = (d1[:, 0] * d3[:, 1] - d3[:, 0] * d1[:, 1]) / determinant / bottom
    across = (p1 - p0 + (g * right)[:, None] * p1) / right[:, None]
    down = (p3 - p0 + (h * bottom)[:, None] * p3) / bottom
    rows = [across[:, 0], down[:, 0], p0[:, 0], across[:, 1], down[:, 1], p0[:, 1], g, h, jnp.ones_like(g)]
    return jnp.stack(rows, axis=1)


def _sources(matrix, height: int, width: int):
    """(x, y) [R, height, width] in the map, of each cell of the rectangle."""
    column = jnp.arange(width, dtype=matrix.dtype)[None, None, :]
    row = jnp.arange(height, dtype=matrix.dtype)[None, :, None]
    m = matrix[:, :, None, None]
    u, v, w = (m[:, i] * column + m[:, i + 1] * row + m[:, i + 2] for i in (0, 3, 6))
    return u / w, v / w


def _inside(x, y, corners):
    """Which points [R, ...] are in the quadrilaterals or on their edges: an odd number of edges lies to their right."""
    crossings = jnp.zeros(x.shape, jnp.int32)
    on_edge = jnp.zeros(x.shape, bool)
    for i in range(4):
        (xs, ys), (xe, ye) = (corners[:, k % 4].T[..., None, None] for k in (i, i + 1))
        level = jnp.abs(ys - ye) < _NEAR
        at = (y - ys) * (xe - xs) / jnp.where(level, 1, ye - ys) + xs
        within_x = (x > jnp.minimum(xs, xe) - _NEAR) & (x < jnp.maximum(xs, xe) + _NEAR)
        above, below = y > jnp.minimum(ys, ye) - _NEAR, y < jnp.maximum(ys, ye) + _NEAR
        on_edge |= jnp.where(level, (jnp.abs(y - ys) < _NEAR) & within_x, (jnp.abs(at - x) < _NEAR) & above & below)
        counted = ~level & (y > jnp.minimum(ys, ye) + _NEAR) & (y - jnp.maximum(ys, ye) <= _NEAR)
        crossings += counted & (at - x > _NEAR)
    return on_edge | (crossings % 2 == 1)


def _taps(x, y, height: int, width: int):
    """(flat positions, weights) [R, ..., 4] of the cells around each point, bilinear."""

    def axis(at, extent):
        at = jnp.clip(at, 0, extent - 1)
        low = jnp.floor(at)
        return low.astype(jnp.int32), jnp.minimum(low + 1, extent - 1).astype(jnp.int32), at - low

    (left, right, fx), (top, bottom, fy) = axis(x, width), axis(y, height)
    cells = [top * width + left, top * width + right, bottom * width + right, bottom * width + left]
    weights = [(1 - fx) * (1 - fy), fx * (1 - fy), fx * fy, (1 - fx) * fy]
    return jnp.stack(cells, axis=-1), jnp.stack(weights, axis=-1)


@sequence_infer.inferred
def _infer(of):
    """Fluid declares Out2InIdx and Out2InWeights with the shape of Out; what its kernel makes is [R, h, w, 4]."""
    x, rois = of("X"), of("ROIs")
    size = (of.attrs["transformed_height"], of.attrs["transformed_width"])
    out = (rois.shape[0], x.shape[1], *size)
    return {
        "Out": (out, rois.lod_level, x.dtype),
        "Mask": ((rois.shape[0], 1, *size), 0, None),
        "TransformMatrix": ((rois.shape[0], 9), 0, None),
        "Out2InIdx": (out, 0, None),
        "Out2InWeights": (out, 0, None),
    }


@op(
    out="Out Mask TransformMatrix Out2InIdx~ Out2InWeights~",
    slots={"rois": "ROIs", "index": "Out2InIdx", "weights": "Out2InWeights"},
    diff="x",
    rows=MASKED,
    lod=None,
    infer=_infer,
)
def roi_perspective_transform(
    x, rois: LoDArray, *, spatial_scale: float = 1.0, transformed_height: int = 1, transformed_width: int = 1
):
    """Out[r, c, i, j] = X, read bilinearly where the projective map of region r takes (j, i); 0 outside region or map.

    X [N, C, H, W]; ROIs [R, 8]: four corners (x, y), clockwise from the upper left, the regions of image i being its
    i-th sequence. Mask (int32 [R, 1, h, w]) is 1 where Out is taken from X; TransformMatrix [R, 9]. Out2InIdx and
    Out2InWeights [R, h, w, 4] are the cells of X (h * W + w) that each result is made of, and their weights.
    """
    height, width = x.shape[2:]
    corners = (rois.data.astype(x.dtype) * spatial_scale).reshape(-1, 4, 2)
    matrix = _matrix(corners, transformed_height, transformed_width)
    at_x, at_y = _sources(matrix, transformed_height, transformed_width)
    low, right, bottom = -0.5 + _NEAR, width - 0.5 - _NEAR, height - 0.5 - _NEAR
    on_map = (at_x >= low) & (at_x <= right) & (at_y >= low) & (at_y <= bottom)
    mask = _inside(at_x, at_y, corners) & on_map
    at_x, at_y = jnp.where(mask, at_x, 0), jnp.where(mask, at_y, 0)
    index, weights = _taps(at_x, at_y, height, width)
    weights = jnp.where(mask[..., None], weights, 0)
    flat = x.reshape(*x.shape[:2], -1)
    image = image_of(rois)[:, None, None, None]
    taken = jnp.moveaxis(flat, 1, 2)[image, index]  # [R, h, w, 4, C]
    out = jnp.einsum("rhwkc,rhwk->rchw", taken, weights)

    def rows(value):
        return LoDArray(fill_padding(value, rois.nrows, backward=False), (), rois.nrows)

    out = LoDArray(rows(out).data, rois.lod, rois.nrows, rois.nseq)
    return out, rows(mask[:, None].astype(jnp.int32)), rows(matrix), rows(index), rows(weights)


@roi_perspective_transform.grad(slots={"rois": "ROIs", "index": "Out2InIdx", "weights": "Out2InWeights"})
def _(x: Meta, rois: LoDArray, index, weights, d_out):
    n, c, h, w = x.shape
    image = image_of(rois)[:, None, None, None]
    spread = jnp.einsum("rchw,rhwk->rhwkc", valid(rois, d_out), weights)
    found = jnp.zeros((n, h * w, c), d_out.dtype).at[image, index].add(spread)
    return jnp.moveaxis(found, 2, 1).reshape(x.shape)
