"""Convolutions with filters that are given."""

from __future__ import annotations

from typing import Any

from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._nn.windows import FORMATS, channel_last, window_padding
from fluidjax.layers.utils import convert_to_list
from fluidjax.paddle.tensor.at_once import surface
from fluidjax.writing.checks import check_variable_and_dtype


def _convolved(kind: str, n: int, input: Any, weight: Any, bias: Any, given: dict[str, Any]) -> Variable:
    check_variable_and_dtype(input, "input", ["float16", "float32", "float64"], kind)
    last = channel_last(given["data_format"], FORMATS[n], kind)
    padding, algorithm = window_padding(given["padding"], n, last, kind)
    helper = LayerHelper(kind, act=given["act"], name=given["name"])
    out = helper.create_variable_for_type_inference(input.dtype)
    attrs = {
        "strides": convert_to_list(given["stride"], n, "stride"),
        "paddings": padding,
        "dilations": convert_to_list(given["dilation"], n, "dilation"),
        "groups": given["groups"] or 1,
        "padding_algorithm": algorithm,
        "data_format": given["data_format"],
    }
    if given.get("output_size"):
        attrs["output_size"] = convert_to_list(given["output_size"], n, "output_size")
    helper.append_op(type=kind, inputs={"Input": [input], "Filter": [weight]}, outputs={"Output": [out]}, attrs=attrs)
    return helper.append_activation(out if bias is None else _with_bias(helper, out, bias, last))


def _with_bias(helper: LayerHelper, out: Variable, bias: Any, last: bool) -> Variable:
    axis = len(out.shape) - 1 if last else 1
    biased = helper.create_variable_for_type_inference(out.dtype)
    helper.append_op(
        type="elementwise_add", inputs={"X": [out], "Y": [bias]}, outputs={"Out": [biased]}, attrs={"axis": axis}
    )
    return biased


@surface
def conv2d(
    input: Any,
    weight: Any,
    bias: Any = None,
    padding: Any = 0,
    stride: Any = 1,
    dilation: Any = 1,
    groups: int = 1,
    use_cudnn: bool = True,
    act: str | None = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    """The convolution of images with filters.

    Args:
        input: [N, C, H, W], or [N, H, W, C].
        weight: [filters, C / groups, height, width].
        bias: [filters], or None.
        padding: a number, one for each axis or side, 'SAME' or 'VALID'.
        stride, dilation: a number, or one for each axis.
        groups: how many parts the channels are in.
        use_cudnn: accepted as in Paddle.
        act: an activation's name.
        data_format: 'NCHW' or 'NHWC'.
    """
    return _convolved("conv2d", 2, input, weight, bias, dict(locals()))


@surface
def conv3d(
    input: Any,
    weight: Any,
    bias: Any = None,
    padding: Any = 0,
    stride: Any = 1,
    dilation: Any = 1,
    groups: int = 1,
    use_cudnn: bool = True,
    act: str | None = None,
    data_format: str = "NCDHW",
    name: str | None = None,
) -> Any:
    """The convolution of volumes with filters; as ``conv2d``, with a depth before the height."""
    return _convolved("conv3d", 3, input, weight, bias, dict(locals()))


@surface
def conv2d_transpose(
    input: Any,
    weight: Any,
    bias: Any = None,
    output_size: Any = None,
    padding: Any = 0,
    stride: Any = 1,
    dilation: Any = 1,
    groups: int = 1,
    use_cudnn: bool = True,
    act: str | None = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    """A convolution's gradient by its input.

    Args:
        weight: [C, filters / groups, height, width].
        output_size: the height and width of the result where strides leave several.
        others: as for ``conv2d``.
    """
    return _convolved("conv2d_transpose", 2, input, weight, bias, dict(locals()))


@surface
def conv3d_transpose(
    input: Any,
    weight: Any,
    bias: Any = None,
    output_size: Any = None,
    padding: Any = 0,
    stride: Any = 1,
    dilation: Any = 1,
    groups: int = 1,
    use_cudnn: bool = True,
    act: str | None = None,
    data_format: str = "NCDHW",
    name: str | None = None,
) -> Any:
    """A convolution's gradient by its input; as ``conv2d_transpose``, with a depth before the height."""
    return _convolved("conv3d_transpose", 3, input, weight, bias, dict(locals()))
