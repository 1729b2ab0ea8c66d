"""Image resizing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._tensor.shapes import fill_constant
from fluidjax.writing.checks import check_type

__all__ = [
    "image_resize",
    "image_resize_short",
    "interpolate",
    "resize_bilinear",
    "resize_nearest",
    "resize_trilinear",
]

_OPS = {"BILINEAR": "bilinear", "TRILINEAR": "trilinear", "NEAREST": "nearest"}
_OPS_AND_CUBIC = {**_OPS, "BICUBIC": "bicubic"}
_LAYOUTS = {4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}
_SIZES = ("out_d", "out_h", "out_w")


def _check(
    ops: Mapping[str, str],
    input: Variable,
    resample: str,
    align_mode: int,
    data_format: str,
    out_shape: Any,
    scale: Any,
) -> None:
    if resample not in ops:
        raise ArgumentError(
            f"The 'resample' of image_resize can only be one of {list(ops)} currently, received {resample!r}. Use one"
            " of them."
        )
    rank = len(input.shape)
    expected = (5,) if resample == "TRILINEAR" else (4,)
    if rank not in expected:
        raise ArgumentError(f"{resample} resizes tensors of rank {expected}, received {rank}. Reshape the input.")
    if align_mode not in (0, 1):
        raise ArgumentError(f"align_mode can only be 0 or 1, received {align_mode!r}. Use one of the two.")
    if out_shape is None and scale is None:
        raise ArgumentError("One of out_shape and scale must not be None. Give one of them.")
    if data_format not in _LAYOUTS[rank]:
        raise ArgumentError(
            f"data_format of a rank {rank} input must be {_LAYOUTS[rank]}, received {data_format!r}. Use one of them."
        )


def _plain(value: Any) -> bool:
    return not isinstance(value, Variable)


def _shape_inputs(helper: LayerHelper, out_shape: Any, n: int, inputs: dict[str, Any], attrs: dict[str, Any]) -> None:
    """Bind out_shape, a Variable or a list of n ints and Variables, to the op's inputs and attributes."""
    if isinstance(out_shape, Variable):
        out_shape.stop_gradient = True
        inputs["OutSize"] = out_shape
        return
    if not isinstance(out_shape, (list, tuple)):
        raise TypeError(
            f"out_shape should be a list or tuple or Variable, received {type(out_shape).__name__}. Pass [height,"
            " width]."
        )
    if len(out_shape) != n:
        raise ArgumentError(f"out_shape has {len(out_shape)} numbers and the input {n} spatial axes. Give {n}.")
    if any(_plain(v) and int(v) <= 0 for v in out_shape):
        raise ArgumentError(f"Each dimension size given in out_shape must be greater than 0, received {out_shape}.")
    names = _SIZES[-n:]
    if all(_plain(v) for v in out_shape):
        attrs |= {name: int(v) for name, v in zip(names, out_shape, strict=True)}
        return
    tensors, known = [], []
    for value in out_shape:
        if isinstance(value, Variable):
            value.stop_gradient = True
            tensors.append(value)
            known.append(-1)
        else:
            assert isinstance(value, int), f"out_shape holds {value!r}; expected ints and Variables. Convert it."
            size = helper.create_variable_for_type_inference("int32")
            tensors.append(fill_constant([1], "int32", value, force_cpu=True, out=size))
            known.append(value)
    inputs["SizeTensor"] = tensors
    attrs |= dict(zip(names, known, strict=True))


def _scale_input(scale: Any, inputs: dict[str, Any], attrs: dict[str, Any]) -> None:
    if isinstance(scale, Variable):
        scale.stop_gradient = True
        inputs["Scale"] = scale
        return
    if isinstance(scale, bool) or not isinstance(scale, (int, float)):
        raise TypeError(f"Attr(scale)'s type should be float, int or Variable, received {scale!r}. Convert it.")
    if scale <= 0:
        raise ArgumentError(f"Attr(scale) should be greater than zero, received {scale}. Choose another.")
    attrs["scale"] = float(scale)


