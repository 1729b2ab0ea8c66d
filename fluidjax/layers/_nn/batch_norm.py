"""Normalisation by batch statistics, with running averages stored in the program."""

from __future__ import annotations

from typing import Any

from fluidjax.base.enums import VarType
from fluidjax.base.errors import ArgumentError
from fluidjax.base.older import without
from fluidjax.framework import Variable
from fluidjax.initializer import Constant
from fluidjax.layer_helper import LayerHelper
from fluidjax.param_attr import ParamAttr
from fluidjax.writing.checks import FLOATS, FULL_FLOATS, check_variable_and_dtype

__all__ = ["batch_norm", "inplace_abn", "data_norm"]


def channels(input: Variable, data_layout: str, layer: str) -> int:
    """The number of channels of the input."""
    if data_layout not in ("NCHW", "NHWC"):
        raise ArgumentError(
            f"data_layout of {layer} must be 'NCHW' or 'NHWC', received {data_layout!r}. Use one of the two."
        )
    return input.shape[1 if data_layout == "NCHW" else -1]


def _running(helper: LayerHelper, name: str | None, start: float, shape: list[int], dtype: Any, averaged: bool):
    """A running statistic, updated by the op: a parameter without a gradient."""
    attr = ParamAttr(name=name, initializer=Constant(start), trainable=False, do_model_average=averaged)
    var = helper.create_parameter(attr=attr, shape=shape, dtype=dtype)
    assert var is not None  # only attr=False makes none
    var.stop_gradient = True
    return var


def _batch_norm(helper: LayerHelper, op_type: str, layer: str, in_place: bool, extra: dict[str, Any]) -> Variable:
    args = helper.kwargs
    input, act_dtype = args["input"], args["input"].dtype
    dtype = VarType.FP32 if act_dtype == VarType.FP16 else act_dtype
    shape = [channels(input, args["data_layout"], layer)]
    scale = helper.create_parameter(attr=helper.param_attr, shape=shape, dtype=dtype, default_initializer=Constant(1.0))
    bias = helper.create_parameter(attr=helper.bias_attr, shape=shape, dtype=dtype, is_bias=True)
    averaged = args["do_model_average_for_mean_and_var"]
    mean = _running(helper, args["moving_mean_name"], 0.0, shape, dtype, averaged)
    variance = _running(helper, args["moving_variance_name"], 1.0, shape, dtype, averaged)
    saved_mean = helper.create_variable_for_type_inference(dtype=dtype, stop_gradient=True)
    saved_variance = helper.create_variable_for_type_inference(dtype=dtype, stop_gradient=True)
    out = input if in_place else helper.create_variable_for_type_inference(act_dtype)
    inputs = {"X": input, "Scale": scale, "Bias": bias, "Mean": mean, "Variance": variance}
    attrs = {
        "epsilon": args["epsilon"],
        "is_test": args["is_test"],
        "data_layout": args["data_layout"],
        "use_mkldnn": False,
        "fuse_with_relu": False,
        "use_global_stats": args["use_global_stats"],
        **extra,
    }
    if isinstance(args["momentum"], Variable):
        inputs["MomentumTensor"] = args["momentum"]
    else:
        attrs["momentum"] = args["momentum"]
    outputs = {
        "Y": out,
        "MeanOut": mean,
        "VarianceOut": variance,
        "SavedMean": saved_mean,
        "SavedVariance": saved_variance,
    }
    helper.append_op(type=op_type, inputs=inputs, outputs=outputs, attrs=attrs)
    return out


@without("fluid.layers", "use_mkldnn", "fuse_with_relu")
def batch_norm(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: Any = 0.9,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    bias_attr: Any = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
) -> Variable:
    """Batch normalisation: out = act(scale (input - mean) / sqrt(variance + epsilon) + bias), statistics per channel.

    Training uses batch statistics and updates the running ones: moving = moving * momentum + batch * (1 - momentum).
    Testing (is_test, or a program cloned for test) and use_global_stats use the running statistics.

    Args:
        input: rank 2 to 5, with channels on axis 1 or (data_layout "NHWC") the last axis.
        momentum: a float, or a Variable [1] float32.
        param_attr, bias_attr: of scale [C], initially 1, and bias [C], initially 0.
        moving_mean_name, moving_variance_name: names of the running statistics, so that they can be shared or found.

    Returns:
        A Variable shaped like input. Raises ValueError for an unknown layout, AssertionError for bias_attr=False.

    Examples:
        >>> image = fluid.data("image", [None, 3, 32, 32])
        >>> y = fluid.layers.batch_norm(image, act="relu")
        >>> [p.shape for p in fluid.default_main_program().all_parameters()]
        [(3,), (3,), (3,), (3,)]
    """
    assert bias_attr is not False, "bias_attr should not be False in batch_norm. Freeze the bias instead."
    check_variable_and_dtype(input, "input", FLOATS, "batch_norm")
    helper = LayerHelper("batch_norm", **locals())
    return helper.append_activation(_batch_norm(helper, "batch_norm", "batch_norm", in_place, {}))


