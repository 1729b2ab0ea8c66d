"""Constants with torch-like arguments, triangles, traces and Kronecker products."""

from __future__ import annotations

from typing import Any

from fluidjax.base.enums import to_var_type
from fluidjax.framework import Variable
from fluidjax.framework import device_guard as on_device
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._tensor.shapes import fill_constant
from fluidjax.writing.checks import FILLED, FULL_NUMBERS, NUMBERS, check_dtype, check_type, check_variable_and_dtype
from fluidjax.writing.emit import emit

__all__ = ["full", "full_like", "kron", "trace", "tril", "triu"]


def _check_device(device: str | None) -> None:
    if device not in (None, "cpu", "gpu"):
        raise ValueError(f"The value of 'device' must be cpu or gpu, received {device!r}; leave it out")


def full(
    shape: Any,
    fill_value: Any,
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """A tensor of ``fill_value``; float32 unless ``dtype`` says otherwise. ``shape`` as for fill_constant."""
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
    """``fill_value`` in the shape of ``input``, and in its element type unless ``dtype`` is given."""
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
        raise ValueError(f"input shape in {kind} must be at least 2-D, received {input.shape}; reshape it")
    if not isinstance(diagonal, int):
        raise TypeError(f"diagonal in {kind} must be a python int, received {diagonal!r}; pass one")
    helper = LayerHelper(kind, name=name)
    out = helper.create_variable(name=helper.name, dtype=input.dtype, persistable=False)
    attrs = {"diagonal": diagonal, "lower": lower}
    helper.append_op(type="tril_triu", inputs={"X": input}, attrs=attrs, outputs={"Out": out})
    return out


def tril(input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """The lower triangle of the last two dims, up to the ``diagonal``-th diagonal; zeros above."""
    return _triangle(input, diagonal, True, name)


def triu(input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """The upper triangle of the last two dims, from the ``diagonal``-th diagonal; zeros below."""
    return _triangle(input, diagonal, False, name)


def kron(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """The Kronecker product: out[i1 k1 + i2, ...] = x[i1, ...] * y[i2, ...]; written to ``out`` when given."""
    for label, value in (("x", x), ("y", y)):
        check_variable_and_dtype(value, label, NUMBERS, "kron")
    return emit("kron", {"X": x, "Y": y}, x.dtype, name=name, out=out)


def trace(
    input: Variable,
    offset: int = 0,
    dim1: int = 0,
    dim2: int = 1,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """The sum along the ``offset``-th diagonals of the planes (dim1, dim2); [1] for a matrix."""
    rank = len(input.shape)
    if rank < 2 or not (-rank <= dim1 < rank and -rank <= dim2 < rank) or dim1 % rank == dim2 % rank:
        raise AssertionError(
            f"trace needs two different dims of a tensor of at least 2 dims, received dim1 {dim1} and dim2 {dim2} of"
            f" shape {input.shape}; choose two of them"
        )
    attrs = {"offset": offset, "dim1": dim1, "dim2": dim2}
    return emit("trace", {"Input": [input]}, input.dtype, attrs, name=name, out=out)
