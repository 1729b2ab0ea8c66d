"""Tensors created from scratch: constants, ranges, identities; also triangles, traces and Kronecker products."""

from __future__ import annotations

import math
from typing import Any

from fluidjax.base.enums import to_var_type
from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Variable, in_dygraph_mode
from fluidjax.framework import device_guard as on_device
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._tensor.shapes import cast, fill_constant
from fluidjax.writing.checks import (
    FILLED,
    FULL_FLOATS,
    FULL_NUMBERS,
    NUMBERS,
    check_dtype,
    check_type,
    check_variable_and_dtype,
    convert_dtype,
)
from fluidjax.writing.emit import emit

__all__ = [
    "arange",
    "eye",
    "fill_constant_batch_size_like",
    "full",
    "full_like",
    "kron",
    "linspace",
    "ones",
    "ones_like",
    "range",
    "trace",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
]


def _check_device(device: str | None) -> None:
    if device not in (None, "cpu", "gpu"):
        raise ArgumentError(f"The value of 'device' must be cpu or gpu, received {device!r}; leave it out")


def full(
    shape: Any,
    fill_value: Any,
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """A tensor filled with ``fill_value``; float32 unless ``dtype`` is given. ``shape`` as for fill_constant."""
    helper = LayerHelper("full", name=name)
    dtype = "float32" if dtype is None else dtype
    check_dtype(dtype, "dtype", FILLED, "full")
    check_type(shape, "shape", (Variable, list, tuple), "full")
    _check_device(device)
    if out is None:
        out = helper.create_variable_for_type_inference(dtype=dtype)
    out.stop_gradient = stop_gradient
    with on_device(device):
        return fill_constant(shape=shape, dtype=dtype, value=fill_value, out=out)


def full_like(
    input: Variable,
    fill_value: Any,
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """A tensor filled with ``fill_value``, with the shape of ``input`` and, unless ``dtype`` is given, its dtype."""
    _check_device(device)
    helper = LayerHelper("full_like", name=name)
    dtype = input.dtype if dtype is None else dtype
    check_dtype(dtype, "dtype", FILLED, "full_like")
    if out is None:
        out = helper.create_variable_for_type_inference(dtype=dtype)
    attrs = {"value": fill_value, "dtype": int(to_var_type(dtype))}
    helper.append_op(type="fill_any_like", inputs={"X": [input]}, attrs=attrs, outputs={"Out": [out]})
    out.stop_gradient = stop_gradient
    return out


def _triangle(input: Variable, diagonal: int, lower: bool, name: str | None) -> Variable:
    kind = "tril" if lower else "triu"
    check_variable_and_dtype(input, "x", FULL_NUMBERS, kind)
    if len(input.shape) < 2:
        raise ArgumentError(f"input shape in {kind} must be at least 2-D, received {input.shape}; reshape it")
    if not isinstance(diagonal, int):
        raise TypeError(f"diagonal in {kind} must be a python int, received {diagonal!r}; pass one")
    helper = LayerHelper(kind, name=name)
    out = helper.create_variable(name=helper.name, dtype=input.dtype, persistable=False)
    attrs = {"diagonal": diagonal, "lower": lower}
    helper.append_op(type="tril_triu", inputs={"X": input}, attrs=attrs, outputs={"Out": out})
    return out


def tril(input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """The lower triangle of the last two dimensions, up to the ``diagonal``-th diagonal; zeros above."""
    return _triangle(input, diagonal, True, name)


def triu(input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """The upper triangle of the last two dimensions, from the ``diagonal``-th diagonal; zeros below."""
    return _triangle(input, diagonal, False, name)


def kron(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """The Kronecker product: out[i1 k1 + i2, ...] = x[i1, ...] * y[i2, ...]; written to ``out`` if given."""
    for label, value in (("x", x), ("y", y)):
        check_variable_and_dtype(value, label, NUMBERS, "kron")
    if out is not None:
        check_variable_and_dtype(out, "out", NUMBERS, "kron")
    return emit("kron", {"X": x, "Y": y}, x.dtype, name=name, out=out)


def trace(
    input: Variable,
    offset: int = 0,
    dim1: int = 0,
    dim2: int = 1,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """The sum of the ``offset``-th diagonal over dimensions (dim1, dim2); [1] for a matrix."""
    check_variable_and_dtype(input, "Input", NUMBERS, "trace")
    rank = len(input.shape)
    if rank < 2 or not (-rank <= dim1 < rank and -rank <= dim2 < rank) or dim1 % rank == dim2 % rank:
        raise AssertionError(
            f"trace needs two different dims of a tensor of at least 2 dims, received dim1 {dim1} and dim2 {dim2} of"
            f" shape {input.shape}; choose two of them"
        )
    attrs = {"offset": offset, "dim1": dim1, "dim2": dim2}
    return emit("trace", {"Input": [input]}, input.dtype, attrs, name=name, out=out)


def fill_constant_batch_size_like(
    input: Variable,
    shape: list[int],
    dtype: Any,
    value: float,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    force_cpu: bool = False,
) -> Variable:
    """A constant tensor whose dimension ``output_dim_idx`` equals dimension ``input_dim_idx`` of ``input``.

    If ``input`` has LoD and the dimension is 0, that is its number of sequences.
    """
    attrs: dict[str, Any] = {
        "shape": list(shape),
        "dtype": int(to_var_type(dtype)),
        "value": float(value),
        "input_dim_idx": input_dim_idx,
        "output_dim_idx": output_dim_idx,
        "force_cpu": force_cpu,
    }
    if convert_dtype(dtype) in ("int64", "int32"):
        attrs["str_value"] = str(int(value))
    else:
        attrs["str_value"] = str(float(value))
    out = emit("fill_constant_batch_size_like", {"Input": input}, dtype, attrs)
    out.stop_gradient = True
    return out


def ones(shape: Any, dtype: Any, force_cpu: bool = False) -> Variable:
    """A tensor of ones; ``shape`` as for fill_constant. Raises AssertionError if it has no elements."""
    if isinstance(shape, (list, tuple)) and not any(isinstance(n, Variable) for n in shape):
        assert math.prod(shape) > 0, f"The shape is invalid: ones needs elements, received {list(shape)}. Give others."
    return fill_constant(shape=shape, dtype=dtype, force_cpu=force_cpu, value=1.0)


def zeros(shape: Any, dtype: Any, force_cpu: bool = False) -> Variable:
    """A tensor of zeros; ``shape`` as for fill_constant."""
    return fill_constant(shape=shape, dtype=dtype, force_cpu=force_cpu, value=0.0)


def _check_like(x: Any, out: Any) -> None:
    check_variable_and_dtype(x, "x", ("bool", *FULL_NUMBERS), "ones_like")
    if out is not None:
        check_variable_and_dtype(out, "out", ("bool", *FULL_NUMBERS), "ones_like")


def ones_like(x: Variable, out: Variable | None = None) -> Variable:
    """A tensor of ones with the shape and dtype of ``x``."""
    _check_like(x, out)
    return emit("fill_any_like", {"X": [x]}, x.dtype, {"value": 1.0}, layer="ones_like", out=out)


def zeros_like(x: Variable, out: Variable | None = None) -> Variable:
    """A tensor of zeros with the shape and dtype of ``x``."""
    _check_like(x, out)
    out = emit("fill_zeros_like", {"X": [x]}, x.dtype, layer="zeros_like", out=out)
    out.stop_gradient = True
    return out


def _as_scalar(value: Any, dtype: Any) -> Variable:
    """A Variable [1] of the given dtype."""
    if not isinstance(value, Variable):
        return fill_constant([1], dtype, value)
    return value if convert_dtype(value.dtype) == convert_dtype(dtype) else cast(value, dtype)


def range(start: Any, end: Any, step: Any, dtype: Any) -> Variable:
    """start, start + step, ... up to but excluding end; each a number or a Variable [1]."""
    check_dtype(dtype, "dtype", FULL_NUMBERS, "range")
    inputs = {"Start": _as_scalar(start, dtype), "End": _as_scalar(end, dtype), "Step": _as_scalar(step, dtype)}
    out = emit("range", inputs, dtype)
    out.stop_gradient = True
    return out


def arange(start: Any, end: Any, step: Any = 1, dtype: Any = None, name: str | None = None) -> Variable:
    """Like ``range``; the dtype defaults to float32."""
    del name
    return range(start, end, step, "float32" if dtype is None else dtype)


def _check_linspace(start: Any, stop: Any, num: Any) -> None:
    for label, given, known in (("start", start, FULL_FLOATS), ("stop", stop, FULL_FLOATS), ("num", num, ("int32",))):
        check_type(given, label, (Variable, float, int), "linspace")
        if isinstance(given, Variable):
            check_dtype(given.dtype, label, known, "linspace")


def linspace(start: Any, stop: Any, num: Any, dtype: Any) -> Variable:
    """``num`` evenly spaced values from ``start`` to ``stop`` inclusive; each a number or a Variable [1].

    The dtype is float32 or float64.
    """
    check_dtype(dtype, "dtype", FULL_FLOATS, "linspace")
    if not in_dygraph_mode():
        _check_linspace(start, stop, num)
    first, last = (v if isinstance(v, Variable) else fill_constant([1], dtype, v) for v in (start, stop))
    count = num if isinstance(num, Variable) else fill_constant([1], "int32", num)
    return emit("linspace", {"Start": first, "Stop": last, "Num": count}, dtype)


def eye(
    num_rows: int, num_columns: int | None = None, batch_shape: list[int] | None = None, dtype: Any = "float32"
) -> Variable:
    """The identity matrix [num_rows, num_columns], repeated over ``batch_shape`` if given."""
    for label, size in (("num_rows", num_rows), ("num_columns", num_columns)):
        if size is not None and (not isinstance(size, int) or size < 0):
            raise TypeError(f"{label} should be a non-negative int, received {size!r}; pass one")
    columns = num_rows if num_columns is None else num_columns
    attrs = {"num_rows": num_rows, "num_columns": columns, "dtype": int(to_var_type(dtype))}
    out = emit("eye", {}, dtype, attrs)
    out.stop_gradient = True
    for size in reversed(batch_shape or []):
        if size <= 0:
            raise TypeError(f"batch_shape should be a positive int list, received {batch_shape}; pass positive sizes")
        out = emit("stack", {"X": [out] * size}, dtype, {"axis": 0}, slot="Y")
    return out
