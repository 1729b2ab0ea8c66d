"""conv2d, conv3d and depthwise_conv2d, with first and second gradients.

Out[N, O, ...] = Input[N, C, ...] (*) Filter[O, C / groups, ...] (cross-correlation). SAME padding ignores the
dilations. Bias, ResidualData and an activation are oneDNN's (``onednn``), and nothing without ``use_mkldnn``; layers
add a bias with elementwise_add.
"""

import jax.numpy as jnp

from lowering.engine.shapes.infer_rules import by_rule
from lowering.ops.nn import conv_kernels as kernels
from lowering.ops.nn import windows
from lowering.ops.nn.conv_kernels import Geometry
from lowering.ops.nn.onednn import activation_of, finished
from lowering.registry import Wise, op
from lowering.values import Meta

VENDOR = "use_cudnn fuse_beta force_fp32_output workspace_size_MB exhaustive_search"
VENDOR_2D = VENDOR + (
    " use_quantizer fuse_relu_before_depthwise_conv Scale_in Scale_out Scale_in_eltwise Scale_weights"
)


def channel_first(x, data_format):
    """x in NC... order, whatever `data_format` says it is in."""
    return jnp.moveaxis(x, -1, 1) if data_format in ("NHWC", "NDHWC") else x


def channel_back(x, data_format):
    """An NC... value in the order of `data_format`."""
    return jnp.moveaxis(x, 1, -1) if data_format in ("NHWC", "NDHWC") else x


def plan(input, filter, strides, paddings, padding_algorithm, groups, dilations, data_format):
    """(Input in NC... order, its Geometry)."""
    x = channel_first(input, data_format)
    return x, _geometry(x.shape, filter.shape, strides, paddings, padding_algorithm, groups, dilations)


def _geometry(x, filter, strides, paddings, padding_algorithm, groups, dilations):
    """The Geometry for an input of shape ``x`` in NC... order and a filter's shape."""
    if x[1] != filter[1] * groups:
        raise ValueError(
            f"Input has {x[1]} channels and Filter {list(filter)} with groups={groups} expects "
            f"{filter[1] * groups}; make the channels equal"
        )
    pads, dilations = kernels.resolve_padding(padding_algorithm, paddings, x[2:], filter[2:], strides, dilations)
    axes = zip(x[2:], filter[2:], strides, pads, dilations, strict=True)
    return Geometry(tuple(strides), tuple(windows.reached(*axis) for axis in axes), dilations, groups)


_GEOMETRY = ("strides", "paddings", "padding_algorithm", "groups", "dilations")


def _images(shapes, attr):
    """Of images in NCHW order, of whose sizes the batch alone may be unknown."""
    x, filter = shapes["Input"], shapes["Filter"]
    if attr("data_format") == "NHWC" or not len(x) == len(filter) == 4 or min(x[1:] + filter) < 1:
        return None
    geo = _geometry(x, filter, *map(attr, _GEOMETRY))
    return {"Output": (x[0], filter[0], *kernels.reached(x, filter, geo))} if filter[0] % geo.groups == 0 else None


def _backward(x, filter, d_output, geo, data_format):
    dy = channel_first(d_output, data_format)
    dx = kernels.input_grad(dy, filter, x.shape, geo)
    return channel_back(dx, data_format), kernels.filter_grad(x, dy, filter.shape, geo)


def _backward_twice(x, filter, d_output, directions, geo, data_format):
    """(DDOutput, DInput, DFilter): the forward in both directions, and `d_output` against each of them."""
    dd_input, dd_filter = directions
    dy = channel_first(d_output, data_format)
    dd_out, dx, dw = jnp.zeros_like(dy), jnp.zeros_like(x), jnp.zeros_like(filter)
    if dd_input is not None:
        ddx = channel_first(dd_input, data_format)
        dd_out = dd_out + kernels.forward(ddx, filter, geo)
        dw = kernels.filter_grad(ddx, dy, filter.shape, geo)
    if dd_filter is not None:
        dd_out = dd_out + kernels.forward(x, dd_filter, geo)
        dx = kernels.input_grad(dy, dd_filter, x.shape, geo)
    return channel_back(dd_out, data_format), channel_back(dx, data_format), dw


