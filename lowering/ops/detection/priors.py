"""Boxes placed on the cells of a feature map: prior_box, density_prior_box, anchor_generator.

They depend only on shapes and attributes. Still, they are computed in the step rather than while tracing, since there
are as many as cells in the map, and shape inference tries maps of any size.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.ops import fitting
from lowering.ops.math.rounding import rounded_product
from lowering.registry import op
from lowering.values import Meta, Wide
from lowering.wide.sizes import used_shape


def _centers(count: int, step: Any, offset: Any) -> jax.Array:
    """The centers of cells, in the type of ``step`` and rounded as Fluid does."""
    return rounded_product(jnp.arange(count, dtype=step.dtype) + offset, step)


def _extent(maps: Meta | Wide) -> tuple[Any, Any]:
    """The height and width of maps: those that a run uses where they have room for more."""
    height, width = (used_shape(maps) if isinstance(maps, Wide) else maps.shape)[2:]
    return height, width


def _ratios(aspect_ratios: list[float], flip: bool) -> list[float]:
    """1, then the ratios that differ from those before by more than 1e-6, each with its inverse."""
    found = [1.0]
    for ratio in aspect_ratios:
        if all(abs(ratio - known) >= 1e-6 for known in found):
            found += [ratio, float(np.float32(1.0 / ratio))] if flip else [ratio]
    return found


def _prior_sizes(
    min_sizes: list[float], max_sizes: list[float], ratios: list[float], max_second: bool
) -> list[tuple[float, float]]:
    """Half widths and heights of the boxes of one cell, in Fluid's order."""
    halves = []
    for i, small in enumerate(min_sizes):
        squares = [(small / 2, small / 2)]
        larger = [(math.sqrt(np.float32(small * max_sizes[i])) / 2,) * 2] if max_sizes else []
        others = [(small * math.sqrt(r) / 2, small / math.sqrt(r) / 2) for r in ratios if abs(r - 1.0) >= 1e-6]
        halves += squares + larger + others if max_second else squares + others + larger
    return halves


def _boxes(cx: jax.Array, cy: jax.Array, halves: np.ndarray, width: Any, height: Any) -> jax.Array:
    """[H, W, P, 4] corners relative to the image, of boxes around (cx, cy), [W] or [W, P] and [H] or [H, P].

    Divided in float64, where a product with the inverse, which XLA makes of it, rounds to the same float32.
    """
    x, y = (c.reshape(len(c), *(c.shape[1:] or (1,))) for c in (cx, cy))
    x, y = x[None], y[:, None]
    w, h = halves[None, None, :, 0], halves[None, None, :, 1]
    wide, high = (n.astype(np.float64) if isinstance(n, jax.Array) else np.float64(n) for n in (width, height))
    return _stacked((x - w) / wide, (y - h) / high, (x + w) / wide, (y + h) / high)


def _stacked(*corners: jax.Array) -> jax.Array:
    return jnp.stack(jnp.broadcast_arrays(*corners), axis=-1)


def _with_variances(boxes: jax.Array, variances: list[float], dtype: np.dtype) -> tuple[jax.Array, jax.Array]:
    spread = np.asarray(variances, np.float32).astype(dtype)
    return boxes.astype(dtype), jnp.broadcast_to(spread, boxes.shape)


def _steps(step_w: float, step_h: float, input: Meta | Wide, image: Meta | Wide) -> tuple[Any, Any]:
    """The spacing of centers; if either is not given, neither is used."""
    kind = np.dtype(input.dtype).type
    if step_w and step_h:
        return kind(step_w), kind(step_h)
    step_h, step_w = map(_quotient, _extent(image), _extent(input), (kind, kind))
    return step_w, step_h


def _quotient(a: Any, b: Any, kind: Any) -> Any:
    """a / b of two integers, in this type; 0 for b = 0, the side of a map on which nothing is placed."""
    if isinstance(a, jax.Array) or isinstance(b, jax.Array):
        return (jnp.asarray(a, np.float64) / jnp.asarray(b, np.float64)).astype(kind)
    return kind(a / b if b else 0)


@op(out="Boxes Variances", diff="", lod=None, vendor="use_mkldnn use_quantizer")
def prior_box(
    input: Meta,
    image: Meta,
    *,
    min_sizes: list[float],
    max_sizes: list[float] = [],  # noqa: B006
    aspect_ratios: list[float],
    variances: list[float],
    flip: bool = True,
    clip: bool = True,
    step_w: float = 0.0,
    step_h: float = 0.0,
    offset: float = 0.5,
    min_max_aspect_ratios_order: bool = False,
):
    """SSD's prior boxes: Boxes[h, w, p] = corners relative to Image of the p-th box around cell (h, w) of Input.

    A step of 0 means image size / feature-map size. Sizes and centers are rounded where Fluid rounds them: boxes that
    lie alike around an object are then the same ones to the last bit, and training matches the one that Fluid does.
    """
    (height, width), (image_h, image_w) = input.shape[2:], _extent(image)
    step_w, step_h = _steps(step_w, step_h, input, image)
    kind = np.dtype(input.dtype).type
    halves = _prior_sizes(min_sizes, max_sizes, _ratios(aspect_ratios, flip), min_max_aspect_ratios_order)
    centers = _centers(width, step_w, kind(offset)), _centers(height, step_h, kind(offset))
    boxes = _boxes(*centers, np.asarray(halves, kind), image_w, image_h)
    return _with_variances(jnp.clip(boxes, 0, 1) if clip else boxes, variances, input.dtype)


