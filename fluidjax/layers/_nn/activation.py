"""Activations with arguments, and the softmax family."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidjax.base.enums import to_var_type
from fluidjax.base.errors import ArgumentError
from fluidjax.base.older import without
from fluidjax.framework import Variable
from fluidjax.initializer import Constant
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers.tensor import assign
from fluidjax.writing.checks import FLOATS, FULL_FLOATS, check_type, check_variable_and_dtype
from fluidjax.writing.emit import emit

__all__ = [
    "brelu",
    "elu",
    "hard_sigmoid",
    "hard_swish",
    "leaky_relu",
    "log",
    "log1p",
    "log_softmax",
    "maxout",
    "mish",
    "pow",
    "prelu",
    "relu",
    "relu6",
    "selu",
    "sign",
    "soft_relu",
    "softmax",
    "stanh",
    "swish",
]


def _activation(op_type: str, x: Variable, name: str | None, **attrs: Any) -> Variable:
    check_variable_and_dtype(x, "x", FLOATS, op_type)
    return emit(op_type, {"X": x}, x.dtype, attrs, name=name)


def relu(x: Variable, name: str | None = None) -> Variable:
    """out = max(x, 0). Raises TypeError unless ``x`` is float16, float32 or float64.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     print(fluid.layers.relu(fluid.dygraph.to_variable(np.float32([-1, 2]))).numpy())
        [0. 2.]
    """
    return _activation("relu", x, name)


def relu6(x: Variable, threshold: float = 6.0, name: str | None = None) -> Variable:
    """out = min(max(x, 0), threshold)."""
    return _activation("relu6", x, name, threshold=threshold)


def brelu(x: Variable, t_min: float = 0.0, t_max: float = 24.0, name: str | None = None) -> Variable:
    """out = min(max(x, t_min), t_max)."""
    return _activation("brelu", x, name, t_min=t_min, t_max=t_max)


def elu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """out = max(x, 0) + min(0, alpha * (exp(x) - 1))."""
    return _activation("elu", x, name, alpha=alpha)


def selu(x: Variable, scale: float | None = None, alpha: float | None = None, name: str | None = None) -> Variable:
    """out = scale * (x if x > 0, else alpha * (exp(x) - 1)).

    ``scale`` and ``alpha`` default to the constants of the self-normalizing networks paper (1.0507, 1.6733).
    """
    check_variable_and_dtype(x, "x", FULL_FLOATS, "selu")
    given = {k: v for k, v in {"scale": scale, "alpha": alpha}.items() if v is not None}
    return _activation("selu", x, name, **given)


def leaky_relu(x: Variable, alpha: float = 0.02, name: str | None = None) -> Variable:
    """out = max(x, alpha * x)."""
    return _activation("leaky_relu", x, name, alpha=alpha)


def soft_relu(x: Variable, threshold: float = 40.0, name: str | None = None) -> Variable:
    """out = log(1 + exp(max(min(x, threshold), -threshold)))."""
    return _activation("soft_relu", x, name, threshold=threshold)


def stanh(x: Variable, scale_a: float = 0.67, scale_b: float = 1.7159, name: str | None = None) -> Variable:
    """out = scale_b * tanh(scale_a * x)."""
    return _activation("stanh", x, name, scale_a=scale_a, scale_b=scale_b)


def hard_sigmoid(x: Variable, slope: float = 0.2, offset: float = 0.5, name: str | None = None) -> Variable:
    """out = max(0, min(1, slope * x + offset))."""
    return _activation("hard_sigmoid", x, name, slope=slope, offset=offset)


def swish(x: Variable, beta: float = 1.0, name: str | None = None) -> Variable:
    """out = x / (1 + exp(-beta * x))."""
    return _activation("swish", x, name, beta=beta)


def hard_swish(
    x: Variable, threshold: float = 6.0, scale: float = 6.0, offset: float = 3.0, name: str | None = None
) -> Variable:
    """out = x * min(max(0, x + offset), threshold) / scale."""
    return _activation("hard_swish", x, name, threshold=threshold, scale=scale, offset=offset)


def mish(x: Variable, threshold: float = 20, name: str | None = None) -> Variable:
    """out = x * tanh(softplus(x)), where softplus(x) is x above ``threshold`` and exp(x) below -threshold."""
    check_variable_and_dtype(x, "x", FULL_FLOATS, "mish")
    check_type(threshold, "threshold", (float, int), "mish")
    if threshold <= 0:
        raise AssertionError(
            f"threshold of mish should be greater than 0, received {threshold}; pass a positive number"
        )
    return _activation("mish", x, name, threshold=threshold or 20)


def log(x: Variable, name: str | None = None) -> Variable:
    """out = ln(x). Raises TypeError unless ``x`` is float32 or float64.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     print(fluid.layers.log(fluid.dygraph.to_variable(np.float32([1, np.e]))).numpy())
        [0. 1.]
    """
    check_variable_and_dtype(x, "x", FULL_FLOATS, "log")
    return emit("log", {"X": x}, x.dtype, name=name)


def log1p(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """out = ln(1 + x), written to ``out`` if given."""
    check_variable_and_dtype(x, "x", FULL_FLOATS, "log1p")
    return emit("log1p", {"X": x}, x.dtype, name=name, out=out)


def pow(x: Variable, factor: float | Variable = 1.0, name: str | None = None) -> Variable:
    """out = x ** factor.

    Args:
        x: float32, float64, int32 or int64.
        factor: a number, or a Variable [1] with the dtype of x.
    """
    check_variable_and_dtype(x, "x", ("int32", "int64", "float32", "float64"), "pow")
    if isinstance(factor, Variable):
        check_variable_and_dtype(factor, "factor", ("float32",), "pow")
        factor.stop_gradient = True
        return emit("pow", {"X": x, "FactorTensor": factor}, x.dtype, name=name)
    return emit("pow", {"X": x}, x.dtype, {"factor": factor}, name=name)


def sign(x: Variable) -> Variable:
    """out = -1, 0 or 1, the sign of each element; x is a Variable or NumPy array, float16, float32 or float64."""
    x = assign(x) if isinstance(x, np.ndarray) else x
    check_variable_and_dtype(x, "x", FLOATS, "sign")
    return emit("sign", {"X": [x]}, x.dtype)


def maxout(x: Variable, groups: int, name: str | None = None, axis: int = 1) -> Variable:
    """out[:, c] = max over g of x[:, c * groups + g].

    Args:
        x: NCHW (axis 1) or NHWC (axis 3 or -1), float32 or float64.
        groups: number of channels reduced to one.
        axis: the channel dimension.

    Raises:
        ValueError: ``axis`` is not 1, -1 or 3.
    """
    check_variable_and_dtype(x, "x", FULL_FLOATS, "maxout")
    if axis not in (1, -1, 3):
        raise ArgumentError(
            f"maxout: Attr(axis) should be 1 for NCHW or -1 or 3 for NHWC, received {axis}; pass one of them"
        )
    return emit("maxout", {"X": x}, x.dtype, {"groups": groups, "axis": 3 if axis == -1 else axis}, name=name)


def prelu(x: Variable, mode: str, param_attr: Any = None, name: str | None = None) -> Variable:
    """out = x if x > 0, else alpha * x, with a learned alpha initialised to 0.25.

    Args:
        x: [N, C, ...], float32.
        mode: 'all' (a single alpha), 'channel' (one per channel) or 'element' (one per element of a sample).
        param_attr: attributes of alpha.

    Raises:
        ValueError: unknown ``mode``, or ``x`` has too few dimensions for it.
    """
    check_variable_and_dtype(x, "x", FULL_FLOATS, "prelu")
    if mode not in ("all", "channel", "element"):
        raise ArgumentError(f"mode should be one of all, channel, element, received {mode!r}; pass one of them")
    helper = LayerHelper("prelu", param_attr=param_attr, name=name)
    shape = [1]
    if mode == "channel":
        if len(x.shape) < 2:
            raise ArgumentError(
                f"prelu in mode 'channel' needs x of at least 2 dims, received {x.shape}; use mode 'all'"
            )
        shape = [1, x.shape[1], 1, 1]
    elif mode == "element":
        if len(x.shape) < 1:
            raise ArgumentError(
                f"prelu in mode 'element' needs x of at least 1 dim, received {x.shape}; use mode 'all'"
            )
        shape = [1, *x.shape[1:]]
    alpha = helper.create_parameter(
        attr=helper.param_attr, shape=shape, dtype="float32", is_bias=False, default_initializer=Constant(0.25)
    )
    out = helper.create_variable_for_type_inference(x.dtype)
    helper.append_op(type="prelu", inputs={"X": x, "Alpha": alpha}, attrs={"mode": mode}, outputs={"Out": out})
    return out


@without("fluid.layers", "param_attr", "bias_attr")
def softmax(input: Variable, use_cudnn: bool = False, name: str | None = None, axis: int = -1) -> Variable:
    """out = exp(input) / sum of exp(input) along ``axis``; float16, float32 or float64.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     x = fluid.dygraph.to_variable(np.float32([[0, 0, np.log(2)]]))
        ...     print(fluid.layers.softmax(x).numpy())
        [[0.25 0.25 0.5 ]]
    """
    check_variable_and_dtype(input, "input/x", FLOATS, "softmax")
    attrs = {"axis": axis, "use_cudnn": use_cudnn}
    return emit("softmax", {"X": input}, input.dtype, attrs, name=name)


def log_softmax(input: Variable, axis: int | None = None, dtype: Any = None, name: str | None = None) -> Variable:
    """out = log(softmax(input)) along ``axis`` (the last if None), cast to ``dtype`` first if given."""
    check_variable_and_dtype(input, "input", FLOATS, "log_softmax")
    helper = LayerHelper("log_softmax", name=name)
    if dtype is not None:
        cast = helper.create_variable_for_type_inference(dtype)
        attrs = {"in_dtype": int(input.dtype), "out_dtype": int(to_var_type(dtype))}
        helper.append_op(type="cast", inputs={"X": input}, outputs={"Out": cast}, attrs=attrs)
        input = cast
    probabilities = helper.create_variable_for_type_inference(input.dtype)
    attrs = {"axis": -1 if axis is None else axis, "use_cudnn": False}
    helper.append_op(type="softmax", inputs={"X": input}, outputs={"Out": probabilities}, attrs=attrs)
    out = helper.create_variable_for_type_inference(input.dtype)
    helper.append_op(type="log", inputs={"X": probabilities}, outputs={"Out": out})
    return out
