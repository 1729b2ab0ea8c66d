"""Convolutions, their transposes, and pooling."""

from __future__ import annotations

from typing import Any

from fluidjax.dygraph._nn.common import check_flag, check_variable, plus_bias, require
from fluidjax.dygraph._nn.kept import Kept
from fluidjax.dygraph._nn.named import named, of_channels
from fluidjax.dygraph.layers import Layer
from fluidjax.framework import Variable
from fluidjax.layers._nn.conv import filter_initializer, is_depthwise
from fluidjax.layers.utils import convert_to_list
from fluidjax.writing.checks import FLOATS


class _Conv(Layer):
    """A convolution over ``_axes`` spatial axes, or its transpose."""

    _axes = 2
    _op_type = ""
    _dtypes: tuple[str, ...] = FLOATS  # those that are taken in a program; any if it is empty
    _stride = Kept("strides")
    _padding = Kept("paddings")
    _dilation = Kept("dilations")
    _groups = Kept("groups", lambda groups: groups or 1)
    _use_cudnn = Kept("use_cudnn")

    def forward(self, input: Variable) -> Variable:
        """[N, num_filters, *output sizes] of an input [N, num_channels, *sizes]."""
        check_variable(self, "input", input, self._dtypes)
        out = self._helper.run(self._op_type, {"Input": input, "Filter": self.weight}, self._attrs, "Output")
        return self._helper.append_activation(plus_bias(self, out, 1), self._act)

    def _sizes(self, **given: Any) -> list[list[int]]:
        return [convert_to_list(value, self._axes, name) for name, value in given.items()]

    def _build(
        self, num_channels: int, num_filters: int, filter_size: Any, groups: int, act: str | None, dtype: Any
    ) -> None:
        self._num_channels = num_channels
        self._num_filters = num_filters
        self._filter_size = filter_size
        self._groups = groups
        self._act = act
        self._dtype = dtype

    def _slide(self, stride: Any, padding: Any, dilation: Any, use_cudnn: bool) -> None:
        self._stride, self._padding, self._dilation = self._sizes(stride=stride, padding=padding, dilation=dilation)
        self._use_cudnn = bool(use_cudnn)


