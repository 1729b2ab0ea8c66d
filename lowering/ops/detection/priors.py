"""Boxes placed on the cells of a feature map: prior_box, density_prior_box, anchor_generator.

They depend only on shapes and attributes. Still, they are computed in the step rather than while tracing, since there
are as many as cells in the map, and shape inference tries maps of any size.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from lowering.ops import fitting
from lowering.registry import op
from lowering.values import Meta


def _cells(count: int) -> jax.Array:
    return jnp.arange(count, dtype=jnp.float64)


def _centers(count: int, step: float, offset: float) -> jax.Array:
    return (_cells(count) + offset) * step


def _ratios(aspect_ratios: list[float], flip: bool) -> list[float]:
    """1, then the ratios that differ from those before by more than 1e-6, each with its inverse."""
    found = [1.0]
    for ratio in aspect_ratios:
        if all(abs(ratio - known) >= 1e-6 for known in found):
            found += [ratio, 1.0 / ratio] if flip else [ratio]
    return found


def _prior_sizes(
    min_sizes: list[float], max_sizes: list[float], ratios: list[float], max_second: bool
) -> list[tuple[float, float]]:
    """Half widths and heights of the boxes of one cell, in Fluid's order."""
    halves = []
    for i, small in enumerate(min_sizes):
        squares = [(small / 2, small / 2)]
        larger = [(math.sqrt(small * max_sizes[i]) / 2,) * 2] if max_sizes else []
        others = [(small * math.sqrt(r) / 2, small / math.sqrt(r) / 2) for r in ratios if abs(r - 1.0) >= 1e-6]
        halves += squares + larger + others if max_second else squares + others + larger
    return halves


def _boxes(cx: jax.Array, cy: jax.Array, halves: np.ndarray, width: int, height: int) -> jax.Array:
    """[H, W, P, 4] corners relative to the image, of boxes around (cx, cy)."""
    x, y = cx[None, :, None], cy[:, None, None]
    w, h = halves[None, None, :, 0], halves[None, None, :, 1]
    return _stacked((x - w) / width, (y - h) / height, (x + w) / width, (y + h) / height)


def _stacked(*corners: jax.Array) -> jax.Array:
    return jnp.stack(jnp.broadcast_arrays(*corners), axis=-1)


def _with_variances(boxes: jax.Array, variances: list[float], dtype: np.dtype) -> tuple[jax.Array, jax.Array]:
    spread = np.asarray(variances, np.float32).astype(dtype)
    return boxes.astype(dtype), jnp.broadcast_to(spread, boxes.shape)


def _steps(step_w: float, step_h: float, width: float, height: float) -> tuple[float, float]:
    """The spacing of centres; if either is not given, neither is used."""
    return (step_w, step_h) if step_w and step_h else (width, height)


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

    A step of 0 means image size / feature-map size.
    """
    (height, width), (image_h, image_w) = input.shape[2:], image.shape[2:]
    step_w, step_h = _steps(step_w, step_h, image_w / width, image_h / height)
    halves = _prior_sizes(min_sizes, max_sizes, _ratios(aspect_ratios, flip), min_max_aspect_ratios_order)
    centers = _centers(width, step_w, offset), _centers(height, step_h, offset)
    boxes = _boxes(*centers, np.asarray(halves), image_w, image_h)
    return _with_variances(jnp.clip(boxes, 0, 1) if clip else boxes, variances, input.dtype)


@prior_box.fits
def _(*, min_sizes, max_sizes):
    if max_sizes:
        fitting.as_many("max_sizes", max_sizes, len(min_sizes))
    for low, high in zip(min_sizes, max_sizes, strict=False):
        fitting.within("an item of max_sizes", high, low)


def _density_offsets(
    sizes: list[float], ratios: list[float], densities: list[int], step: int
) -> tuple[np.ndarray, np.ndarray]:
    """(offsets from the cell's center, half sizes), both [P, 2]: each size fills the cell density x density times."""
    shifts, halves = [], []
    for size, density in zip(sizes, densities, strict=True):
        shift = step // density
        start = -step / 2.0 + shift / 2.0
        for ratio in ratios:
            half = (size * math.sqrt(ratio) / 2, size / math.sqrt(ratio) / 2)
            for row in range(density):
                for column in range(density):
                    shifts.append((start + column * shift, start + row * shift))
                    halves.append(half)
    return np.asarray(shifts), np.asarray(halves)


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
    (height, width), (image_h, image_w) = input.shape[2:], image.shape[2:]
    step_w, step_h = _steps(step_w, step_h, image_w / width, image_h / height)
    shifts, halves = _density_offsets(fixed_sizes, fixed_ratios, densities, int((step_w + step_h) * 0.5))
    x = _centers(width, step_w, offset)[None, :, None] + shifts[None, None, :, 0]
    y = _centers(height, step_h, offset)[:, None, None] + shifts[None, None, :, 1]
    low = jnp.maximum((x - halves[:, 0]) / image_w, 0), jnp.maximum((y - halves[:, 1]) / image_h, 0)
    high = jnp.minimum((x + halves[:, 0]) / image_w, 1), jnp.minimum((y + halves[:, 1]) / image_h, 1)
    boxes = _stacked(*low, *high)
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
    for ratio in aspect_ratios:
        base_w = math.floor(math.sqrt(stride[0] * stride[1] / ratio) + 0.5)
        base_h = math.floor(base_w * ratio + 0.5)
        for size in anchor_sizes:
            w, h = size / stride[0] * base_w, size / stride[1] * base_h
            halves.append(((w - 1) / 2, (h - 1) / 2))
    cx = _cells(width) * stride[0] + offset * (stride[0] - 1)
    cy = _cells(height) * stride[1] + offset * (stride[1] - 1)
    return _with_variances(_boxes(cx, cy, np.asarray(halves), 1, 1), variances, input.dtype)
