"""Normalisation layers."""

from __future__ import annotations

import logging
import math
from typing import Any

from fluidjax.base.enums import VarType, to_var_type
from fluidjax.base.errors import explain
from fluidjax.base.mode import current_tracer, follows_training
from fluidjax.dygraph._nn.common import check_variable, require
from fluidjax.dygraph._nn.kept import Kept
from fluidjax.dygraph._nn.named import named, of_sizes
from fluidjax.dygraph.layers import Layer
from fluidjax.framework import Variable
from fluidjax.initializer import Constant, Normal
from fluidjax.param_attr import ParamAttr
from fluidjax.writing.checks import FLOATS, FULL_FLOATS


def _stopped(parameter: Any) -> Any:
    parameter.stop_gradient = True
    return parameter


@named(
    "num_channels act is_test momentum epsilon param_attr bias_attr dtype data_layout in_place moving_mean_name "
    "moving_variance_name do_model_average_for_mean_and_var use_global_stats trainable_statistics"
)
class BatchNorm(Layer):
    """Batch normalisation: act((x - mean) / sqrt(variance + epsilon) * weight + bias), per channel.

    While ``training``, batch statistics are used and the moving ones updated: momentum * old + (1 - momentum) * batch.
    Otherwise the moving statistics are used.

    Args:
        num_channels: number of channels.
        act: activation of the result.
        is_test: in static mode only: use the moving statistics.
        momentum: of the moving statistics.
        epsilon: added to the variance.
        param_attr, bias_attr: attributes of ``weight`` and ``bias`` [num_channels].
        dtype: of the parameters; float32 for float16.
        data_layout: "NCHW" or "NHWC".
        in_place: in static mode only: overwrite the input with the result.
        moving_mean_name, moving_variance_name: names of ``_mean`` and ``_variance``.
        do_model_average_for_mean_and_var: whether ModelAverage includes them.
        use_global_stats: use the moving statistics in training too; requires ``param_attr``.
        trainable_statistics: whether gradients flow through batch statistics in evaluation.

    Raises AssertionError for ``bias_attr=False``, AttributeError for use_global_stats without a ParamAttr.
    """

    _momentum = Kept("momentum")
    _epsilon = Kept("epsilon")
    _data_layout = Kept("data_layout")
    _use_global_stats = Kept("use_global_stats")
    _trainable_statistics = Kept("trainable_statistics")

    def __init__(
        self,
        num_channels: int,
        act: str | None = None,
        is_test: bool = False,
        momentum: float = 0.9,
        epsilon: float = 1e-05,
        param_attr: Any = None,
        bias_attr: Any = None,
        dtype: Any = "float32",
        data_layout: str = "NCHW",
        in_place: bool = False,
        moving_mean_name: str | None = None,
        moving_variance_name: str | None = None,
        do_model_average_for_mean_and_var: bool = True,
        use_global_stats: bool = False,
        trainable_statistics: bool = False,
    ) -> None:
        super().__init__()
        self._helper.direct = True
        require(bias_attr is not False, "bias_attr should not be False in batch_norm.")
        if param_attr is False:
            raise AttributeError("param_attr should not be False in batch_norm. Leave it out, or set trainable=False.")
        self._param_attr, self._bias_attr = param_attr, bias_attr
        self._act = act
        self._is_test = is_test
        self._in_place = in_place
        self._dtype = VarType.FP32 if to_var_type(dtype) == VarType.FP16 else dtype
        shape = [num_channels]
        one, zero = Constant(1.0), Constant(0.0)
        self.weight = self.create_parameter(shape, param_attr, self._dtype, default_initializer=one)
        self.bias = self.create_parameter(shape, bias_attr, self._dtype, is_bias=True)
        if use_global_stats and not isinstance(param_attr, ParamAttr):
            raise AttributeError(
                f"BatchNorm: use_global_stats asks param_attr for its learning_rate, and param_attr is {param_attr!r}. "
                "Pass a ParamAttr."
            )
        frozen = use_global_stats and param_attr.learning_rate == 0.0
        self.weight.stop_gradient = frozen
        self.bias.stop_gradient = frozen
        averaged = {"trainable": False, "do_model_average": do_model_average_for_mean_and_var}
        mean = ParamAttr(moving_mean_name, zero, **averaged)
        variance = ParamAttr(moving_variance_name, one, **averaged)
        self._mean = _stopped(self.create_parameter(shape, mean, self._dtype))
        self._variance = _stopped(self.create_parameter(shape, variance, self._dtype))
        self._momentum, self._epsilon, self._data_layout = momentum, epsilon, data_layout
        self._use_global_stats, self._trainable_statistics = use_global_stats, trainable_statistics
        self._fuse_with_relu = False  # of MKL-DNN; scripts that call the op themselves pass it on

    def forward(self, input: Variable) -> Variable:
        """A Variable shaped like the input, [N, C, ...] (or [N, ..., C])."""
        check_variable(self, "input", input, FLOATS)
        helper, eager = self._helper, follows_training()
        fresh = helper.create_variable_for_type_inference
        out = fresh(input.dtype) if current_tracer() is not None else None  # named first there, and last in programs
        mean, variance = fresh(self._dtype, True), fresh(self._dtype, True)
        if out is None:
            out = input if self._in_place and not eager else fresh(input.dtype)
        helper.append_op(
            type="batch_norm",
            inputs={
                "X": [input], "Scale": [self.weight], "Bias": [self.bias],
                "Mean": [self._mean], "Variance": [self._variance],
            },
            outputs={
                "Y": [out], "MeanOut": [self._mean], "VarianceOut": [self._variance],
                "SavedMean": [mean], "SavedVariance": [variance],
            },
            attrs={**self._attrs, "is_test": not self.training if eager else self._is_test},
        )  # fmt: skip
        return helper.append_activation(out, self._act)


