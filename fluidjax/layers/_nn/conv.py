"""Convolution layers: conv2d, conv3d, their transposes, deformable_conv."""

from __future__ import annotations

import math
from typing import Any

from fluidjax.base.errors import ArgumentError
from fluidjax.base.older import without
from fluidjax.framework import Variable
from fluidjax.initializer import Normal
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._nn.windows import FORMATS, channel_last, check_rank, window_padding
from fluidjax.layers.utils import convert_to_list
from fluidjax.writing.checks import FLOATS, FULL_FLOATS, check_type, check_variable_and_dtype

__all__ = ["conv2d", "conv3d", "conv2d_transpose", "conv3d_transpose", "deformable_conv"]


def _check_bool(value: Any, layer: str) -> None:
    if not isinstance(value, bool):
        raise ArgumentError(
            f"Attr(use_cudnn) of {layer} should be True or False, received {value!r}. Pass a bool; it has no effect on"
            " XLA."
        )


def _channels(input: Variable, last: bool, layer: str) -> int:
    check_rank(input, 3 if "3d" in layer else 2, layer)
    channels = input.shape[-1 if last else 1]
    if channels < 0:
        raise ArgumentError(
            f"The channel dimension of input {input.name!r} ({tuple(input.shape)}) in {layer} should be defined,"
            f" received {channels}. Declare it with fluid.data."
        )
    return channels


def _filter_channels(channels: int, groups: int | None, layer: str) -> int:
    if groups is None:
        return channels
    if channels % groups != 0:
        raise ArgumentError(
            f"the channels of {layer}'s input must be divisible by groups, received {channels} channels and groups"
            f" {groups}. Change one of them."
        )
    return channels // groups


def _bias_and_act(helper: LayerHelper, out: Variable, last: bool) -> Variable:
    axis = len(out.shape) - 1 if last else 1
    return helper.append_activation(helper.append_bias_op(out, dim_start=axis, dim_end=axis + 1))


def is_depthwise(channels: int, groups: int | None, num_filters: int, use_cudnn: bool) -> bool:
    """Whether each input channel has its own filters, in which case Fluid writes depthwise_conv2d."""
    return channels == groups and num_filters % channels == 0 and not use_cudnn


def filter_initializer(filter_size: list[int], channels: int) -> Normal:
    """Fluid's default for filters: normal, with variance 2 / fan-in."""
    return Normal(0.0, (2.0 / (math.prod(filter_size) * channels)) ** 0.5, 0)


def _conv(n: int, helper: LayerHelper, op_type: str, last: bool) -> Variable:
    """Write a convolution over ``n`` spatial axes from the arguments held by ``helper``."""
    args = helper.kwargs
    input, groups, layer = args["input"], args["groups"], f"conv{n}d"
    channels = _channels(input, last, layer)
    filter_size = convert_to_list(args["filter_size"], n, "filter_size")
    stride = convert_to_list(args["stride"], n, "stride")
    padding, algorithm = window_padding(args["padding"], n, last, layer)
    weight = helper.create_parameter(
        attr=helper.param_attr,
        shape=[args["num_filters"], int(_filter_channels(channels, groups, layer)), *filter_size],
        dtype=input.dtype,
        default_initializer=filter_initializer(filter_size, channels),
    )
    out = helper.create_variable_for_type_inference(input.dtype)
    attrs = {
        "strides": stride,
        "paddings": padding,
        "dilations": convert_to_list(args["dilation"], n, "dilation"),
        "groups": groups or 1,
        "use_cudnn": args["use_cudnn"],
        "use_mkldnn": False,
        "padding_algorithm": algorithm,
        "data_format": args["data_format"],
    }
    if n == 2:
        attrs["fuse_relu_before_depthwise_conv"] = False
    helper.append_op(type=op_type, inputs={"Input": input, "Filter": weight}, outputs={"Output": out}, attrs=attrs)
    return _bias_and_act(helper, out, last)


