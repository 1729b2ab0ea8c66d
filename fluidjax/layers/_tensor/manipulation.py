"""Reshaping, repeating, joining, splitting and padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidjax.base.enums import VarType
from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Variable, in_dygraph_mode
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._tensor.shapes import as_attr, as_tensors, contains_variable
from fluidjax.layers.tensor import assign
from fluidjax.writing.checks import (
    FILLED,
    FULL_NUMBERS,
    NUMBERS,
    check_dtype,
    check_type,
    check_variable_and_dtype,
    convert_dtype,
    only,
)
from fluidjax.writing.emit import emit, emit_again, emit_many

__all__ = [
    "diag_embed",
    "expand",
    "expand_as",
    "flatten",
    "flip",
    "meshgrid",
    "rank",
    "reshape",
    "roll",
    "shape",
    "size",
    "split",
    "squeeze",
    "stack",
    "transpose",
    "unsqueeze",
    "unstack",
]


def _reshape_dims(shape: list[Any], x: Variable) -> list[int]:
    """The shape attribute: -1 for Variables and the inferred dimension. Raises ArgumentError for an invalid shape."""
    dims, inferred = [], None
    for i, dim in enumerate(shape):
        if isinstance(dim, Variable):
            dims.append(-1)
            continue
        dims.extend(as_attr([dim]))
        if dim == -1:
            if inferred is not None:
                raise ArgumentError(f"Only one dimension value of 'shape' in reshape can be -1, received {shape}")
            inferred = i
        elif dim == 0:
            if i >= len(x.shape):
                raise ArgumentError(f"The index of 0 in `shape` must be less than the input's rank, received {shape}")
        else:
            if dim <= 0:
                raise ArgumentError(
                    f"Each dimension value of 'shape' in reshape must not be negative except one -1: {shape}"
                )
    return dims


def reshape(
    x: Variable,
    shape: Any,
    actual_shape: Variable | None = None,
    act: str | None = None,
    inplace: bool = False,
    name: str | None = None,
) -> Variable:
    """``x`` reshaped, with the same number of elements.

    Args:
        x: float16, float32, float64, int32 or int64.
        shape: a list of ints and Variables [1], or an int32 Variable; 0 copies the dimension of ``x``, a single -1 is
            inferred.
        actual_shape: an int32 Variable that overrides ``shape`` at run time.
        act: activation applied to the result.
        inplace: overwrite ``x`` with the result; ignored in eager mode.

    Raises:
        TypeError: an argument has the wrong type.
        ArgumentError: ``shape`` has more than one -1, other negative values, or a 0 beyond the rank of ``x``.

    Examples:
        >>> x = fluid.data("x", [None, 4, 6])
        >>> fluid.layers.reshape(x, [0, 2, 12]).shape
        (-1, 2, 12)
        >>> fluid.layers.reshape(x, [-1, 24]).shape
        (-1, 24)
    """
    check_variable_and_dtype(x, "x", NUMBERS, "reshape")
    check_type(shape, "shape", (list, tuple, Variable), "reshape")
    check_type(actual_shape, "actual_shape", (Variable, type(None)), "reshape")
    if in_dygraph_mode() and act is None and shape.__class__ is list and not contains_variable(shape):
        found = emit_again("reshape2", {"X": x}, ("Out", "XShape"), {"shape": shape}, name=name)
        if found is not None:
            return found[0]
    helper = LayerHelper("reshape2", act=act, name=name)
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {}
    if isinstance(shape, Variable):
        shape.stop_gradient = True
        inputs["Shape"] = shape
    else:
        if not len(shape):
            raise ArgumentError("The size of 'shape' in reshape can't be zero; pass at least one dim")
        attrs["shape"] = _reshape_dims(list(shape), x)
        if contains_variable(shape):
            inputs["ShapeTensor"] = as_tensors(helper, shape)
        elif isinstance(actual_shape, Variable):
            actual_shape.stop_gradient = True
            inputs["Shape"] = actual_shape
    in_place = inplace and not in_dygraph_mode()  # in eager mode a variable keeps its shape
    out = x if in_place else helper.create_variable_for_type_inference(dtype=x.dtype)
    x_shape = helper.create_variable_for_type_inference(dtype=x.dtype)
    helper.append_op(type="reshape2", inputs=inputs, attrs=attrs, outputs={"Out": out, "XShape": x_shape})
    return helper.append_activation(out)


def _with_x_shape(
    op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], dtype: Any, name: str | None, layer: str
) -> Variable:
    outputs = [("Out", dtype, False), ("XShape", dtype, False)]
    return emit_many(op_type, inputs, outputs, attrs, name=name, layer=layer)[0]


def squeeze(input: Variable, axes: list[int], name: str | None = None) -> Variable:
    """Remove the dimensions ``axes``, which must have size 1; all dimensions of size 1 if ``axes`` is empty.

    Examples:
        >>> x = fluid.data("x", [None, 1, 5, 1])
        >>> fluid.layers.squeeze(x, axes=[1]).shape
        (-1, 5, 1)
    """
    check_variable_and_dtype(input, "input", (*NUMBERS, "int8"), "squeeze")
    check_type(axes, "axes", (list, tuple), "squeeze")
    return _with_x_shape("squeeze2", {"X": input}, {"axes": list(axes)}, input.dtype, name, "squeeze")


def unsqueeze(input: Variable, axes: Any, name: str | None = None) -> Variable:
    """Insert a dimension of size 1 at each of ``axes``: an int, a Variable, or a list of ints and Variables.

    Examples:
        >>> x = fluid.data("x", [None, 5])
        >>> fluid.layers.unsqueeze(x, axes=[0, 3]).shape
        (1, -1, 5, 1)
    """
    check_type(axes, "axes", (int, list, tuple, Variable), "unsqueeze")
    check_type(input, "input", Variable, "unsqueeze")
    axes = [axes] if isinstance(axes, int) else axes
    if not isinstance(axes, Variable) and not contains_variable(axes):
        return _with_x_shape("unsqueeze2", {"X": input}, {"axes": list(axes)}, input.dtype, name, "unsqueeze2")
    helper = LayerHelper("unsqueeze2", name=name)
    inputs: dict[str, Any] = {"X": input}
    if isinstance(axes, Variable):
        axes.stop_gradient = True
        inputs["AxesTensor"] = axes
    else:
        inputs["AxesTensorList"] = as_tensors(helper, axes)
    out = helper.create_variable_for_type_inference(dtype=input.dtype)
    x_shape = helper.create_variable_for_type_inference(dtype=input.dtype)
    helper.append_op(type="unsqueeze2", inputs=inputs, outputs={"Out": out, "XShape": x_shape})
    return out


def flatten(x: Variable, axis: int = 1, name: str | None = None) -> Variable:
    """``x`` flattened to a matrix; its first ``axis`` dimensions form the rows.

    Raises:
        ValueError: ``axis`` is not an int in [0, rank].
    """
    check_variable_and_dtype(x, "x", ("float32", "float64", "int8", "int32", "int64"), "flatten")
    if not isinstance(axis, int) or not 0 <= axis <= len(x.shape):
        raise ArgumentError(f"The axis should be a int, and in range [0, rank(x)], received {axis} for {x.shape}")
    return _with_x_shape("flatten2", {"X": x}, {"axis": axis}, x.dtype, name, "flatten")


def transpose(x: Variable, perm: list[int], name: str | None = None) -> Variable:
    """``x`` with its dimensions permuted to the order ``perm``.

    Raises:
        ValueError: the length of ``perm`` differs from the rank, or it names a dimension that does not exist.

    Examples:
        >>> x = fluid.data("x", [None, 3, 32, 64])
        >>> fluid.layers.transpose(x, [0, 2, 3, 1]).shape
        (-1, 32, 64, 3)
    """
    check_variable_and_dtype(x, "x", NUMBERS, "transpose")
    check_type(perm, "perm", list, "transpose")
    if len(perm) != len(x.shape):
        raise ArgumentError(
            f"Input(perm) is the permutation of dimensions of Input(x), its length should be equal to dimensions of"
            f" Input(x), but received dimension of Input(x) is {len(x.shape)}, the length of Input(perm) is"
            f" {len(perm)}."
        )
    for i, dim in enumerate(perm):
        if dim >= len(x.shape):
            raise ArgumentError(
                f"Each element in Input(perm) should be less than Input(x)'s dimension, but {i}-th element in"
                f" Input(perm) is {dim} which exceeds Input(x)'s dimension {len(x.shape)}."
            )
    return _with_x_shape("transpose2", {"X": [x]}, {"axis": perm}, x.dtype, name, "transpose")


def expand(x: Variable, expand_times: Any, name: str | None = None) -> Variable:
    """``x`` tiled expand_times[i] times along dimension i.

    Args:
        x: bool, float32, float64, int32 or int64.
        expand_times: a list of ints and Variables [1], or an int32 Variable.

    Raises:
        ValueError: ``x`` is bool and its ``stop_gradient`` is set, which Fluid rejects in a program.
        ArgumentError: a count is not positive.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     x = fluid.dygraph.to_variable(np.float32([[1, 2]]))
        ...     print(fluid.layers.expand(x, [2, 2]).numpy())
        [[1. 2. 1. 2.]
         [1. 2. 1. 2.]]
    """
    check_variable_and_dtype(x, "x", ("bool", *FULL_NUMBERS), "expand")
    check_type(expand_times, "expand_times", (list, tuple, Variable), "expand")
    if convert_dtype(x.dtype) == "bool" and x.stop_gradient and not in_dygraph_mode():
        raise ArgumentError("expand op bool date type must set the stop_gradient to be False")
    helper = LayerHelper("expand", name=name)
    inputs: dict[str, Any] = {"X": [x]}
    attrs: dict[str, Any] = {}
    if isinstance(expand_times, Variable):
        expand_times.stop_gradient = True
        inputs["ExpandTimes"] = expand_times
    else:
        for times in expand_times:
            if not isinstance(times, Variable) and times <= 0:
                raise ArgumentError(f"expand_times should be positive, received {expand_times}")
        attrs["expand_times"] = as_attr(expand_times)
        if contains_variable(expand_times):
            inputs["expand_times_tensor"] = as_tensors(helper, expand_times)
    out = helper.create_variable_for_type_inference(x.dtype)
    helper.append_op(type="expand", inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


def expand_as(x: Variable, target_tensor: Variable, name: str | None = None) -> Variable:
    """``x`` tiled to the shape of ``target_tensor``."""
    known = (*FULL_NUMBERS, "bool")
    check_variable_and_dtype(x, "x", known, "expand_as")
    check_variable_and_dtype(target_tensor, "target_tensor", known, "expand_as")
    return emit("expand_as", {"X": x, "target_tensor": target_tensor}, x.dtype, name=name)


def stack(x: Variable | list[Variable], axis: int = 0) -> Variable:
    """Stack a list of tensors (or the elements of a tensor array) along a new dimension ``axis``."""
    helper = LayerHelper("stack")
    given = list(x) if isinstance(x, (list, tuple)) else [x]
    out = helper.create_variable_for_type_inference(given[0].dtype)
    if given[0].type == VarType.LOD_TENSOR_ARRAY:
        index = helper.create_variable_for_type_inference(dtype="int32")
        outputs = {"Out": [out], "OutIndex": [index]}
        attrs = {"axis": axis, "use_stack": True}
        helper.append_op(type="tensor_array_to_tensor", inputs={"X": given[0]}, outputs=outputs, attrs=attrs)
    else:
        helper.append_op(type="stack", inputs={"X": given}, outputs={"Y": out}, attrs={"axis": axis})
    return out


def unstack(x: Variable, axis: int = 0, num: int | None = None) -> list[Variable]:
    """The slices of ``x`` along ``axis``, with that dimension removed; ``num`` is required if its size is unknown.

    Raises:
        ValueError: the size is unknown and ``num`` is not given.
    """
    helper = LayerHelper("unstack")
    if num is None:
        if axis is None or x.shape[axis] <= 0:
            raise ArgumentError(f"unknown unstack number: dim {axis} of {x.shape}; pass num")
        num = x.shape[axis]
    outs = [helper.create_variable_for_type_inference(x.dtype) for _ in range(num)]
    helper.append_op(type="unstack", inputs={"X": [x]}, outputs={"Y": outs}, attrs={"axis": axis, "num": num})
    return outs


def split(
    input: Variable, num_or_sections: int | list[Any], dim: int | Variable = -1, name: str | None = None
) -> list[Variable]:
    """Split ``input`` along ``dim``.

    Args:
        input: bool, float16, float32, float64, int32 or int64.
        num_or_sections: the number of equal sections (more than one in static mode), or a list of sizes (ints and
            Variables [1]; one may be -1).
        dim: an int, or a Variable [1].

    Raises:
        TypeError: an argument has the wrong type.
        ArgumentError: the number of sections does not divide the dimension, or there are more sections than elements.

    Examples:
        >>> x = fluid.data("x", [None, 9])
        >>> [part.shape for part in fluid.layers.split(x, num_or_sections=[2, 3, -1], dim=1)]
        [(-1, 2), (-1, 3), (-1, 4)]
    """
    check_type(input, "input", Variable, "split")
    check_type(num_or_sections, "num_or_sections", (list, int, tuple), "split")
    check_type(dim, "dim", (int, Variable), "split")
    inputs: dict[str, Any] = {"X": input}
    attrs: dict[str, Any] = {"num": num_or_sections if isinstance(num_or_sections, int) else 0}
    if isinstance(dim, Variable):
        dim.stop_gradient = True
        inputs["AxisTensor"] = dim
        length = -1
    else:
        dim = len(input.shape) + dim if dim < 0 else dim
        attrs["axis"] = dim
        length = input.shape[dim]
    sections: list[Any] = [] if isinstance(num_or_sections, int) else num_or_sections
    if isinstance(num_or_sections, int):
        num, few = num_or_sections, 0 if in_dygraph_mode() else 1
        if num <= few:
            raise ArgumentError(f"num_or_sections must be more than {few}, received {num}. Give the number of sections")
        if length >= 0 and length % num:
            raise ArgumentError(f"{num} pieces do not divide dim {dim} of {input.shape}")
    else:
        num = len(num_or_sections)
        if 0 <= length < num:
            raise ArgumentError(f"{num} sections are more than dim {dim} of {input.shape} has elements")
        attrs["sections"] = as_attr(num_or_sections)
    if not contains_variable(sections):
        found = emit_again("split", inputs, (("Out", num) if num > 1 else "Out",), attrs, name=name)
        if found is not None:
            return found
    helper = LayerHelper("split", name=name)
    if contains_variable(sections):
        inputs["SectionsTensorList"] = as_tensors(helper, sections)
    outs = [helper.create_variable_for_type_inference(dtype=input.dtype) for _ in range(num)]
    helper.append_op(type="split", inputs=inputs, outputs={"Out": outs}, attrs=attrs)
    return outs


def flip(input: Variable, dims: list[int], name: str | None = None) -> Variable:
    """``input`` with the order of its elements reversed along ``dims``."""
    helper = LayerHelper("flip", name=name)
    check_type(input, "X", Variable, "flip")
    check_dtype(input.dtype, "X", FILLED, "flip")
    check_type(dims, "dims", (list, tuple), "flip")
    assert len(dims) > 0, "dims in the flip op must not be an empty list; name a dim"
    out = helper.create_variable_for_type_inference(input.dtype)
    helper.append_op(type="flip", inputs={"X": input}, outputs={"Out": out}, attrs={"dims": list(dims)})
    return out


def roll(input: Variable, shifts: int | list[int], dims: int | list[int] | None = None) -> Variable:
    """``input`` rolled by ``shifts`` along ``dims``; without dims, as a flattened vector.

    Raises:
        ValueError: a dimension is out of range.
    """
    helper = LayerHelper("roll")
    origin = input.shape
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else dims
    if dims is not None:
        for dim in dims:
            if not -len(origin) <= dim < len(origin):
                raise ArgumentError(f"dim is out of range: {dim} of {len(origin)} dims; choose one in range")
    else:
        input = reshape(input, shape=[-1, 1])
        dims = [0]
    out = helper.create_variable_for_type_inference(input.dtype)
    attrs = {"dims": list(dims), "shifts": shifts}
    helper.append_op(type="roll", inputs={"X": input}, outputs={"Out": out}, attrs=attrs)
    return reshape(out, shape=list(origin), inplace=True)


def meshgrid(input: list[Variable], name: str | None = None) -> list[Variable]:
    """Coordinate grids of several vectors: each out[i] has the joint shape and varies along dimension i as input[i]."""
    check_type(input, "input", (list, tuple), "meshgrid")
    for i, x in enumerate(input):
        check_variable_and_dtype(x, f"input[{i}]", NUMBERS, "meshgrid")
    helper = LayerHelper("meshgrid", name=name)
    outs = [helper.create_variable_for_type_inference(dtype=x.dtype) for x in input]
    helper.append_op(type="meshgrid", inputs={"X": list(input)}, outputs={"Out": outs})
    return outs


def diag_embed(input: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Variable:
    """Matrices in dimensions (dim1, dim2) whose ``offset``-th diagonals are the last dimension of ``input``.

    ``input`` is a Variable or an array.
    """
    if not isinstance(input, Variable):
        input = assign(input)
    check_dtype(input.dtype, "Input", ("int32", "int64", "float16", "float32", "float64"), "diag_embed")
    rank = len(input.shape) + 1
    if dim1 % rank == dim2 % rank:
        raise AssertionError(f"dim1 and dim2 cannot be identical, received {dim1} and {dim2} of {rank} dims")
    attrs = {"offset": offset, "dim1": dim1, "dim2": dim2}
    out = emit("diag_embed", {"Input": [input]}, input.dtype, attrs)
    out.stop_gradient = True
    return out


def shape(input: Variable) -> Variable:
    """The shape of ``input``: int32 [rank].

    Examples:
        >>> with fluid.dygraph.guard():
        ...     print(fluid.layers.shape(fluid.layers.ones([3, 4], "float32")).numpy())
        [3 4]
    """
    check_variable_and_dtype(input, "input", FULL_NUMBERS, "shape")
    return emit("shape", {"Input": input}, "int32")


def rank(input: Variable | np.ndarray) -> Variable:
    """The rank of ``input``: int32 [1], known when the program is built."""
    check_type(input, "input", (Variable, np.ndarray), "input")
    return assign(np.array(len(input.shape), "int32"))


def size(input: Variable) -> Variable:
    """The number of elements of ``input``: int64 [1]."""
    input = only(input)
    check_type(input, "input", Variable, "size")
    return emit("size", {"Input": input}, "int64")
