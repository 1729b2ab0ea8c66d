"""Convolutions as layers: their parameters are made at once."""

from __future__ import annotations

import math
from typing import Any

from fluidjax.dygraph.layers import Layer
from fluidjax.initializer import Normal
from fluidjax.layers.utils import convert_to_list
from fluidjax.paddle.nn import convolution

__all__ = ["Conv2D", "Conv2DTranspose", "Conv3D", "Conv3DTranspose"]


class _Conv(Layer):
    """A convolution of ``rank`` axes, and its parameters."""

    _rank = 2
    _transposed = False

    def __init__(
        self,
        num_channels: int,
        num_filters: int,
        filter_size: Any,
        padding: Any = 0,
        stride: Any = 1,
        dilation: Any = 1,
        groups: int = 1,
        param_attr: Any = None,
        bias_attr: Any = None,
        use_cudnn: bool = True,
        act: str | None = None,
        data_format: str = "",
        dtype: str = "float32",
    ) -> None:
        super().__init__()
        groups = groups or 1
        if num_channels % groups:
            raise ValueError(
                f"{type(self).__name__}: {num_channels} channels in {groups} groups. Expected as many in each. Change"
                " num_channels or groups."
            )
        size = convert_to_list(filter_size, self._rank, "filter_size")
        channels = [num_channels, num_filters // groups] if self._transposed else [num_filters, num_channels // groups]
        deviation = math.sqrt(2.0 / (math.prod(size) * num_channels))
        drawn = None if self._transposed else Normal(0.0, deviation, 0)
        self.weight = self.create_parameter([*channels, *size], attr=param_attr, dtype=dtype, default_initializer=drawn)
        self.bias = self.create_parameter([num_filters], attr=bias_attr, dtype=dtype, is_bias=True)
        self._given = {"padding": padding, "stride": stride, "dilation": dilation, "groups": groups, "act": act}
        self._given["data_format"] = data_format or ("NCHW" if self._rank == 2 else "NCDHW")

    def forward(self, input: Any) -> Any:
        """The convolution of images [N, C, ...], or [N, ..., C]."""
        kind = f"conv{self._rank}d" + ("_transpose" if self._transposed else "")
        return getattr(convolution, kind)(input, self.weight, self.bias, **self._given)


class Conv2D(_Conv):
    """A convolution over height and width.

    Args:
        num_channels, num_filters: the channels of input and output.
        filter_size, padding, stride, dilation: a number, or one for each axis; ``padding`` also 'SAME' or 'VALID'.
        groups: how many parts the channels are in, each convolved by itself.
        param_attr, bias_attr: of the parameters; ``bias_attr`` False: no bias.
        use_cudnn: accepted as in Paddle.
        act: an activation's name.
        data_format: 'NCHW' or 'NHWC'.
        dtype: of the parameters.
    """


class Conv3D(_Conv):
    """A convolution over depth, height and width; arguments as for Conv2D, ``data_format`` 'NCDHW' or 'NDHWC'."""

    _rank = 3


class Conv2DTranspose(_Conv):
    """A convolution's gradient by its input, as a layer; arguments as for Conv2D."""

    _transposed = True


class Conv3DTranspose(_Conv):
    """A convolution's gradient by its input, as a layer; arguments as for Conv3D."""

    _rank, _transposed = 3, True
