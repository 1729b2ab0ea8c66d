"""``paddle.tensor.math``: arithmetic, elementary functions, sums."""

from __future__ import annotations

from typing import Any

from fluidjax import layers
from fluidjax.paddle.tensor.at_once import surface, surfaces
from fluidjax.writing.checks import check_variable_and_dtype
from fluidjax.writing.emit import emit

__all__ = [
    "abs", "acos", "add", "addcmul", "addmm", "asin", "atan", "ceil", "clamp", "cos", "cumsum", "div",
    "elementwise_add", "elementwise_div", "elementwise_floordiv", "elementwise_max", "elementwise_min",
    "elementwise_mod", "elementwise_mul", "elementwise_pow", "elementwise_sub", "elementwise_sum", "erf", "exp",
    "floor", "increment", "inverse", "kron", "log", "log1p", "logsumexp", "max", "min", "mm", "mul", "multiplex", "pow",
    "reciprocal", "reduce_max", "reduce_min", "reduce_prod", "reduce_sum", "round", "rsqrt", "scale", "sign", "sin",
    "sqrt", "square", "stanh", "sum", "sums", "tanh", "trace",
]  # fmt: skip

abs, acos, asin, atan, ceil, cos, erf, exp, floor, log, log1p, reciprocal, round, rsqrt = surfaces(
    layers, "abs acos asin atan ceil cos erf exp floor log log1p reciprocal round rsqrt"
)
sign, sin, sqrt, square, stanh, tanh, addcmul, addmm, clamp, cumsum, increment, kron = surfaces(
    layers, "sign sin sqrt square stanh tanh addcmul addmm clamp cumsum increment kron"
)
elementwise_add, elementwise_div, elementwise_floordiv, elementwise_max, elementwise_min = surfaces(
    layers, "elementwise_add elementwise_div elementwise_floordiv elementwise_max elementwise_min"
)
elementwise_mod, elementwise_mul, elementwise_pow, elementwise_sub, logsumexp, mul, multiplex = surfaces(
    layers, "elementwise_mod elementwise_mul elementwise_pow elementwise_sub logsumexp mul multiplex"
)
reduce_max, reduce_min, reduce_prod, reduce_sum, scale, sums, trace, elementwise_sum = surfaces(
    layers, "reduce_max reduce_min reduce_prod reduce_sum scale sums trace sum"
)


@surface
def add(x: Any, y: Any, alpha: float = 1, out: Any = None, name: str | None = None) -> Any:
    """x + alpha y, of which one may have fewer axes or axes of size 1."""
    found = layers.elementwise_add(x, y if alpha == 1 else layers.scale(y, alpha), name=name)
    return found if out is None else layers.assign(found, out)


@surface
def div(x: Any, y: Any, out: Any = None, name: str | None = None) -> Any:
    """x / y, of which one may have fewer axes or axes of size 1."""
    found = layers.elementwise_div(x, y, name=name)
    return found if out is None else layers.assign(found, out)


@surface
def mm(input: Any, mat2: Any, out: Any = None, name: str | None = None) -> Any:
    """The product of two matrices, or of batches of them."""
    found = layers.matmul(input, mat2, name=name)
    return found if out is None else layers.assign(found, out)


@surface
def pow(input: Any, exponent: Any, out: Any = None, name: str | None = None) -> Any:
    """Each element to a power: a number, or a variable of shape [1]."""
    found = layers.pow(input, exponent, name)
    return found if out is None else layers.assign(found, out)


@surface
def sum(
    input: Any,
    dim: int | list[int] | None = None,
    dtype: Any = None,
    keep_dim: bool = False,
    name: str | None = None,
) -> Any:
    """The sum over axes, over all of them by default; computed in ``dtype`` where that is given.

    Raises ValueError for a ``dtype`` that sums are not computed in.
    """
    if dtype is None:
        return layers.reduce_sum(input, dim, keep_dim, name)
    if str(dtype) not in ("float64", "int64", "VarType.FP64", "VarType.INT64"):
        raise ValueError(f"sum: the dtype is {dtype!r}. Expected 'float64' or 'int64'. Cast the result instead.")
    return layers.reduce_sum(layers.cast(input, dtype), dim, keep_dim, name)


@surface
def max(
    input: Any,
    dim: int | list[int] | None = None,
    keep_dim: bool = False,
    out: Any = None,
    name: str | None = None,
) -> Any:
    """The largest element over axes, over all of them by default."""
    found = layers.reduce_max(input, dim, keep_dim, name)
    return found if out is None else layers.assign(found, out)


@surface
def min(
    input: Any,
    dim: int | list[int] | None = None,
    keep_dim: bool = False,
    out: Any = None,
    name: str | None = None,
) -> Any:
    """The smallest element over axes, over all of them by default."""
    found = layers.reduce_min(input, dim, keep_dim, name)
    return found if out is None else layers.assign(found, out)


@surface
def inverse(input: Any, out: Any = None, name: str | None = None) -> Any:
    """The inverse of a matrix, or of each matrix of a batch. Raises TypeError for other types than float32, float64."""
    check_variable_and_dtype(input, "input", ["float32", "float64"], "inverse")
    found = emit("inverse", {"Input": input}, input.dtype, name=name, slot="Output")
    return found if out is None else layers.assign(found, out)