def conv2d_rule(
    input,
    filter,
    bias=None,
    residual_data=None,
    *,
    is_test: bool = False,
    strides: list[int] = (1, 1),
    paddings: list[int] = (0, 0),
    padding_algorithm: str = "EXPLICIT",
    groups: int = 1,
    dilations: list[int] = (1, 1),
    data_format: str = "NCHW",
    use_mkldnn: bool = False,
    fuse_activation: str = "",
    fuse_alpha: float = 0.0,
    fuse_residual_connection: bool = False,
    fuse_relu: bool = False,
    fuse_brelu: bool = False,
    fuse_brelu_threshold: float = 6.0,
):
    """Output = Input (*) Filter over the two spatial axes; oneDNN's: act(that + Bias + ResidualData)."""
    x, geo = plan(input, filter, strides, paddings, padding_algorithm, groups, dilations, data_format)
    out = channel_back(kernels.forward(x, filter, geo), data_format)
    if not use_mkldnn:
        return out
    residual = residual_data if fuse_residual_connection else None
    act = activation_of(fuse_activation, fuse_alpha, fuse_relu, fuse_brelu, fuse_brelu_threshold)
    return finished(out, bias, residual, data_format, *act)


def conv2d_grad(
    input, filter, d_output, bias=None, *, strides, paddings, padding_algorithm, groups, dilations, data_format
):
    """Input@GRAD and Filter@GRAD; the unused Bias gets zeros."""
    x, geo = plan(input, filter, strides, paddings, padding_algorithm, groups, dilations, data_format)
    grads = _backward(x, filter, d_output, geo, data_format)
    return (*grads, None if bias is None else jnp.zeros_like(bias))


def conv_grad_grad(
    input,
    filter,
    doutput,
    ddinput=None,
    ddfilter=None,
    *,
    strides,
    paddings,
    padding_algorithm,
    groups,
    dilations,
    data_format,
):
    """DDOutput, Input@GRAD and Filter@GRAD of the gradient op."""
    x, geo = plan(input, filter, strides, paddings, padding_algorithm, groups, dilations, data_format)
    return _backward_twice(x, filter, doutput, (ddinput, ddfilter), geo, data_format)


conv2d = op(
    "conv2d",
    out="Output",
    diff="input filter bias",
    vendor=VENDOR_2D,
    lod="input",
    rows=Wise("input residual_data"),
    infer=by_rule(_images),
)(conv2d_rule)
depthwise_conv2d = op(
    "depthwise_conv2d",
    out="Output",
    diff="input filter bias",
    vendor=VENDOR_2D,
    lod="input",
    rows=Wise("input residual_data"),
    infer=by_rule(_images),
)(conv2d_rule)
conv2d.grad(conv2d_grad)
depthwise_conv2d.grad(conv2d_grad)


@op(out="Output", diff="input filter", vendor=VENDOR, lod="input", rows=Wise("input residual_data"), newer="bias")
def conv3d(
    input,
    filter,
    residual_data=None,
    bias=None,
    *,
    is_test: bool = False,
    strides: list[int] = (1, 1, 1),
    paddings: list[int] = (0, 0, 0),
    padding_algorithm: str = "EXPLICIT",
    groups: int = 1,
    dilations: list[int] = (1, 1, 1),
    data_format: str = "NCDHW",
    use_mkldnn: bool = False,
    fuse_activation: str = "",
    fuse_alpha: float = 0.0,
    fuse_residual_connection: bool = False,
    fuse_relu: bool = False,
):
    """Output = Input (*) Filter over the three spatial axes; oneDNN's: act(that + Bias + ResidualData)."""
    x, geo = plan(input, filter, strides, paddings, padding_algorithm, groups, dilations, data_format)
    out = channel_back(kernels.forward(x, filter, geo), data_format)
    if not use_mkldnn:
        return out
    residual = residual_data if fuse_residual_connection else None
    act = activation_of(fuse_activation, fuse_alpha, fuse_relu)
    return finished(out, bias, residual, data_format, *act)


@conv3d.grad
def _(
    input,
    filter,
    d_output,
    residual_data: Meta = None,
    *,
    strides,
    paddings,
    padding_algorithm,
    groups,
    dilations,
    data_format,
):
    x, geo = plan(input, filter, strides, paddings, padding_algorithm, groups, dilations, data_format)
    return _backward(x, filter, d_output, geo, data_format)


for _conv in (conv2d, conv3d):
    _conv.grad_grad(out="DDOutput DInput DFilter", rows=None)(conv_grad_grad)
