"""Layers that pool features over regions of interest."""

from __future__ import annotations

from typing import Any

from fluidjax.framework import Variable
from fluidjax.writing.checks import FULL_FLOATS, check_type, check_variable_and_dtype, only
from fluidjax.writing.emit import emit, emit_many

__all__ = ["prroi_pool", "psroi_pool", "roi_align", "roi_perspective_transform", "roi_pool"]


def _bins(height: Any, width: Any, scale: float) -> dict[str, Any]:
    return {"pooled_height": height, "pooled_width": width, "spatial_scale": scale}


def roi_pool(
    input: Variable,
    rois: Variable,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    rois_lod: Variable | None = None,
) -> Variable:
    """Max pooling over pooled_height x pooled_width bins of each region.

    Args:
        input: [N, C, H, W].
        rois: [R, 4] boxes in pixels (x0, y0, x1, y1); the regions of each image form a sequence.
        spatial_scale: factor from image pixels to cells of the input.
        rois_lod: int64 offsets [N + 1], used instead of a LoD.

    Returns:
        [R, C, pooled_height, pooled_width].
    """
    input, rois = only(input), only(rois)
    check_variable_and_dtype(input, "input", FULL_FLOATS, "roi_pool")
    inputs = {"X": input, "ROIs": rois}
    if rois_lod is not None:
        inputs["RoisLod"] = rois_lod
    outputs = [("Out", input.dtype, False), ("Argmax", "int32", False)]
    return emit_many("roi_pool", inputs, outputs, _bins(pooled_height, pooled_width, spatial_scale))[0]


def roi_align(
    input: Variable,
    rois: Variable,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    name: str | None = None,
    rois_lod: Variable | None = None,
) -> Variable:
    """Average bilinear samples in each bin of each region; arguments as for ``roi_pool``.

    ``sampling_ratio`` samples are taken along each axis; if it is not positive, as many as the bin spans cells.
    """
    check_variable_and_dtype(input, "input", FULL_FLOATS, "roi_align")
    check_variable_and_dtype(rois, "rois", FULL_FLOATS, "roi_align")
    inputs = {"X": input, "ROIs": rois}
    if rois_lod is not None:
        inputs["RoisLod"] = rois_lod
    attrs = {**_bins(pooled_height, pooled_width, spatial_scale), "sampling_ratio": sampling_ratio}
    return emit("roi_align", inputs, input.dtype, attrs, name=name)


def psroi_pool(
    input: Variable,
    rois: Variable,
    output_channels: int,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    name: str | None = None,
) -> Variable:
    """Position-sensitive pooling: bin (i, j) of channel c averages input channel (c height + i) width + j.

    Args:
        input: [N, output_channels pooled_height pooled_width, H, W]; others as for ``roi_pool``.

    Returns:
        [R, output_channels, pooled_height, pooled_width].

    Raises:
        TypeError: a numeric argument has the wrong type.
    """
    check_type(output_channels, "output_channels", int, "psroi_pool")
    check_type(spatial_scale, "spatial_scale", float, "psroi_pool")
    check_type(pooled_height, "pooled_height", int, "psroi_pool")
    check_type(pooled_width, "pooled_width", int, "psroi_pool")
    input, rois = only(input, "psroi_pool"), only(rois)
    attrs = {"output_channels": output_channels, **_bins(pooled_height, pooled_width, spatial_scale)}
    return emit("psroi_pool", {"X": input, "ROIs": rois}, input.dtype, attrs, name=name)


def prroi_pool(
    input: Variable,
    rois: Variable,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
    batch_roi_nums: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Precise RoI pooling: the integral mean of the interpolated input over each bin; differentiable in the regions.

    ``batch_roi_nums`` [N], the number of regions of each image, replaces a LoD.

    Raises:
        TypeError: a numeric argument has the wrong type.
    """
    input, rois = only(input), only(rois)
    check_variable_and_dtype(input, "input", ["float32"], "prroi_pool")
    check_variable_and_dtype(rois, "rois", ["float32"], "prroi_pool")
    check_type(spatial_scale, "spatial_scale", float, "prroi_pool")
    check_type(pooled_height, "pooled_height", int, "prroi_pool")
    check_type(pooled_width, "pooled_width", int, "prroi_pool")
    inputs = {"X": input, "ROIs": rois}
    if batch_roi_nums is not None:
        inputs["BatchRoINums"] = batch_roi_nums
    attrs = _bins(pooled_height, pooled_width, spatial_scale)
    return emit("prroi_pool", inputs, input.dtype, attrs, name=name)


def roi_perspective_transform(
    input: Variable,
    rois: Variable,
    transformed_height: int,
    transformed_width: int,
    spatial_scale: float = 1.0,
    name: str | None = None,
) -> tuple[Variable, Variable, Variable]:
    """Warp quadrilateral regions of a feature map to rectangles.

    Args:
        input: [N, C, H, W]; rois: [R, 8] corners (x0, y0 ... x3, y3) clockwise from the top left, one LoD level.

    Returns:
        [R, C, transformed_height, transformed_width]; int32 mask [R, 1, ...] of points inside; matrices [R, 9].
    """
    check_variable_and_dtype(input, "input", ["float32"], "roi_perspective_transform")
    check_variable_and_dtype(rois, "rois", ["float32"], "roi_perspective_transform")
    check_type(transformed_height, "transformed_height", int, "roi_perspective_transform")
    check_type(transformed_width, "transformed_width", int, "roi_perspective_transform")
    check_type(spatial_scale, "spatial_scale", float, "roi_perspective_transform")
    attrs = {
        "transformed_height": transformed_height,
        "transformed_width": transformed_width,
        "spatial_scale": spatial_scale,
    }
    outputs = [
        ("Out", input.dtype, False),
        ("Mask", "int32", False),
        ("TransformMatrix", input.dtype, False),
        ("Out2InIdx", "int32", False),
        ("Out2InWeights", input.dtype, False),
    ]
    made = emit_many("roi_perspective_transform", {"X": input, "ROIs": rois}, outputs, attrs, name=name)
    return made[0], made[1], made[2]