def _actual_shape(actual_shape: Any, inputs: dict[str, Any]) -> None:
    if actual_shape is None:
        return
    warnings.warn("actual_shape will be deprecated, it is recommended to use out_shape instead.", stacklevel=5)
    check_type(actual_shape, "actual_shape", Variable, "image_resize")
    actual_shape.stop_gradient = True
    inputs["OutSize"] = actual_shape


def _resized(
    ops: Mapping[str, str],
    input: Variable,
    out_shape: Any,
    scale: Any,
    name: str | None,
    resample: str,
    actual_shape: Variable | None,
    align_corners: bool,
    align_mode: int,
    data_format: str,
) -> Variable:
    resample = resample.upper()
    _check(ops, input, resample, align_mode, data_format, out_shape, scale)
    check_type(align_corners, "align_corners", bool, "image_resize")
    kind = ops[resample]
    helper = LayerHelper(f"{kind}_interp", input=input, name=name)
    inputs: dict[str, Any] = {"X": input}
    attrs: dict[str, Any] = {
        "out_d": -1,
        "out_h": -1,
        "out_w": -1,
        "interp_method": kind,
        "align_corners": align_corners,
        "align_mode": align_mode,
        "data_layout": "NHWC" if data_format[-1] == "C" else "NCHW",
    }
    if out_shape is not None:
        _shape_inputs(helper, out_shape, len(input.shape) - 2, inputs, attrs)
    else:
        _scale_input(scale, inputs, attrs)
    _actual_shape(actual_shape, inputs)
    out = helper.create_variable_for_type_inference(input.dtype)
    helper.append_op(type=f"{kind}_interp", inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


def image_resize(
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    resample: str = "BILINEAR",
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """Resize images by interpolation.

    Row i of the result samples the input at i (in - 1) / (out - 1) with align_corners, else at i in / out (align_mode
    1) or (i + 0.5) in / out - 0.5 (align_mode 0).

    Args:
        input: [N, C, H, W] or [N, C, D, H, W] (or channels last, see data_format), float32, float64 or uint8.
        out_shape: the spatial sizes: ints, Variables [1], or one int32 Variable; or else scale, a number or Variable.
        resample: "BILINEAR" or "NEAREST" (rank 4), or "TRILINEAR" (rank 5).
        actual_shape: a Variable that overrides out_shape at run time; deprecated.

    Returns:
        The resized images. Raises TypeError or ValueError for invalid arguments.
    """
    return _resized(_OPS, input, out_shape, scale, name, resample, actual_shape, align_corners, align_mode, data_format)


def interpolate(
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    resample: str = "BILINEAR",
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """``image_resize``, whose resample may be "BICUBIC", too: rank 4, by 4 x 4 neighbours."""
    return _resized(
        _OPS_AND_CUBIC, input, out_shape, scale, name, resample, actual_shape, align_corners, align_mode, data_format
    )


def resize_bilinear(
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """``image_resize`` of rank-4 input by bilinear interpolation (2 x 2 neighbours)."""
    return image_resize(input, out_shape, scale, name, "BILINEAR", actual_shape, align_corners, align_mode, data_format)


def resize_trilinear(
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCDHW",
) -> Variable:
    """``image_resize`` of rank-5 input by trilinear interpolation (2 x 2 x 2 neighbours)."""
    return image_resize(
        input, out_shape, scale, name, "TRILINEAR", actual_shape, align_corners, align_mode, data_format
    )


def resize_nearest(
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """``image_resize`` by nearest neighbour."""
    return image_resize(
        input, out_shape, scale, name, "NEAREST", actual_shape, align_corners, align_mode=1, data_format=data_format
    )


def image_resize_short(input: Variable, out_short_len: int, resample: str = "BILINEAR") -> Variable:
    """Resize [N, C, H, W] so that the shorter side becomes out_short_len, preserving the aspect ratio."""
    if len(input.shape) != 4:
        raise ArgumentError(f"The rank of input must be 4 (num_batches, channels, in_h, in_w), not {len(input.shape)}.")
    sides = list(input.shape[2:])
    short = sides.index(min(sides))
    out = list(sides)
    out[short] = out_short_len
    out[1 - short] = int(float(sides[1 - short]) * (float(out_short_len) / float(sides[short])) + 0.5)
    return image_resize(input=input, out_shape=out, resample=resample)