@prior_box.fits
def _(*, min_sizes, max_sizes):
    if max_sizes:
        fitting.as_many("max_sizes", max_sizes, len(min_sizes))
    for low, high in zip(min_sizes, max_sizes, strict=False):
        fitting.within("an item of max_sizes", high, low)


def _density_offsets(
    sizes: list[float], ratios: list[float], densities: list[int], step: Any
) -> tuple[Any, Any, np.ndarray]:
    """(the first offset from the cell's center [P], what is added to it, half sizes, both [P, 2]).

    Each size fills the cell density x density times.
    """
    parts, places, halves = [], [], []
    for size, density in zip(sizes, densities, strict=True):
        for ratio in ratios:
            root = np.float32(math.sqrt(ratio))
            half = (np.float32(size) * root / 2, np.float32(size) / root / 2)
            for row in range(density):
                for column in range(density):
                    parts.append(density)
                    places.append((column, row))
                    halves.append(half)
    shift = step // np.asarray(parts, np.int32)
    starts = shift.astype(np.float64) / 2 - step.astype(np.float64) / 2
    shifts = (shift[:, None] * np.asarray(places, np.int32)).astype(np.float32)
    return starts, shifts, np.asarray(halves, np.float64)


@op(out="Boxes Variances", diff="", lod=None)
def density_prior_box(
    input: Meta,
    image: Meta,
    *,
    variances: list[float],
    clip: bool = True,
    flatten_to_2d: bool = False,
    step_w: float = 0.0,
    step_h: float = 0.0,
    offset: float = 0.5,
    fixed_sizes: list[float] = [],  # noqa: B006
    fixed_ratios: list[float] = [],  # noqa: B006
    densities: list[int] = [],  # noqa: B006
):
    """Prior boxes of fixed sizes, density[i]^2 of the i-th size per cell; corners relative to Image, within [0, 1].

    [H, W, P, 4], or [H * W * P, 4] with ``flatten_to_2d``.
    """
    (height, width), (image_h, image_w) = input.shape[2:], _extent(image)
    step_w, step_h = _steps(step_w, step_h, input, image)
    kind = np.dtype(input.dtype).type
    step = ((step_w + step_h) * kind(0.5)).astype(np.int32)
    starts, shifts, halves = _density_offsets(fixed_sizes, fixed_ratios, densities, step)
    x, y = (
        (_centers(n, step, kind(offset)).astype(np.float64)[:, None] + starts).astype(np.float32) + shift
        for n, step, shift in ((width, step_w, shifts[:, 0]), (height, step_h, shifts[:, 1]))
    )
    boxes = _boxes(x.astype(np.float64), y.astype(np.float64), halves, image_w, image_h)
    boxes = jnp.concatenate([jnp.maximum(boxes[..., :2], 0), jnp.minimum(boxes[..., 2:], 1)], axis=-1)
    boxes = boxes.reshape(-1, 4) if flatten_to_2d else boxes
    return _with_variances(jnp.clip(boxes, 0, 1) if clip else boxes, variances, input.dtype)


@density_prior_box.fits
def _(input, image, *, fixed_sizes, densities):
    fitting.rank("Input", input, 4)
    fitting.rank("Image", image, 4)
    fitting.as_many("densities", densities, len(fixed_sizes))


@op(out="Anchors Variances", diff="", lod=None)
def anchor_generator(
    input: Meta,
    *,
    anchor_sizes: list[float],
    aspect_ratios: list[float],
    variances: list[float],
    stride: list[float] = [16.0, 16.0],  # noqa: B006
    offset: float = 0.5,
):
    """Faster R-CNN's anchors [H, W, ratios * sizes, 4], in image pixels, around cells ``stride`` apart.

    As in the original, the area of one cell determines the base width round(sqrt(area / ratio)).
    """
    height, width = input.shape[2:]
    halves = []
    kind = input.dtype.type
    step_w, step_h = map(kind, stride)
    for ratio in map(kind, aspect_ratios):
        base_w = kind(math.floor(math.sqrt(step_w * step_h / ratio) + 0.5))
        base_h = kind(math.floor(base_w * ratio + kind(0.5)))
        for size in map(kind, anchor_sizes):
            w, h = size / step_w * base_w, size / step_h * base_h
            halves.append((0.5 * float(w - kind(1)), 0.5 * float(h - kind(1))))
    cx, cy = (
        _centers(n, step, kind(0)) + kind(offset) * (step - kind(1)) for n, step in ((width, step_w), (height, step_h))
    )
    boxes = _boxes(cx.astype(np.float64), cy.astype(np.float64), np.asarray(halves), 1, 1)
    return _with_variances(boxes, variances, input.dtype)