@without("fluid.layers", "use_mkldnn")
def conv2d(
    input: Variable,
    num_filters: int,
    filter_size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """2-D convolution: out = act(input (*) W + b), W [num_filters, C / groups, kh, kw], b [num_filters].

    Output sizes: H_out = floor((H + pad_top + pad_bottom - (dilation (kh - 1) + 1)) / stride) + 1, and likewise
    W_out.

    Args:
        input: [N, C, H, W] (or [N, H, W, C] with data_format "NHWC"), float32 or float64.
        num_filters: number of output channels.
        filter_size, stride, dilation: an int, or [height, width].
        padding: an int, [height, width], [top, bottom, left, right], one pair per axis, "SAME" or "VALID".
        groups: number of channel groups; with one group per channel and use_cudnn False, the op is depthwise_conv2d.
        param_attr, bias_attr: of W, initially Normal(0, sqrt(2 / (kh kw C))), and b, initially 0; bias_attr=False
            omits b.

    Returns:
        [N, num_filters, H_out, W_out]. Raises ValueError for invalid sizes, groups or formats.

    Examples:
        >>> image = fluid.data("image", [None, 3, 32, 32])
        >>> fluid.layers.conv2d(image, num_filters=16, filter_size=3, padding=1, act="relu").shape
        (-1, 16, 32, 32)
        >>> fluid.layers.conv2d(image, num_filters=16, filter_size=3, stride=2).shape
        (-1, 16, 15, 15)
    """
    check_variable_and_dtype(input, "input", FLOATS, "conv2d")
    _check_bool(use_cudnn, "conv2d")
    last = channel_last(data_format, FORMATS[2], "conv2d")
    depthwise = is_depthwise(_channels(input, last, "conv2d"), groups, num_filters, use_cudnn)
    op_type = "depthwise_conv2d" if depthwise else "conv2d"
    helper = LayerHelper(op_type, **locals())
    return _conv(2, helper, op_type, last)


@without("fluid.layers", "use_mkldnn")
def conv3d(
    input: Variable,
    num_filters: int,
    filter_size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCDHW",
) -> Variable:
    """3-D convolution of [N, C, D, H, W]; arguments and result as for ``conv2d``, with one more spatial axis."""
    check_variable_and_dtype(input, "input", FLOATS, "conv3d")
    _check_bool(use_cudnn, "conv3d")
    last = channel_last(data_format, FORMATS[3], "conv3d")
    helper = LayerHelper("conv3d", **locals())
    return _conv(3, helper, "conv3d", last)


def _implied_filter(output_size: list[int], input: Variable, last: bool, stride, padding, dilation) -> list[int]:
    """The filter size that produces ``output_size`` from the input."""
    spatial = input.shape[1:-1] if last else input.shape[2:]
    n = len(spatial)
    both = padding if len(padding) == 2 * n else [p for p in padding for _ in (0, 1)]
    return [
        (out - (size - 1) * stride[i] + both[2 * i] + both[2 * i + 1] - 1) // dilation[i] + 1
        for i, (out, size) in enumerate(zip(output_size, spatial, strict=True))
    ]


def _conv_transpose(n: int, helper: LayerHelper, op_type: str, last: bool) -> Variable:
    args = helper.kwargs
    input, layer = args["input"], f"conv{n}d_transpose"
    channels = _channels(input, last, layer)
    stride = convert_to_list(args["stride"], n, "stride")
    dilation = convert_to_list(args["dilation"], n, "dilation")
    padding, algorithm = window_padding(args["padding"], n, last, layer)
    output_size = args["output_size"]
    if args["filter_size"] is None:
        if output_size is None:
            raise ArgumentError(f"output_size must be set when filter_size of {layer} is None. Give one of them.")
        sizes = convert_to_list(output_size, n, "output_size")
        filter_size = _implied_filter(sizes, input, last, stride, padding, dilation)
    else:
        filter_size = convert_to_list(args["filter_size"], n, "filter_size")
    groups = 1 if args["groups"] is None else args["groups"]
    if groups < 1:
        raise ArgumentError(
            f"the groups of {layer} must be positive, received {groups}. Pass None for one group of all channels."
        )
    weight = helper.create_parameter(
        dtype=input.dtype, shape=[channels, args["num_filters"] // groups, *filter_size], attr=helper.param_attr
    )
    out = helper.create_variable_for_type_inference(dtype=input.dtype)
    attrs = {
        "output_size": [] if output_size is None else convert_to_list(output_size, n, "output_size"),
        "strides": stride,
        "paddings": padding,
        "padding_algorithm": algorithm,
        "dilations": dilation,
        "groups": groups,
        "use_cudnn": args["use_cudnn"],
        # Fluid writes the 2-D names on the 3-D op, too.
        "data_format": FORMATS[2][last],
    }
    helper.append_op(type=op_type, inputs={"Input": [input], "Filter": [weight]}, outputs={"Output": out}, attrs=attrs)
    return _bias_and_act(helper, out, last)


@without("fluid.layers", "use_mkldnn")
def conv2d_transpose(
    input: Variable,
    num_filters: int,
    output_size: Any = None,
    filter_size: Any = None,
    padding: Any = 0,
    stride: Any = 1,
    dilation: Any = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """2-D transposed convolution: the adjoint of ``conv2d``, plus bias and activation.

    H_out = (H - 1) stride - pads + dilation (kh - 1) + 1; output_size may exceed this by up to stride - 1.

    Args:
        input: [N, C, H, W] (or NHWC), float32 or float64.
        num_filters: number of output channels.
        output_size: an int or [H_out, W_out]; filter_size may then be omitted.
        filter_size, stride, dilation: an int, or [height, width]; padding: as for ``conv2d``.
        groups: number of channel groups; W is [C, num_filters / groups, kh, kw].

    Returns:
        [N, num_filters, H_out, W_out]. Raises ValueError if neither output_size nor filter_size is given.
    """
    check_variable_and_dtype(input, "input", FLOATS, "conv2d_transpose")
    _check_bool(use_cudnn, "conv2d_transpose")
    last = channel_last(data_format, FORMATS[2], "conv2d_transpose")
    depthwise = is_depthwise(_channels(input, last, "conv2d_transpose"), groups, num_filters, use_cudnn)
    same = num_filters == input.shape[-1 if last else 1]
    op_type = "depthwise_conv2d_transpose" if depthwise and same else "conv2d_transpose"
    helper = LayerHelper(op_type, **locals())
    return _conv_transpose(2, helper, op_type, last)


def conv3d_transpose(
    input: Variable,
    num_filters: int,
    output_size: Any = None,
    filter_size: Any = None,
    padding: Any = 0,
    stride: Any = 1,
    dilation: Any = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCDHW",
) -> Variable:
    """3-D transposed convolution of [N, C, D, H, W]; as ``conv2d_transpose``, with one more spatial axis."""
    check_variable_and_dtype(input, "input", FLOATS, "conv3d_transpose")
    _check_bool(use_cudnn, "conv3d_transpose")
    last = channel_last(data_format, FORMATS[3], "conv3d_transpose")
    helper = LayerHelper("conv3d_transpose", **locals())
    return _conv_transpose(3, helper, "conv3d_transpose", last)


def deformable_conv(
    input: Variable,
    offset: Variable,
    mask: Variable | None,
    num_filters: int,
    filter_size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int | None = None,
    deformable_groups: int | None = None,
    im2col_step: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    modulated: bool = True,
    name: str | None = None,
) -> Variable:
    """Deformable convolution: out(p) = sum over taps k of W_k input(p + p_k + offset_k(p)) mask_k(p), read bilinearly.

    Args:
        input: [N, C, H, W], float32 or float64.
        offset: [N, 2 deformable_groups kh kw, H_out, W_out], the (y, x) displacement of each tap.
        mask: [N, deformable_groups kh kw, H_out, W_out]; None with modulated=False (version 1).
        num_filters, filter_size, stride, padding, dilation, groups: as for ``conv2d``; padding is an int or a pair.

    Returns:
        [N, num_filters, H_out, W_out]. Raises ValueError if groups does not divide the number of channels.
    """
    check_variable_and_dtype(input, "input", FULL_FLOATS, "deformable_conv")
    check_variable_and_dtype(offset, "offset", FULL_FLOATS, "deformable_conv")
    check_type(mask, "mask", (Variable, type(None)), "deformable_conv")
    channels = _channels(input, False, "deformable_conv")
    helper = LayerHelper("deformable_conv", **locals())
    filter_size = convert_to_list(filter_size, 2, "filter_size")
    per_group = _filter_channels(channels, groups, "deformable_conv")
    weight = helper.create_parameter(
        attr=helper.param_attr,
        shape=[num_filters, int(per_group), *filter_size],
        dtype=input.dtype,
        default_initializer=filter_initializer(filter_size, channels),
    )
    out = helper.create_variable_for_type_inference(input.dtype)
    inputs = {"Input": input, "Filter": weight, "Offset": offset}
    if modulated:
        inputs["Mask"] = mask
    attrs = {
        "strides": convert_to_list(stride, 2, "stride"),
        "paddings": convert_to_list(padding, 2, "padding"),
        "dilations": convert_to_list(dilation, 2, "dilation"),
        "groups": groups or 1,
        "deformable_groups": deformable_groups or 1,
        "im2col_step": im2col_step or 64,
    }
    op_type = "deformable_conv" if modulated else "deformable_conv_v1"
    helper.append_op(type=op_type, inputs=inputs, outputs={"Output": out}, attrs=attrs)
    return helper.append_bias_op(out, dim_start=1, dim_end=2)