class _Convolution(_Conv):
    """A convolution with filters [num_filters, num_channels / groups, *filter_size].

    Args:
        num_channels: channels of the input.
        num_filters: channels of the output.
        filter_size, stride, padding, dilation: an int, or one per spatial axis.
        groups: number of channel groups; 1 if None.
        param_attr: attributes of ``weight``, initially Normal(0, sqrt(2 / (filter elements * num_channels))).
        bias_attr: attributes of ``bias`` [num_filters]; False for none.
        use_cudnn: recorded in the op.
        act: activation of the result.
        dtype: of the parameters.

    Raises AssertionError for ``param_attr=False``, ValueError for incompatible sizes.
    """

    def __init__(
        self,
        num_channels: int,
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
        dtype: Any = "float32",
    ) -> None:
        require(param_attr is not False, "param_attr should not be False here: a convolution needs its filter.")
        super().__init__()
        self._param_attr, self._bias_attr = param_attr, bias_attr
        self._build(num_channels, num_filters, filter_size, groups, act, dtype)  # type: ignore[arg-type]
        self._slide(stride, padding, dilation, use_cudnn)
        self._choose_op(use_cudnn)
        if groups == 0 or num_channels % (groups or 1):
            raise ValueError(
                f"{self.full_name()}: num_channels must be divisible by groups, and they are {num_channels} and "
                f"{groups}. Choose groups that divides both."
            )
        (size,) = self._sizes(filter_size=filter_size)
        self.weight = self.create_parameter(
            [num_filters, num_channels // (groups or 1), *size],
            param_attr,
            dtype,
            default_initializer=filter_initializer(size, num_channels),
        )
        self.bias = self.create_parameter([num_filters], bias_attr, dtype, is_bias=True)

    def _choose_op(self, use_cudnn: Any) -> None:
        """Select the op that suits the sizes known."""


@named("num_filters filter_size stride padding dilation groups param_attr bias_attr use_cudnn act dtype", of_channels)
class Conv2D(_Convolution):
    __doc__ = f"""{_Convolution.__doc__}
    Examples:
        >>> with fluid.dygraph.guard():
        ...     conv = fluid.dygraph.Conv2D(num_channels=3, num_filters=4, filter_size=3, padding=1)
        ...     print(conv(fluid.layers.ones([2, 3, 8, 8], "float32")).shape)
        [2, 4, 8, 8]
    """
    _op_type = "conv2d"

    @property
    def _l_type(self) -> str:
        """The type of the op, under Fluid's name for it."""
        return self._op_type

    @_l_type.setter
    def _l_type(self, op_type: str) -> None:
        self._op_type = self.__dict__["_l_type"] = op_type

    def _choose_op(self, use_cudnn: Any) -> None:
        check_flag("use_cudnn", use_cudnn)
        depthwise = is_depthwise(self._num_channels, self._groups, self._num_filters, self._use_cudnn)
        self._l_type = "depthwise_conv2d" if depthwise else "conv2d"


@named("num_filters filter_size stride padding dilation groups param_attr bias_attr use_cudnn act", of_channels)
class Conv3D(_Convolution):
    __doc__ = _Convolution.__doc__
    _axes = 3
    _op_type = "conv3d"
    _dtypes = ()


def _transposed_filter_size(layer: Layer, filter_size: Any) -> Any:
    if filter_size is None:
        raise ValueError(
            f"{layer.full_name()}: filter_size's type must be an int, list or tuple. Received: None. Give the size: an "
            "eager layer cannot tell it from output_size, since it does not know its input yet."
        )
    return filter_size


def _of_transposed(given: dict[str, Any], inputs: tuple[Any, ...]) -> dict[str, Any]:
    """The channels of the first input; from its sizes, and those that the output is to have, those of the filter."""
    if given.get("filter_size") is None and given.get("output_size") is not None:
        names = {"output_size": None, "stride": 1, "padding": 0, "dilation": 1}
        wanted, stride, padding, dilation = (convert_to_list(given.get(n, v), 2, n) for n, v in names.items())
        sizes = zip(wanted, inputs[0].shape[2:], stride, padding, dilation, strict=True)
        given = given | {"filter_size": [(out - (n - 1) * s + 2 * p - 1) // d + 1 for out, n, s, p, d in sizes]}
    return of_channels({"filter_size": None, **given}, inputs)


_TRANSPOSED = "num_filters output_size filter_size padding stride dilation groups param_attr bias_attr use_cudnn act"


@named(_TRANSPOSED, _of_transposed)
class Conv2DTranspose(_Conv):
    """The transpose (gradient) of a convolution, with filters [num_channels, num_filters / groups, *filter_size].

    Args:
        num_channels: channels of the input.
        num_filters: channels of the output.
        filter_size, padding, stride, dilation: an int, or one per spatial axis.
        output_size: the output size, where the stride leaves it ambiguous.
        groups: number of channel groups; 1 if None.
        param_attr: attributes of ``weight``.
        bias_attr: attributes of ``bias`` [num_filters]; False for none.
        use_cudnn: recorded in the op.
        act: activation of the result.
        dtype: of the parameters.

    Raises AssertionError for ``param_attr=False``, ValueError for incompatible sizes.
    """

    _op_type = "conv2d_transpose"
    _output_size = Kept("output_size")

    def __init__(
        self,
        num_channels: int,
        num_filters: int,
        filter_size: Any,
        output_size: Any = None,
        padding: Any = 0,
        stride: Any = 1,
        dilation: Any = 1,
        groups: int | None = None,
        param_attr: Any = None,
        bias_attr: Any = None,
        use_cudnn: bool = True,
        act: str | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        require(param_attr is not False, "param_attr should not be False in conv2d_transpose: it needs its filter.")
        self._param_attr, self._bias_attr = param_attr, bias_attr
        groups = groups or 1
        self._build(num_channels, num_filters, filter_size, groups, act, dtype)
        self._output_size = self._output_sizes(output_size)
        self._slide(stride, padding, dilation, use_cudnn)
        depthwise = num_channels == groups == num_filters and not use_cudnn
        self._op_type = "depthwise_conv2d_transpose" if depthwise else "conv2d_transpose"
        self._filter_size = size = self._sizes(filter_size=_transposed_filter_size(self, filter_size))[0]
        self.weight = self.create_parameter([num_channels, num_filters // groups, *size], param_attr, dtype)
        self.bias = self.create_parameter([num_filters], bias_attr, dtype, is_bias=True)

    def _output_sizes(self, output_size: Any) -> list[int]:
        if output_size is None:
            return []
        if not isinstance(output_size, (int, list, tuple)):
            raise ValueError(f"{self.full_name()}: output_size should be list or int, and it is {output_size!r}.")
        return convert_to_list(output_size, 2, "output_size") if output_size else []


class Conv3DTranspose(_Conv):
    """The transpose (gradient) of a 3-D convolution, with filters [num_channels, num_filters / groups,
    *filter_size].

    As in Fluid 1.8, the bias is created unless ``bias_attr`` is False, but only added if ``bias_attr`` is given.

    Args:
        num_channels: channels of the input.
        num_filters: channels of the output.
        filter_size, padding, stride, dilation: an int, or one per spatial axis.
        groups: number of channel groups; 1 if None.
        param_attr: attributes of ``weight``.
        bias_attr: attributes of ``bias`` [num_filters]; False for none.
        use_cudnn: recorded in the op.
        act: activation of the result.
        dtype: of the parameters.

    Raises AssertionError for ``param_attr=False``, ValueError for incompatible sizes.
    """

    _axes = 3
    _op_type = "conv3d_transpose"
    _dtypes = ()

    def __init__(
        self,
        num_channels: int,
        num_filters: int,
        filter_size: Any,
        padding: Any = 0,
        stride: Any = 1,
        dilation: Any = 1,
        groups: int | None = None,
        param_attr: Any = None,
        bias_attr: Any = None,
        use_cudnn: bool = True,
        act: str | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        require(param_attr is not False, "param_attr should not be False in conv3d_transpose: it needs its filter.")
        check_flag("use_cudnn", use_cudnn)
        groups = groups or 1
        self._build(num_channels, num_filters, filter_size, groups, act, dtype)
        self._param_attr, self._bias_attr = param_attr, bias_attr
        self._slide(stride, padding, dilation, use_cudnn)
        self._filter_size = size = self._sizes(filter_size=_transposed_filter_size(self, filter_size))[0]
        self.weight = self.create_parameter([num_channels, num_filters // groups, *size], param_attr, dtype)
        self.bias = self.create_parameter([num_filters], bias_attr, dtype, is_bias=True)

    def forward(self, input: Variable) -> Variable:
        """[N, num_filters, D', H', W'] of an input [N, num_channels, D, H, W]."""
        check_variable(self, "input", input, self._dtypes)
        out = self._helper.run(self._op_type, {"Input": input, "Filter": self.weight}, self._attrs, "Output")
        if self._bias_attr:
            out = plus_bias(self, out, 1)
        return self._helper.append_activation(out, self._act)


@named("pool_size pool_type pool_stride pool_padding global_pooling use_cudnn ceil_mode exclusive")
class Pool2D(Layer):
    """Max or average pooling of an image [N, C, H, W].

    Args:
        pool_size, pool_stride, pool_padding: an int, or (height, width).
        pool_type: "max" or "avg".
        global_pooling: pool over the whole image.
        use_cudnn: recorded in the op.
        ceil_mode: round the output size up, so that a partial last window counts.
        exclusive: exclude padding from averages.

    Raises ValueError for invalid arguments.
    """

    _pool_type = Kept("pooling_type")
    _pool_size = Kept("ksize")
    _pool_stride = Kept("strides")
    _pool_padding = Kept("paddings")
    _global_pooling = Kept("global_pooling")
    _use_cudnn = Kept("use_cudnn")
    _ceil_mode = Kept("ceil_mode")
    _exclusive = Kept("exclusive")

    def __init__(
        self,
        pool_size: Any = -1,
        pool_type: str = "max",
        pool_stride: Any = 1,
        pool_padding: Any = 0,
        global_pooling: bool = False,
        use_cudnn: bool = True,
        ceil_mode: bool = False,
        exclusive: bool = True,
    ) -> None:
        if pool_type not in ("max", "avg"):
            raise ValueError(f"Unknown pool_type: '{pool_type}'. It can only be 'max' or 'avg'.")
        if global_pooling is False and pool_size == -1:
            raise ValueError(
                "When the global_pooling is False, pool_size must be passed and be a valid value. Received pool_size: "
                f"{pool_size}"
            )
        check_flag("use_cudnn", use_cudnn)
        super().__init__()
        self._l_type, self._pool_type, self._global_pooling = "pool2d", pool_type, global_pooling
        self._pool_size = convert_to_list(pool_size, 2, "pool_size")
        self._pool_stride = convert_to_list(pool_stride, 2, "pool_stride")
        self._pool_padding = convert_to_list(pool_padding, 2, "pool_padding")
        self._use_cudnn, self._ceil_mode, self._exclusive = use_cudnn, bool(ceil_mode), bool(exclusive)

    def forward(self, input: Variable) -> Variable:
        """[N, C, H', W']."""
        check_variable(self, "input", input, ("int8", "uint8", *FLOATS))
        return self._helper.run(self._l_type, {"X": input}, self._attrs)
