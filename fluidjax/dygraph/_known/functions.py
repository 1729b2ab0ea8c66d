"""What calls may call: functions that record the same ops whenever they are given the same."""

from __future__ import annotations

import math
import types
from functools import cache
from typing import Any

from fluidjax import layers

_LAYERS = """
abs acos asin atan ceil cos elu exp erf floor gelu hard_shrink hard_sigmoid hard_swish leaky_relu log logsigmoid
reciprocal relu relu6 round rsqrt selu sigmoid sign sin soft_relu softmax softplus softshrink softsign sqrt square
stanh swish tanh tanh_shrink thresholded_relu
elementwise_add elementwise_div elementwise_max elementwise_min elementwise_mul elementwise_pow elementwise_sub
reduce_max reduce_mean reduce_min reduce_prod reduce_sum mean matmul mul pow scale clip clip_by_norm l2_normalize
sum sums concat expand expand_as flatten gather gather_nd pad pad2d reshape slice split squeeze stack strided_slice
transpose unsqueeze unstack cast one_hot topk argmax argmin argsort
zeros ones zeros_like ones_like fill_constant
pool2d adaptive_pool2d
dropout
cross_entropy softmax_with_cross_entropy square_error_cost sigmoid_cross_entropy_with_logits smooth_l1 huber_loss
log_loss label_smooth kldiv_loss mse_loss accuracy
equal not_equal less_than less_equal greater_than greater_equal logical_and logical_or logical_not logical_xor
"""

FUNCTIONS = frozenset([f for f in (getattr(layers, name, None) for name in _LAYERS.split()) if f is not None])
"""Functions of ``fluid.layers`` that record the same ops for the same arguments; what they draw differs."""

FORWARDS = {
    "fluidjax.dygraph._nn.common": ("Linear.forward", "Embedding.forward", "Dropout.forward", "PRelu.forward"),
    "fluidjax.dygraph._nn.conv": ("_Conv.forward", "Conv3DTranspose.forward", "Pool2D.forward"),
    "fluidjax.dygraph._nn.norm": (
        "BatchNorm.forward",
        "GroupNorm.forward",
        "InstanceNorm.forward",
        "LayerNorm.forward",
    ),
    "fluidjax.dygraph._nn.units": ("GRUUnit.forward",),
}
"""The forward functions of ``fluid.dygraph``'s layers of which the same is true, given what their layers hold.

They change parameters of their layers at most (the statistics of a BatchNorm).
"""

CLASSES = (int, float, bool, str, tuple, list, range, enumerate, zip, reversed, slice)
"""Classes that are called on plain values and containers."""

BUILTINS = (len, min, max, abs, round, isinstance, sum, sorted, any, all, divmod)
"""Python's own functions of which the same is true."""


def is_forward(function: Any) -> bool:
    """Whether a function is one of FORWARDS."""
    return function.__class__ is types.FunctionType and function.__qualname__ in FORWARDS.get(function.__module__, ())


@cache
def names_read(forward: Any) -> frozenset[str]:
    """The names of all attributes that one of FORWARDS may read of its layer, by itself or with ``plus_bias``."""
    return _names(forward.__code__) | {"bias", "_helper"}


def _names(code: types.CodeType) -> frozenset[str]:
    """The attributes and globals in a function, comprehensions included."""
    inner = [_names(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return frozenset(code.co_names).union(*inner)


def is_of_python(function: Any) -> bool:
    """Whether a builtin function computes a plain value from plain values."""
    return any(function is each for each in BUILTINS) or getattr(math, function.__name__, None) is function