def inplace_abn(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: Any = 0.9,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    bias_attr: Any = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
    act_alpha: float = 1.0,
) -> Variable:
    """``batch_norm`` fused with an invertible activation, computed in place.

    Args:
        act: None, "identity", "leaky_relu" (slope act_alpha) or "elu" (scale act_alpha).
        others: as for ``batch_norm``.

    Returns:
        ``input`` itself, overwritten with the result. Raises ValueError for any other activation.
    """
    if act not in (None, "identity", "leaky_relu", "elu"):
        raise ArgumentError(
            f"inplace_abn only support act as None, 'identity', 'leaky_relu', 'elu' now, received {act!r}. Use one."
        )
    assert bias_attr is not False, "bias_attr should not be False in inplace_abn. Freeze the bias instead."
    check_variable_and_dtype(input, "input", FULL_FLOATS, "inplace_abn")
    helper = LayerHelper("inplace_abn", **locals())
    extra = {"activation": act or "", "alpha": act_alpha, "use_sync_bn": False}
    return _batch_norm(helper, "inplace_abn", "inplace_abn", True, extra)


def _data_norm_sums(helper: LayerHelper, param_attr: Any, name: str | None, shape: list[int], dtype: Any) -> list:
    starts = {"batch_size": 1e4, "batch_sum": 0.0, "batch_square": 1e4}
    if isinstance(param_attr, dict):
        starts = {key: param_attr.get(key, value) for key, value in starts.items()}
    prefix = f"{name or 'dn'}."
    suffixes = {"batch_size": "batch_size", "batch_sum": "batch_sum", "batch_square": "batch_square_sum"}
    return [
        helper.create_parameter(
            attr=ParamAttr(name=prefix + suffixes[key], initializer=Constant(value=float(value)), trainable=True),
            shape=shape,
            dtype=dtype,
        )
        for key, value in starts.items()
    ]


def data_norm(
    input: Variable,
    act: str | None = None,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    slot_dim: int = -1,
    sync_stats: bool = False,
    summary_decay_rate: float = 0.9999999,
    enable_scale_and_shift: bool = False,
) -> Variable:
    """Normalise columns by statistics accumulated over all earlier data:
    out = act((input - batch_sum / batch_size) sqrt(batch_size / batch_square_sum)).

    The sums are parameters [C] whose 'gradients' are the contributions of a batch.

    Args:
        input: [N, C], float32 or float64.
        param_attr: a dict of initial values "batch_size" (1e4), "batch_sum" (0), "batch_square" (1e4), and "scale_w",
            "bias" with enable_scale_and_shift.
        slot_dim: width of a slot whose first column is a show count; slots with a count of 0 yield zeros.

    Returns:
        A Variable shaped like input.
    """
    helper = LayerHelper("data_norm", **locals())
    check_variable_and_dtype(input, "input", FULL_FLOATS, "data_norm")
    shape, dtype = [channels(input, data_layout, "data_norm")], input.dtype
    inputs: dict[str, Any] = {"X": input}
    sums = _data_norm_sums(helper, param_attr, name, shape, dtype)
    inputs |= dict(zip(("BatchSize", "BatchSum", "BatchSquareSum"), sums, strict=True))
    if enable_scale_and_shift:
        starts = {"scale_w": 1.0, "bias": 0.0} | {
            k: v for k, v in (param_attr if isinstance(param_attr, dict) else {}).items() if k in ("scale_w", "bias")
        }
        for slot in ("scale_w", "bias"):
            attr = ParamAttr(
                name=f"{name or 'dn'}.{slot}", initializer=Constant(value=float(starts[slot])), trainable=True
            )
            inputs[slot] = helper.create_parameter(attr=attr, shape=shape, dtype=dtype)
    means = helper.create_variable(dtype=dtype, stop_gradient=True)
    scales = helper.create_variable(dtype=dtype, stop_gradient=True)
    out = input if in_place else helper.create_variable(dtype=dtype)
    attrs = {"epsilon": epsilon, "sync_stats": sync_stats, "summary_decay_rate": summary_decay_rate}
    if slot_dim > 0:
        attrs["slot_dim"] = slot_dim
    if enable_scale_and_shift:
        attrs["enable_scale_and_shift"] = enable_scale_and_shift
    outputs = {"Y": out, "Means": means, "Scales": scales}
    helper.append_op(type="data_norm", inputs=inputs, outputs=outputs, attrs=attrs)
    return helper.append_activation(out)
