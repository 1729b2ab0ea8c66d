"""Layers that rearrange or sample images."""

from __future__ import annotations

from typing import Any

from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers.utils import convert_to_list
from fluidjax.writing.checks import FULL_FLOATS, NUMBERS, check_type, check_variable_and_dtype

__all__ = [
    "affine_grid",
    "grid_sampler",
    "pixel_shuffle",
    "shuffle_channel",
    "space_to_depth",
    "temporal_shift",
    "unfold",
    "deformable_roi_pooling",
]


def _write(layer: str, op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], slot: str, name: str | None):
    """Write an op with a single result, of the dtype of its first input."""
    helper = LayerHelper(layer, name=name)
    out = helper.create_variable_for_type_inference(next(iter(inputs.values())).dtype)
    helper.append_op(type=op_type, inputs=inputs, outputs={slot: out}, attrs=attrs)
    return out


def affine_grid(theta: Variable, out_shape: Any, name: str | None = None) -> Variable:
    """Sampling positions of an affine map: out[n, h, w] = theta[n] (x, y, 1), with x and y from -1 to 1.

    Args:
        theta: [N, 2, 3], float32 or float64.
        out_shape: [N, C, H, W] as a list or an int32 Variable [4].

    Returns:
        [N, H, W, 2], for ``grid_sampler``.
    """
    helper = LayerHelper("affine_grid")
    check_variable_and_dtype(theta, "theta", FULL_FLOATS, "affine_grid")
    if not isinstance(out_shape, (list, tuple, Variable)):
        raise ArgumentError(
            f"The out_shape of affine_grid should be a list, tuple or Variable, received {out_shape!r}. Pass one."
        )
    out = helper.create_variable_for_type_inference(theta.dtype)
    inputs, attrs = {"Theta": theta}, {}
    if isinstance(out_shape, Variable):
        check_variable_and_dtype(out_shape, "out_shape", ("int32",), "affine_grid")
        inputs["OutputShape"] = out_shape
    else:
        attrs["output_shape"] = list(out_shape)
    helper.append_op(type="affine_grid", inputs=inputs, outputs={"Output": out}, attrs=attrs or None)
    return out


def grid_sampler(x: Variable, grid: Variable, name: str | None = None) -> Variable:
    """Sample x [N, C, H, W] at grid [N, H, W, 2] (x, y in [-1, 1], corners aligned), bilinearly, zero outside."""
    check_variable_and_dtype(x, "x", FULL_FLOATS, "grid_sampler")
    check_variable_and_dtype(grid, "grid", FULL_FLOATS, "grid_sampler")
    return _write("grid_sampler", "grid_sampler", {"X": x, "Grid": grid}, {}, "Output", name)


def pixel_shuffle(x: Variable, upscale_factor: int) -> Variable:
    """Rearrange [N, C r^2, H, W] to [N, C, H r, W r], r = upscale_factor. Raises TypeError unless it is an int."""
    check_variable_and_dtype(x, "x", FULL_FLOATS, "pixel_shuffle")
    if not isinstance(upscale_factor, int):
        raise TypeError(f"upscale factor must be int type, received {upscale_factor!r}. Convert it.")
    return _write("pixel_shuffle", "pixel_shuffle", {"X": x}, {"upscale_factor": upscale_factor}, "Out", None)


def shuffle_channel(x: Variable, group: int, name: str | None = None) -> Variable:
    """Transpose the channels from [group, C / group] to [C / group, group] (ShuffleNet). Raises TypeError unless group
    is an int.
    """
    if not isinstance(group, int):
        raise TypeError(f"group must be int type, received {group!r}. Convert it.")
    return _write("shuffle_channel", "shuffle_channel", {"X": x}, {"group": group}, "Out", name)


def space_to_depth(x: Variable, blocksize: int, name: str | None = None) -> Variable:
    """Rearrange [N, C, H, W] to [N, C b^2, H / b, W / b], b = blocksize, in the order of Darknet's reorg layer."""
    if not isinstance(blocksize, int):
        raise ArgumentError(f"blocksize must be a python Int, received {blocksize!r}. Convert it.")
    check_variable_and_dtype(x, "x", NUMBERS, "space_to_depth")
    return _write("space_to_depth", "space_to_depth", {"X": x}, {"blocksize": blocksize}, "Out", name)


