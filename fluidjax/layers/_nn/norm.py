"""Per-sample normalisation, and normalisation of weights."""

from __future__ import annotations

import math
from typing import Any

from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Variable
from fluidjax.initializer import Constant, Normal
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._nn.batch_norm import channels
from fluidjax.param_attr import ParamAttr
from fluidjax.writing.checks import FULL_FLOATS, check_type, check_variable_and_dtype

__all__ = [
    "instance_norm",
    "layer_norm",
    "group_norm",
    "spectral_norm",
    "lrn",
    "affine_channel",
]


def instance_norm(
    input: Variable, epsilon: float = 1e-05, param_attr: Any = None, bias_attr: Any = None, name: str | None = None
) -> Variable:
    """out = scale (input - mean) / sqrt(variance + epsilon) + bias, with statistics over each channel of each sample.

    Args:
        input: [N, C, ...], float32 or float64.
        param_attr, bias_attr: of scale [C], initially 1, and bias [C], initially 0.

    Returns:
        A Variable shaped like input.
    """
    check_variable_and_dtype(input, "input", FULL_FLOATS, "instance_norm")
    assert bias_attr is not False, "bias_attr should not be False in instance_norm. Freeze the bias instead."
    assert param_attr is not False, "param_attr should not be False in instance_norm. Freeze the scale instead."
    helper = LayerHelper("instance_norm", **locals())
    shape, dtype = [input.shape[1]], input.dtype
    scale = helper.create_parameter(attr=helper.param_attr, shape=shape, dtype=dtype, default_initializer=Constant(1.0))
    bias = helper.create_parameter(
        attr=helper.bias_attr, shape=shape, dtype=dtype, is_bias=True, default_initializer=Constant(0.0)
    )
    saved_mean = helper.create_variable_for_type_inference(dtype=dtype, stop_gradient=True)
    saved_variance = helper.create_variable_for_type_inference(dtype=dtype, stop_gradient=True)
    out = helper.create_variable_for_type_inference(dtype)
    helper.append_op(
        type="instance_norm",
        inputs={"X": input, "Scale": scale, "Bias": bias},
        outputs={"Y": out, "SavedMean": saved_mean, "SavedVariance": saved_variance},
        attrs={"epsilon": epsilon},
    )
    return out


