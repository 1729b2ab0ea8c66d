"""conv2d_transpose, conv3d_transpose and depthwise_conv2d_transpose: the adjoint of a convolution in its input.

Input[N, C, ...] and Filter[C, O / groups, ...] make Output[N, O, ...] with
size = (in - 1) * stride - padding + dilation * (k - 1) + 1, or `output_size` where given (up to stride - 1 larger);
Paddle 2 may also specify the additional rows and columns by `output_padding`.
"""

import jax.numpy as jnp

from lowering.ops.nn import conv_kernels as kernels
from lowering.ops.nn.conv import channel_back, channel_first
from lowering.ops.nn.onednn import activation_of, finished
from lowering.ops.nn.windows import Geometry, at_least_one
from lowering.registry import Wise, op

VENDOR = "use_cudnn workspace_size_MB"


def transpose_sizes(in_size, ksize, geo: Geometry, output_size: list) -> tuple:
    """Spatial output size of conv_transpose; a given output_size picks among the `stride` valid ones."""
    least = [
        (i - 1) * s - sum(p) + d * (k - 1) + 1
        for i, k, s, p, d in zip(in_size, ksize, geo.strides, geo.pads, geo.dilations, strict=True)
    ]
    if not output_size:
        what = "a transposed convolution with padding"
        return tuple(at_least_one(n, i, f"{what} {p}") for n, i, p in zip(least, in_size, geo.pads, strict=True))
    for given, low, stride in zip(output_size, least, geo.strides, strict=True):
        if not low <= given < low + stride:
            raise ValueError(
                f"output_size {list(output_size)} is not reachable: expected each size in "
                f"[{low}, {low + stride}), received {given}; leave output_size out or choose one of these"
            )
    return tuple(output_size)


def plan(input, filter, strides, paddings, padding_algorithm, groups, dilations, data_format):
    """(Input in NC... order, the Geometry of the convolution whose adjoint this is)."""
    x = channel_first(input, data_format)
    if x.shape[1] != filter.shape[0]:
        raise ValueError(
            f"Input has {x.shape[1]} channels and Filter {list(filter.shape)} expects {filter.shape[0]}; "
            "make the channels equal"
        )
    pads, dilations = kernels.resolve_padding(
        padding_algorithm, paddings, x.shape[2:], filter.shape[2:], strides, dilations
    )
    return x, Geometry(tuple(strides), pads, dilations, groups)


def _forward(x, filter, geo, output_size, output_padding, data_format):
    sizes = transpose_sizes(x.shape[2:], filter.shape[2:], geo, output_size)
    if len(output_padding) and not len(output_size):
        sizes = [n + more for n, more in zip(sizes, output_padding, strict=True)]
    shape = (x.shape[0], filter.shape[1] * geo.groups, *sizes)
    return channel_back(kernels.input_grad(x, filter, shape, geo), data_format)


def _backward(x, filter, d_output, geo, data_format):
    dy = channel_first(d_output, data_format)
    dx = kernels.forward(dy, filter, geo)
    return channel_back(dx, data_format), kernels.filter_grad(dy, x, filter.shape, geo)


def conv2d_transpose_rule(
    input,
    filter,
    bias=None,
    *,
    is_test: bool = False,
    output_size: list[int] = (),
    groups: int = 1,
    dilations: list[int] = (1, 1),
    strides: list[int] = (1, 1),
    paddings: list[int] = (0, 0),
    data_format: str = "NCHW",
    padding_algorithm: str = "EXPLICIT",
    output_padding: list[int] = (),
    use_mkldnn: bool = False,
    fuse_activation: str = "",
    fuse_alpha: float = 0.0,
    fuse_relu: bool = False,
):
    """Output = the transpose of (*) Filter applied to Input, over two spatial axes; oneDNN's: act(that + Bias)."""
    x, geo = plan(input, filter, strides, paddings, padding_algorithm, groups, dilations, data_format)
    out = _forward(x, filter, geo, output_size, output_padding, data_format)
    act = activation_of(fuse_activation, fuse_alpha, fuse_relu)
    return finished(out, bias, None, data_format, *act) if use_mkldnn else out


def conv2d_transpose_grad(
    input, filter, d_output, bias=None, *, strides, paddings, padding_algorithm, groups, dilations, data_format
):
    """Input@GRAD and Filter@GRAD; the unused Bias gets zeros."""
    x, geo = plan(input, filter, strides, paddings, padding_algorithm, groups, dilations, data_format)
    grads = _backward(x, filter, d_output, geo, data_format)
    return (*grads, None if bias is None else jnp.zeros_like(bias))


for _type in ("conv2d_transpose", "depthwise_conv2d_transpose"):
    _op = op(
        _type,
        out="Output",
        diff="input filter bias",
        vendor=VENDOR + " fuse_beta",
        lod=None,
        rows=Wise("input"),
        newer="output_padding",
    )(conv2d_transpose_rule)
    _op.grad(conv2d_transpose_grad)


@op(out="Output", vendor=VENDOR + " use_mkldnn", lod=None, rows=Wise("input"), newer="output_padding")
def conv3d_transpose(
    input,
    filter,
    *,
    output_size: list[int] = (),
    dilations: list[int] = (1, 1, 1),
    strides: list[int] = (1, 1, 1),
    paddings: list[int] = (0, 0, 0),
    groups: int = 1,
    data_format: str = "NCHW",
    padding_algorithm: str = "EXPLICIT",
    output_padding: list[int] = (),
):
    """Output = the transpose of (*) Filter applied to Input, over three spatial axes."""
    x, geo = plan(input, filter, strides, paddings, padding_algorithm, groups, dilations, data_format)
    return _forward(x, filter, geo, output_size, output_padding, data_format)


@conv3d_transpose.grad
def _(input, filter, d_output, *, strides, paddings, padding_algorithm, groups, dilations, data_format):
    x, geo = plan(input, filter, strides, paddings, padding_algorithm, groups, dilations, data_format)
    return _backward(x, filter, d_output, geo, data_format)
