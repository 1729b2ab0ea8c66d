"""Reductions, norms and distances."""

from __future__ import annotations

from typing import Any

from fluidjax.framework import Variable
from fluidjax.layers.ops import exp
from fluidjax.writing.checks import (
    FLOATS,
    FULL_FLOATS,
    FULL_NUMBERS,
    check_dtype,
    check_type,
    check_variable_and_dtype,
    only,
)
from fluidjax.writing.emit import emit, emit_many

__all__ = [
    "allclose",
    "dist",
    "l2_normalize",
    "logsumexp",
    "mean",
    "reduce_all",
    "reduce_any",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
]


def _reduce(
    op_type: str, input: Variable, dim: int | list[int] | None, keep_dim: bool, name: str | None, dtypes: Any = None
) -> Variable:
    """The dimensions of a reduction in Fluid's encoding: [0] with reduce_all for all of them."""
    input = input if dtypes is not None else only(input)
    check_type(input, "input", Variable, op_type)
    if dtypes is not None:
        check_dtype(input.dtype, "input", dtypes, op_type)
    if dim is not None and not isinstance(dim, (list, tuple)):
        dim = [dim]
    attrs = {
        "dim": list(dim) if dim else [0],
        "keep_dim": keep_dim,
        "reduce_all": not dim,
    }
    return emit(op_type, {"X": input}, input.dtype, attrs, name=name)


def reduce_sum(
    input: Variable, dim: int | list[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """The sum over ``dim`` (all dimensions if None).

    Args:
        input: float32, float64, int32 or int64.
        dim: a dimension or a list of them; negative ones count from the end.
        keep_dim: keep reduced dimensions with size 1.

    Returns:
        The sums; [1] if all dimensions are reduced and not kept.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     x = fluid.dygraph.to_variable(np.float32([[1, 2], [3, 4]]))
        ...     print(fluid.layers.reduce_sum(x).numpy(), fluid.layers.reduce_sum(x, dim=1).numpy())
        [10.] [3. 7.]
    """
    return _reduce("reduce_sum", input, dim, keep_dim, name, FULL_NUMBERS)


def reduce_mean(
    input: Variable, dim: int | list[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """The mean over ``dim`` (all dimensions if None); arguments as for reduce_sum.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     x = fluid.dygraph.to_variable(np.float32([[1, 2], [3, 6]]))
        ...     print(fluid.layers.reduce_mean(x, dim=0, keep_dim=True).numpy())
        [[2. 4.]]
    """
    return _reduce("reduce_mean", input, dim, keep_dim, name, FULL_NUMBERS)


def reduce_max(
    input: Variable, dim: int | list[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """The maximum over ``dim`` (all dimensions if None); arguments as for reduce_sum."""
    return _reduce("reduce_max", input, dim, keep_dim, name)


def reduce_min(
    input: Variable, dim: int | list[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """The minimum over ``dim`` (all dimensions if None); arguments as for reduce_sum."""
    return _reduce("reduce_min", input, dim, keep_dim, name)


def reduce_prod(
    input: Variable, dim: int | list[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """The product over ``dim`` (all dimensions if None); arguments as for reduce_sum."""
    return _reduce("reduce_prod", input, dim, keep_dim, name)


def reduce_all(
    input: Variable, dim: int | list[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """Whether all elements along ``dim`` are true; ``input`` is bool."""
    return _reduce("reduce_all", input, dim, keep_dim, name, "bool")


def reduce_any(
    input: Variable, dim: int | list[int] | None = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """Whether any element along ``dim`` is true; ``input`` is bool."""
    return _reduce("reduce_any", input, dim, keep_dim, name, "bool")


def mean(x: Variable, name: str | None = None) -> Variable:
    """The mean of all elements, [1]; float16, float32 or float64.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     x = fluid.dygraph.to_variable(np.float32([[1, 2], [3, 6]]))
        ...     print(fluid.layers.mean(x).numpy())
        [3.]
    """
    check_variable_and_dtype(x, "x", FLOATS, "mean")
    return emit("mean", {"X": x}, x.dtype, name=name)


def logsumexp(
    x: Variable,
    dim: int | list[int] | None = None,
    keepdim: bool = False,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """log(sum of exp(x)) over ``dim``, written as three ops; the result goes to ``out`` if given."""
    check_variable_and_dtype(x, "x", FULL_FLOATS, "logsumexp")
    total = _reduce("reduce_sum", exp(x), dim, keepdim, None, FULL_NUMBERS)
    return emit("log", {"X": total}, x.dtype, name=name, out=out)


def l2_normalize(x: Variable, axis: int, epsilon: float = 1e-12, name: str | None = None) -> Variable:
    """out = x / sqrt(sum of x * x over ``axis`` + epsilon).

    Args:
        x: float32 or float64; a vector is normalised along dimension 0.
        axis: the dimension; None means 0.
        epsilon: avoids division by zero.
    """
    axis = 0 if len(x.shape) == 1 or axis is None else axis
    check_variable_and_dtype(x, "X", FULL_FLOATS, "norm")
    outputs = [("Out", x.dtype, False), ("Norm", x.dtype, False)]
    attrs = {"axis": axis, "epsilon": epsilon}
    return emit_many("norm", {"X": x}, outputs, attrs, name=name, layer="l2_normalize")[0]


def dist(x: Variable, y: Variable, p: float = 2) -> Variable:
    """The p-norm of x - y (broadcast), [1]; p may be 0 (number of differences), inf or -inf."""
    check_variable_and_dtype(x, "dtype", FULL_FLOATS, "dist")
    check_variable_and_dtype(y, "dtype", FULL_FLOATS, "dist")
    check_type(p, "p", (float, int), "dist")
    return emit("dist", {"X": [x], "Y": [y]}, x.dtype, {"p": float(p)})


def allclose(
    input: Variable,
    other: Variable,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
    name: str | None = None,
) -> Variable:
    """Whether \\|input - other\\| <= atol + rtol * \\|other\\| for all elements: bool [1]."""
    check_variable_and_dtype(input, "input", FULL_FLOATS, "allclose")
    check_variable_and_dtype(other, "other", FULL_FLOATS, "allclose")
    for label, value, kind in (("rtol", rtol, float), ("atol", atol, float), ("equal_nan", equal_nan, bool)):
        check_type(value, label, kind, "allclose")
    attrs = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan}
    return emit("allclose", {"Input": input, "Other": other}, "bool", attrs, name=name)