def temporal_shift(x: Variable, seg_num: int, shift_ratio: float = 0.25, name: str | None = None) -> Variable:
    """Shift channels of x [N seg_num, C, H, W] in time: the first C shift_ratio come from the previous frame, the
    next C shift_ratio from the following one.
    """
    check_variable_and_dtype(x, "x", FULL_FLOATS, "temporal_shift")
    check_type(seg_num, "seg_num", int, "temporal_shift")
    check_type(shift_ratio, "shift_ratio", float, "temporal_shift")
    return _write(
        "temporal_shift", "temporal_shift", {"X": x}, {"seg_num": seg_num, "shift_ratio": shift_ratio}, "Out", name
    )


def unfold(
    x: Variable, kernel_sizes: Any, strides: Any = 1, paddings: Any = 0, dilations: Any = 1, name: str | None = None
) -> Variable:
    """Sliding windows of x [N, C, H, W] as columns [N, C kh kw, windows] (im2col).

    Args:
        kernel_sizes, strides, dilations: an int, or [height, width].
        paddings: an int, [height, width], or [top, left, bottom, right].
    """
    check_variable_and_dtype(x, "x", FULL_FLOATS, "unfold")
    if len(x.shape) != 4:
        raise ArgumentError(
            f"input of unfold should be of rank 4, [N, C, H, W], received {tuple(x.shape)}. Reshape it."
        )
    sides = list(paddings) if isinstance(paddings, (list, tuple)) else [paddings] * 4
    if len(sides) == 2:
        sides = sides * 2
    if len(sides) != 4:
        raise ArgumentError(f"paddings of unfold should be 1, 2 or 4 ints, received {paddings!r}. Give so many.")
    attrs = {
        "kernel_sizes": convert_to_list(kernel_sizes, 2, "kernel_sizes"),
        "strides": convert_to_list(strides, 2, "strides"),
        "paddings": sides,
        "dilations": convert_to_list(dilations, 2, "dilations"),
    }
    return _write("unfold", "unfold", {"X": x}, attrs, "Y", name)


def deformable_roi_pooling(
    input: Variable,
    rois: Variable,
    trans: Variable,
    no_trans: bool = False,
    spatial_scale: float = 1.0,
    group_size: Any = [1, 1],  # noqa: B006  (the published default; never written to)
    pooled_height: int = 1,
    pooled_width: int = 1,
    part_size: Any = None,
    sample_per_part: int = 1,
    trans_std: float = 0.1,
    position_sensitive: bool = False,
    name: str | None = None,
) -> Variable:
    """Average pooling over bins of regions of interest, each bin displaced by a learned offset.

    Args:
        input: [N, C, H, W].
        rois: [R, 4] x1, y1, x2, y2, with LoD: the regions of each image.
        trans: [R, 2, part_h, part_w] offsets as fractions of the region.
        no_trans: ignore the offsets.
        spatial_scale: factor from image pixels to input pixels.
        group_size: [height, width] of the channel groups, with position_sensitive.
        part_size: [height, width] of trans; the pooled size by default.
        sample_per_part: samples per bin along each axis; trans_std: factor applied to the offsets.

    Returns:
        [R, C (or C / groups), pooled_height, pooled_width].
    """
    check_variable_and_dtype(input, "input", FULL_FLOATS, "deformable_roi_pooling")
    check_variable_and_dtype(rois, "rois", FULL_FLOATS, "deformable_roi_pooling")
    check_variable_and_dtype(trans, "trans", FULL_FLOATS, "deformable_roi_pooling")
    check_type(group_size, "group_size", (list, tuple), "deformable_roi_pooling")
    part_size = [pooled_height, pooled_width] if part_size is None else part_size
    check_type(part_size, "part_size", (list, tuple), "deformable_roi_pooling")
    channels = input.shape[1]
    helper = LayerHelper("deformable_psroi_pooling", name=name)
    out = helper.create_variable_for_type_inference(input.dtype)
    count = helper.create_variable_for_type_inference(dtype="int32")
    helper.append_op(
        type="deformable_psroi_pooling",
        inputs={"Input": input, "ROIs": rois, "Trans": trans},
        outputs={"Output": out, "TopCount": count},
        attrs={
            "no_trans": no_trans,
            "spatial_scale": spatial_scale,
            "output_dim": int(channels / group_size[0] / group_size[1]) if position_sensitive else channels,
            "group_size": list(group_size),
            "pooled_height": pooled_height,
            "pooled_width": pooled_width,
            "part_size": list(part_size),
            "sample_per_part": sample_per_part,
            "trans_std": trans_std,
        },
    )
    return out
