"""Functions of one argument: activations and elementary functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluidjax.base.unknown import unknown_name
from fluidjax.framework import Variable
from fluidjax.writing.checks import FLOATS, INTS, check_dtype, check_type, check_variable_and_dtype, only
from fluidjax.writing.emit import emit, emit_again

_OUT: tuple[str, ...] = ("Out",)
_NONE: dict[str, Any] = {}
_INTEGERS_TOO = {"abs": INTS, "exp": INTS, "square": INTS}

__all__ = [
    "sigmoid",
    "logsigmoid",
    "exp",
    "tanh",
    "atan",
    "tanh_shrink",
    "sqrt",
    "rsqrt",
    "abs",
    "ceil",
    "floor",
    "cos",
    "acos",
    "sin",
    "asin",
    "round",
    "reciprocal",
    "square",
    "softplus",
    "softsign",
    "softshrink",
    "hard_shrink",
    "cumsum",
    "thresholded_relu",
    "gelu",
    "erf",
]


def _elementary(op_type: str, formula: str, given: str, result: str) -> Callable[..., Variable]:
    def function(x: Variable, name: str | None = None) -> Variable:
        known = emit_again(op_type, {"X": x}, _OUT, _NONE, name=name)
        if known is not None:
            return known[0]
        check_variable_and_dtype(x, "x", (*FLOATS, *_INTEGERS_TOO.get(op_type, ())), op_type)
        return emit(op_type, {"X": x}, x.dtype, name=name)

    function.__name__ = function.__qualname__ = op_type
    function.__doc__ = f"""Elementwise out = {formula}.

    Args:
        x: a tensor of any shape, float16, float32 or float64.
        name: the layer's name.

    Returns:
            A Variable like ``x``.

    Raises:
            TypeError: ``x`` is not a Variable, or has an unsupported dtype.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     x = fluid.dygraph.to_variable(np.float32({given}))
        ...     print(fluid.layers.{op_type}(x).numpy().round(3))
        {result}
    """
    return function


sigmoid = _elementary("sigmoid", "1 / (1 + exp(-x))", "[0, 1]", "[0.5   0.731]")
logsigmoid = _elementary("logsigmoid", "log(1 / (1 + exp(-x)))", "[0, 1]", "[-0.693 -0.313]")
exp = _elementary("exp", "e ** x", "[0, 1]", "[1.    2.718]")
tanh = _elementary("tanh", "tanh(x)", "[0, 1]", "[0.    0.762]")
atan = _elementary("atan", "the arc tangent of x", "[0, 1]", "[0.    0.785]")
tanh_shrink = _elementary("tanh_shrink", "x - tanh(x)", "[0, 1]", "[0.    0.238]")
sqrt = _elementary("sqrt", "the square root of x", "[1, 4]", "[1. 2.]")
rsqrt = _elementary("rsqrt", "1 / sqrt(x)", "[1, 4]", "[1.  0.5]")
abs = _elementary("abs", "|x|", "[-1, 2]", "[1. 2.]")
ceil = _elementary("ceil", "the smallest integer >= x", "[0.5, 1.2]", "[1. 2.]")
floor = _elementary("floor", "the largest integer <= x", "[-0.5, 1.2]", "[-1.  1.]")
cos = _elementary("cos", "cos(x), x in radians", "[0, 1]", "[1.   0.54]")
acos = _elementary("acos", "the arc cosine of x", "[0, 1]", "[1.571 0.   ]")
sin = _elementary("sin", "sin(x), x in radians", "[0, 1]", "[0.    0.841]")
asin = _elementary("asin", "the arc sine of x", "[0, 1]", "[0.    1.571]")
round = _elementary("round", "the integer nearest to x", "[-0.6, 1.2]", "[-1.  1.]")
reciprocal = _elementary("reciprocal", "1 / x", "[1, 4]", "[1.   0.25]")
square = _elementary("square", "x * x", "[-1, 3]", "[1. 9.]")
softplus = _elementary("softplus", "log(1 + exp(x))", "[0, 1]", "[0.693 1.313]")
softsign = _elementary("softsign", "x / (1 + |x|)", "[0, 1]", "[0.  0.5]")


def _with_attrs(op_type: str, x: Variable, attrs: dict[str, Any], dtypes: tuple[str, ...] | None = FLOATS) -> Variable:
    check_type(x, "x", Variable, op_type)
    if dtypes:
        check_dtype(x.dtype, "x", dtypes, op_type)
    return emit(op_type, {"X": x}, x.dtype, {k: v for k, v in attrs.items() if v is not None})


def _scale(
    x: Variable,
    scale: float = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
    name: str | None = None,
    out: Variable | None = None,
) -> Variable:
    """out = scale * x + bias, or scale * (x + bias); ``layers.scale`` under the name of the bare op, into ``out``."""
    attrs = {"scale": scale, "bias": bias, "bias_after_scale": bias_after_scale}
    return emit("scale", {"X": x}, x.dtype, attrs, name=name, out=out)


def softshrink(x: Variable, alpha: float | None = None) -> Variable:
    """out = x - alpha if x > alpha, x + alpha if x < -alpha, else 0.

    Args:
        x: float32 or float64, any shape.
        alpha: the threshold; 0.5 if None.
    """
    return _with_attrs("softshrink", x, {"lambda": alpha})


def hard_shrink(x: Variable, threshold: float | None = None) -> Variable:
    """out = x if \\|x\\| > threshold (0.5 if None), else 0."""
    return _with_attrs("hard_shrink", x, {"threshold": threshold})


def thresholded_relu(x: Variable, threshold: float | None = None) -> Variable:
    """out = x if x > threshold (1.0 if None), else 0."""
    return _with_attrs("thresholded_relu", x, {"threshold": threshold})


def cumsum(
    x: Variable, axis: int | None = None, exclusive: bool | None = None, reverse: bool | None = None
) -> Variable:
    """Cumulative sums of ``x``.

    Args:
        x: float32, float64, int32 or int64.
        axis: the dimension to sum along; the last if None.
        exclusive: exclude each element from its own sum.
        reverse: sum from the end.
    """
    attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
    return _with_attrs("cumsum", x, attrs, None)


def gelu(x: Variable, approximate: bool = False) -> Variable:
    """out = 0.5 x (1 + erf(x / sqrt 2)), or its tanh approximation if ``approximate``."""
    return _with_attrs("gelu", only(x), {"approximate": approximate}, None)


def erf(x: Variable) -> Variable:
    """out = the Gauss error function of each element; float16, float32 or float64."""
    return _with_attrs("erf", only(x), {}, None)


__getattr__ = unknown_name(__name__)