def layer_norm(
    input: Variable,
    scale: bool = True,
    shift: bool = True,
    begin_norm_axis: int = 1,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """out = act(g (input - mean) / sqrt(variance + epsilon) + b), with statistics over axes begin_norm_axis onward.

    Args:
        input: rank 2 or more, float32 or float64.
        scale, shift: whether to learn g, initially 1, and b, initially 0, each [product of the normalised dimensions].

    Returns:
        A Variable shaped like input.
    """
    check_variable_and_dtype(input, "input", FULL_FLOATS, "layer_norm")
    helper = LayerHelper("layer_norm", **locals())
    dtype, inputs = input.dtype, dict[str, Any](X=input)
    if begin_norm_axis >= len(input.shape):
        raise TypeError(
            f"layer_norm: begin_norm_axis is {begin_norm_axis}, and the input has {len(input.shape)} axes. Expected the"
            " number of one of them. Pass a smaller one."
        )
    shape = [math.prod(input.shape[begin_norm_axis:])]
    if scale:
        assert param_attr is not False, "param_attr should not be False when using scale. Pass scale=False instead."
        inputs["Scale"] = helper.create_parameter(
            attr=helper.param_attr, shape=shape, dtype=dtype, default_initializer=Constant(1.0)
        )
    if shift:
        assert bias_attr is not False, "bias_attr should not be False when using shift. Pass shift=False instead."
        inputs["Bias"] = helper.create_parameter(attr=helper.bias_attr, shape=shape, dtype=dtype, is_bias=True)
    mean = helper.create_variable_for_type_inference(dtype=dtype, stop_gradient=True)
    variance = helper.create_variable_for_type_inference(dtype=dtype, stop_gradient=True)
    out = helper.create_variable_for_type_inference(dtype)
    helper.append_op(
        type="layer_norm",
        inputs=inputs,
        outputs={"Y": out, "Mean": mean, "Variance": variance},
        attrs={"epsilon": epsilon, "begin_norm_axis": begin_norm_axis},
    )
    return helper.append_activation(out)


def group_norm(
    input: Variable,
    groups: int,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """out = act(scale (input - mean) / sqrt(variance + epsilon) + bias), with statistics over groups of channels.

    Args:
        input: [N, C, ...] or (data_layout "NHWC") [N, ..., C].
        groups: number of groups; must divide C.
        param_attr, bias_attr: of scale [C] and bias [C]; as in Fluid 1.8, each exists only if its attribute is given.

    Returns:
        A Variable shaped like input. Raises ValueError for an unknown layout.
    """
    helper = LayerHelper("group_norm", **locals())
    check_variable_and_dtype(input, "input", FULL_FLOATS, "group_norm")
    dtype, inputs = input.dtype, dict[str, Any](X=input)
    shape = [channels(input, data_layout, "group_norm")]
    if param_attr:
        inputs["Scale"] = helper.create_parameter(
            attr=helper.param_attr, shape=shape, dtype=dtype, default_initializer=Constant(1.0)
        )
    if bias_attr:
        inputs["Bias"] = helper.create_parameter(attr=helper.bias_attr, shape=shape, dtype=dtype, is_bias=True)
    mean = helper.create_variable(dtype=dtype, stop_gradient=True)
    variance = helper.create_variable(dtype=dtype, stop_gradient=True)
    out = helper.create_variable(dtype=dtype)
    helper.append_op(
        type="group_norm",
        inputs=inputs,
        outputs={"Y": out, "Mean": mean, "Variance": variance},
        attrs={"epsilon": epsilon, "groups": groups, "data_layout": data_layout},
    )
    return helper.append_activation(out)


def spectral_norm(
    weight: Variable, dim: int = 0, power_iters: int = 1, eps: float = 1e-12, name: str | None = None
) -> Variable:
    """out = weight / sigma, where sigma is the largest singular value of weight, estimated by power iteration.

    Args:
        weight: rank 2 to 5, reshaped to a matrix whose rows are axis ``dim`` (0, or 1 for transposed convolutions).
        power_iters: number of iterations from u [rows] and v [columns], fixed parameters drawn from Normal(0, 1).

    Returns:
        A Variable shaped like weight.
    """
    helper = LayerHelper("spectral_norm", **locals())
    check_variable_and_dtype(weight, "weight", FULL_FLOATS, "spectral_norm")
    check_type(dim, "dim", int, "spectral_norm")
    check_type(power_iters, "power_iters", int, "spectral_norm")
    check_type(eps, "eps", float, "spectral_norm")
    rows = weight.shape[dim]
    vectors = []
    for size in (rows, math.prod(weight.shape) // rows):
        vector = helper.create_parameter(
            attr=ParamAttr(), shape=[size], dtype=weight.dtype, default_initializer=Normal(0.0, 1.0)
        )
        assert vector is not None
        vector.stop_gradient = True
        vectors.append(vector)
    out = helper.create_variable(dtype=weight.dtype)
    helper.append_op(
        type="spectral_norm",
        inputs={"Weight": weight, "U": vectors[0], "V": vectors[1]},
        outputs={"Out": out},
        attrs={"dim": dim, "power_iters": power_iters, "eps": eps},
    )
    return out


def lrn(
    input: Variable,
    n: int = 5,
    k: float = 1.0,
    alpha: float = 0.0001,
    beta: float = 0.75,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Local response normalisation: out = input / (k + alpha * sum of input^2 over n neighbouring channels) ^ beta.

    Args:
        input: [N, C, H, W] (or NHWC), float32.
        n: window size; must be odd.

    Returns:
        A Variable shaped like input. Raises ValueError unless the rank is 4 and the format is one of the two.
    """
    helper = LayerHelper("lrn", **locals())
    check_variable_and_dtype(input, "input", ["float32"], "lrn")
    if len(input.shape) != 4:
        raise ArgumentError(f"Input's dimension size of lrn must be 4, received {len(input.shape)}. Reshape it.")
    if data_format not in ("NCHW", "NHWC"):
        raise ArgumentError(
            f"data_format of lrn must be 'NCHW' or 'NHWC', received {data_format!r}. Use one of the two."
        )
    mid = helper.create_variable_for_type_inference(dtype=input.dtype, stop_gradient=True)
    out = helper.create_variable_for_type_inference(input.dtype)
    helper.append_op(
        type="lrn",
        inputs={"X": input},
        outputs={"Out": out, "MidOut": mid},
        attrs={"n": n, "k": k, "alpha": alpha, "beta": beta, "data_format": data_format},
    )
    return out


def affine_channel(
    x: Variable,
    scale: Variable | None = None,
    bias: Variable | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    act: str | None = None,
) -> Variable:
    """out = act(scale[c] x + bias[c]) with Variables scale and bias [C]: batch_norm with fixed statistics."""
    helper = LayerHelper("affine_channel", **locals())
    check_variable_and_dtype(x, "x", FULL_FLOATS, "affine_channel")
    check_type(scale, "scale", (Variable, type(None)), "affine_channel")
    check_type(bias, "bias", (Variable, type(None)), "affine_channel")
    out = helper.create_variable_for_type_inference(dtype=x.dtype)
    helper.append_op(
        type="affine_channel",
        inputs={"X": x, "Scale": scale, "Bias": bias},
        outputs={"Out": out},
        attrs={"data_layout": data_layout},
    )
    return helper.append_activation(out)