class InstanceNorm(Layer):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, with statistics over each channel of each image.

    Args:
        num_channels: number of channels.
        epsilon: added to the variance.
        param_attr, bias_attr: attributes of ``scale`` and ``bias`` [num_channels].
        dtype: of the parameters.

    Raises AssertionError for ``bias_attr=False``.
    """

    def __init__(
        self,
        num_channels: int,
        epsilon: float = 1e-05,
        param_attr: Any = None,
        bias_attr: Any = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        require(bias_attr is not False, "bias_attr should not be False in InstanceNorm.")
        self._param_attr, self._bias_attr = param_attr, bias_attr
        self._epsilon = epsilon
        self._dtype = dtype
        self.scale = self.create_parameter([num_channels], param_attr, dtype, default_initializer=Constant(1.0))
        self.bias = self.create_parameter([num_channels], bias_attr, dtype, is_bias=True)

    def forward(self, input: Variable) -> Variable:
        """A Variable shaped like the input, [N, C, ...]."""
        check_variable(self, "input", input, FULL_FLOATS)
        inputs = {"X": input, "Scale": self.scale, "Bias": self.bias}
        return self._helper.run(
            "instance_norm", inputs, {"epsilon": self._epsilon}, "Y", ("SavedMean", "SavedVariance", "Y")
        )


@named(
    "scale shift begin_norm_axis epsilon param_attr bias_attr act",
    of_sizes(normalized_shape=lambda given, inputs: list(inputs[0].shape[given.pop("begin_norm_axis", 1) :])),
)
class LayerNorm(Layer):
    """act((x - mean) / sqrt(variance + epsilon) * weight + bias), with statistics over the trailing axes.

    Args:
        normalized_shape: sizes of the trailing axes; an int for a single one.
        scale, shift: whether to have ``weight`` and ``bias``, both 1-D with one entry per normalised element.
        epsilon: added to the variance.
        param_attr, bias_attr: attributes of the two.
        act: activation of the result.
        dtype: of the parameters.
    """

    def __init__(
        self,
        normalized_shape: Any,
        scale: bool = True,
        shift: bool = True,
        epsilon: float = 1e-05,
        param_attr: Any = None,
        bias_attr: Any = None,
        act: str | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        self._param_attr, self._bias_attr = param_attr, bias_attr
        self._scale, self._shift = scale, shift
        self._normalized_shape = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
        self._epsilon = epsilon
        self._act = act
        self._dtype = dtype
        shape = [math.prod(self._normalized_shape)]
        self.weight = self.bias = None
        if scale:
            self.weight = self.create_parameter(shape, param_attr, dtype, default_initializer=Constant(1.0))
        elif param_attr:
            logging.warning("param_attr are only available with scale is True")
        if shift:
            self.bias = self.create_parameter(shape, bias_attr, dtype, is_bias=True)
        elif bias_attr:
            logging.warning("bias_attr are only available with shift is True")

    def forward(self, input: Variable) -> Variable:
        """A Variable shaped like the input. Raises ValueError unless its trailing axes are ``normalized_shape``."""
        check_variable(self, "input", input, FULL_FLOATS)
        normalized, shape = self._normalized_shape, list(input.shape)
        begin = len(shape) - len(normalized)
        if begin < 0 or shape[begin:] != normalized:
            raise ValueError(
                explain(
                    f"{self.full_name()}: the input does not end in normalized_shape",
                    f"an input with shape [*, {', '.join(map(str, normalized))}]",
                    f"an input of shape {shape}",
                    "pass the sizes of the last axes as normalized_shape",
                )
            )
        inputs = {"X": input, "Scale": self.weight, "Bias": self.bias}
        attrs = {"epsilon": self._epsilon, "begin_norm_axis": begin}
        out = self._helper.run("layer_norm", inputs, attrs, "Y", ("Mean", "Variance", "Y"))
        return self._helper.append_activation(out, self._act)


@named(
    "groups epsilon param_attr bias_attr act data_layout",
    of_sizes(channels=lambda given, inputs: inputs[0].shape[1]),
)
class GroupNorm(Layer):
    """act((x - mean) / sqrt(variance + epsilon) * weight + bias), with statistics over groups of channels.

    As in Fluid 1.8, ``weight`` and ``bias`` [channels] exist only if their attributes are given.

    Args:
        channels: number of channels.
        groups: number of groups.
        epsilon: added to the variance.
        param_attr, bias_attr: attributes of ``weight`` and ``bias``.
        act: activation of the result.
        data_layout: "NCHW".
        dtype: of the parameters.

    Raises ValueError for any other layout.
    """

    _epsilon = Kept("epsilon")
    _groups = Kept("groups")

    def __init__(
        self,
        channels: int,
        groups: int,
        epsilon: float = 1e-05,
        param_attr: Any = None,
        bias_attr: Any = None,
        act: str | None = None,
        data_layout: str = "NCHW",
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        self._param_attr, self._bias_attr = param_attr, bias_attr
        if data_layout != "NCHW":
            raise ValueError(f"GroupNorm: unsupported data layout:{data_layout}. Transpose to NCHW.")
        self._act = act
        self._dtype = dtype
        self._channels, self._epsilon, self._groups = channels, epsilon, groups
        self.weight = self.bias = None
        if param_attr:
            self.weight = self.create_parameter([channels], param_attr, dtype, default_initializer=Constant(1.0))
        if bias_attr:
            self.bias = self.create_parameter([channels], bias_attr, dtype, is_bias=True)

    def forward(self, input: Variable) -> Variable:
        """A Variable shaped like the input, [N, channels, ...]."""
        check_variable(self, "input", input)
        inputs = {"X": input, "Scale": self.weight, "Bias": self.bias}
        out = self._helper.run("group_norm", inputs, self._attrs, "Y", ("Mean", "Variance", "Y"))
        return self._helper.append_activation(out, self._act)


@named("dim power_iters eps", of_sizes(weight_shape=lambda given, inputs: list(inputs[0].shape)))
class SpectralNorm(Layer):
    """A weight divided by its largest singular value, estimated by power iteration on ``weight_u`` and ``weight_v``.

    Args:
        weight_shape: shape of the weight.
        dim: the axis that indexes the rows of the matrix: 0 for Linear, 1 for convolutions.
        power_iters: number of iterations.
        eps: avoids division by zero.
        dtype: of the weight.
    """

    _dim = Kept("dim")
    _power_iters = Kept("power_iters")
    _eps = Kept("eps")

    def __init__(
        self, weight_shape: Any, dim: int = 0, power_iters: int = 1, eps: float = 1e-12, dtype: Any = "float32"
    ) -> None:
        super().__init__()
        self._dtype = dtype
        self._weight_shape, self._dim, self._power_iters, self._eps = weight_shape, dim, power_iters, eps
        rows = weight_shape[dim]
        start = Normal(0.0, 1.0)
        self.weight_u = _stopped(self.create_parameter([rows], None, dtype, default_initializer=start))
        columns = math.prod(weight_shape) // rows
        self.weight_v = _stopped(self.create_parameter([columns], None, dtype, default_initializer=start))

    def forward(self, weight: Variable) -> Variable:
        """A Variable shaped like the weight."""
        check_variable(self, "weight", weight, FULL_FLOATS)
        return self._helper.run(
            "spectral_norm", {"Weight": weight, "U": self.weight_u, "V": self.weight_v}, self._attrs
        )
