"""The names of ``fluid.layers.tensor``; creation, copying, joining, summing, sorting and checking of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidjax.base.enums import VarType, to_var_type
from fluidjax.base.errors import ArgumentError
from fluidjax.base.unknown import unknown_name
from fluidjax.framework import Variable, in_dygraph_mode
from fluidjax.initializer import Constant, Initializer
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._tensor.files import load_combine as load_combine
from fluidjax.layers._tensor.files import save as save
from fluidjax.layers._tensor.files import save_combine as save_combine
from fluidjax.layers._tensor.filled import (
    arange,
    eye,
    fill_constant_batch_size_like,
    full,
    full_like,
    kron,
    linspace,
    ones,
    ones_like,
    range,
    trace,
    tril,
    triu,
    zeros,
    zeros_like,
)
from fluidjax.layers._tensor.shapes import cast, fill_constant
from fluidjax.param_attr import ParamAttr
from fluidjax.writing.checks import (
    FILLED,
    FULL_NUMBERS,
    NUMBERS,
    check_dtype,
    check_type,
    check_variable_and_dtype,
    common_dtype,
    convert_dtype,
)
from fluidjax.writing.emit import emit, emit_again, emit_many

__all__ = [
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "assign",
    "cast",
    "concat",
    "create_global_var",
    "create_parameter",
    "create_tensor",
    "diag",
    "eye",
    "fill_constant",
    "fill_constant_batch_size_like",
    "full",
    "full_like",
    "has_inf",
    "has_nan",
    "isfinite",
    "kron",
    "linspace",
    "ones",
    "ones_like",
    "range",
    "reverse",
    "sums",
    "tensor_array_to_tensor",
    "trace",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
]


def create_tensor(dtype: Any, name: str | None = None, persistable: bool = False) -> Variable:
    """Create a variable without a value, for a layer to write to."""
    check_dtype(dtype, "dtype", (*FILLED, "int8", "uint8", "int16"), "create_tensor")
    helper = LayerHelper("create_tensor", name=name)
    return helper.create_variable(name=helper.name, dtype=dtype, persistable=persistable)


def create_parameter(
    shape: list[int],
    dtype: Any,
    name: str | None = None,
    attr: Any = None,
    is_bias: bool = False,
    default_initializer: Initializer | None = None,
) -> Variable:
    """Create a trainable parameter, initialised by the startup program.

    Args:
        shape: its dimensions.
        dtype: its dtype.
        name: its name; if ``attr`` is given without a name, a prefix (``name.w_0``).
        attr: a ParamAttr with other settings.
        is_bias: initialise with zeros by default.
        default_initializer: used unless ``attr`` has one.

    Examples:
        >>> w = fluid.layers.create_parameter([3, 2], "float32", name="w")
        >>> x = fluid.data("x", [None, 3])
        >>> fluid.layers.matmul(x, w).shape
        (-1, 2)
    """
    check_type(shape, "shape", (list, tuple, np.ndarray), "create_parameter")
    for item in shape:
        check_type(item, "item of shape", (int, np.integer), "create_parameter")
    check_dtype(dtype, "dtype", (*FILLED, "int8", "uint8", "int16"), "create_parameter")
    check_type(attr, "attr", (type(None), ParamAttr), "create_parameter")
    check_type(default_initializer, "default_initializer", (type(None), Initializer), "create_parameter")
    helper = LayerHelper("create_parameter", name=name)
    if attr is None:
        attr = ParamAttr(name=name)
    parameter = helper.create_parameter(attr, list(shape), convert_dtype(dtype), is_bias, default_initializer)
    assert parameter is not None
    return parameter


def create_global_var(
    shape: list[int],
    value: float,
    dtype: Any,
    persistable: bool = False,
    force_cpu: bool = False,
    name: str | None = None,
) -> Variable:
    """Create a variable in the global block, which the startup program fills with ``value``.

    Examples:
        >>> step = fluid.layers.create_global_var([1], 3.0, "float32", persistable=True, name="step")
        >>> startup = fluid.Executor().run(fluid.default_startup_program())
        >>> np.array(fluid.global_scope().find_var("step").get_tensor())
        array([3.], dtype=float32)
    """
    check_type(shape, "shape", (list, tuple, np.ndarray), "create_global_var")
    for dim in shape:
        check_type(dim, "item of shape", (int, np.integer), "create_global_var")
    check_dtype(dtype, "dtype", (*FILLED, "int8", "uint8", "int16"), "create_global_var")
    helper = LayerHelper("global_var", name=name)
    var = helper.create_global_variable(
        dtype=dtype, shape=list(shape), persistable=persistable, name=name, stop_gradient=True
    )
    helper.set_variable_initializer(var, initializer=Constant(value=float(value), force_cpu=force_cpu))
    return var


def concat(input: Variable | list[Variable], axis: int | Variable = 0, name: str | None = None) -> Variable:
    """Concatenate a list of tensors, or the elements of a tensor array, along ``axis`` (an int, or a Variable [1]).

    In eager mode a single tensor stands for the list of its rows.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     x = fluid.dygraph.to_variable(np.float32([[1, 2]]))
        ...     print(fluid.layers.concat([x, x * 10], axis=1).numpy())
        [[ 1.  2. 10. 20.]]
    """
    if not isinstance(input, (list, tuple)):
        input = list(input) if in_dygraph_mode() and isinstance(input, Variable) else [input]
    for i, x in enumerate(input):
        check_variable_and_dtype(x, f"input[{i}]", NUMBERS, "concat")
    check_type(axis, "axis", (int, Variable), "concat")
    if input[0].type != VarType.LOD_TENSOR_ARRAY and not isinstance(axis, Variable):
        found = emit_again("concat", {"X": input}, ("Out",), {"axis": axis}, name=name)
        if found is not None:
            return found[0]
    helper = LayerHelper("concat", input=list(input), name=name)
    out = helper.create_variable_for_type_inference(dtype=helper.input_dtype())
    if input[0].type == VarType.LOD_TENSOR_ARRAY:
        return _joined_array(helper, input, out, axis)
    inputs: dict[str, Any] = {"X": list(input)}
    attrs: dict[str, Any] = {}
    if isinstance(axis, Variable):
        axis.stop_gradient = True
        inputs["AxisTensor"] = axis
    else:
        attrs["axis"] = axis
    helper.append_op(type="concat", inputs=inputs, outputs={"Out": [out]}, attrs=attrs)
    return out


def _joined_array(helper: LayerHelper, arrays: Any, out: Variable, axis: Any) -> Variable:
    """Join the elements of a tensor array into one tensor."""
    assert len(arrays) == 1, f"concat takes one tensor array, received {len(arrays)}; pass them one by one"
    index = helper.create_variable_for_type_inference(dtype="int32")
    outputs = {"Out": [out], "OutIndex": [index]}
    attrs = {"axis": axis, "use_stack": False}
    helper.append_op(type="tensor_array_to_tensor", inputs={"X": arrays[0]}, outputs=outputs, attrs=attrs)
    return out


def tensor_array_to_tensor(
    input: Any, axis: int = 1, name: str | None = None, use_stack: bool = False
) -> tuple[Variable, Variable]:
    """The elements of a tensor array, concatenated or stacked along ``axis``, and their int32 sizes along it.

    In eager mode ``input`` is a list of variables.
    """
    if in_dygraph_mode():
        op_type, slot = ("stack", "Y") if use_stack else ("concat", "Out")
        joined = emit(op_type, {"X": list(input)}, input[0].dtype, {"axis": axis}, slot=slot)
        sizes = [x.shape[axis] if axis < len(x.shape) else 1 for x in input]  # of a new last axis it is 1
        return joined, assign(np.array(sizes, "int64"))
    helper = LayerHelper("tensor_array_to_tensor", input=input, name=name)
    if not isinstance(input, Variable) or input.type != VarType.LOD_TENSOR_ARRAY:
        raise TypeError(
            "input of tensor_array_to_tensor should be a LoDTensorArray variable; make one with array_write"
        )
    out = helper.create_variable_for_type_inference(dtype=helper.input_dtype())
    index = helper.create_variable_for_type_inference(dtype="int32")
    helper.append_op(
        type="tensor_array_to_tensor",
        inputs={"X": input},
        outputs={"Out": [out], "OutIndex": [index]},
        attrs={"axis": axis, "use_stack": use_stack},
    )
    return out, index


def sums(input: Variable | list[Variable], out: Variable | None = None) -> Variable:
    """The sum of a list of tensors, of one dtype unless ``out``, to which it is then written, is given."""
    if isinstance(input, (list, tuple)):
        for i, x in enumerate(input):
            check_variable_and_dtype(x, f"input[{i}]", FULL_NUMBERS, "sums")
    else:
        check_variable_and_dtype(input, "input", FULL_NUMBERS, "sums")
        input = [input]
    if out is not None:
        check_variable_and_dtype(out, "out", FULL_NUMBERS, "sums")
    dtype = common_dtype("sums", input) if out is None else out.dtype
    return emit("sum", {"X": input}, dtype, {"use_mkldnn": False}, out=out)


_ASSIGNED = {
    "bool": ("bool_values", bool),
    "float32": ("fp32_values", float),
    "int32": ("int32_values", int),
    "int64": ("int64_values", int),
}


def assign(input: Variable | np.ndarray, output: Variable | None = None) -> Variable:
    """A copy of a variable or a NumPy array; written to ``output`` if given.

    Args:
        input: a Variable; or an array of bool, float32, int32 or int64 with at most 1024 * 1024 elements.

    Raises:
        TypeError: unsupported type or dtype.
        ValueError: the array is too large for an attribute.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     print(fluid.layers.assign(np.float32([1, 2])).numpy())
        [1. 2.]
    """
    check_type(input, "input", (Variable, np.ndarray), "assign")
    if isinstance(input, Variable):
        check_dtype(input.dtype, "input", FILLED, "assign")
        return emit("assign", {"X": [input]}, input.dtype, out=output)
    if not isinstance(input, np.ndarray):  # which the check above lets pass in eager mode
        raise TypeError(
            f"The type of 'input' in assign must be a Variable or numpy.ndarray, but received {type(input)}; convert it"
            " with numpy.array"
        )
    key = input.dtype.name
    if key not in _ASSIGNED:
        raise TypeError(
            f"When the type of 'input' in assign is numpy.ndarray, its data type must be one of {list(_ASSIGNED)}, but"
            f" received {key}; convert it with astype"
        )
    if input.size > 1024 * 1024:
        raise ArgumentError(
            f"The size of input is too big: {input.size} elements, expected at most {1024 * 1024}."
            " Please consider saving it to file and 'load_op' to load it"
        )
    attr, kind = _ASSIGNED[key]
    values = [kind(v) for v in input.flat]
    attrs = {"dtype": int(to_var_type(input.dtype)), "shape": list(input.shape), attr: values}
    return emit("assign_value", {}, input.dtype, attrs, layer="assign", out=output)


def argmin(x: Variable, axis: int = 0) -> Variable:
    """Indices of the minima along ``axis``, int64."""
    return _arg("arg_min", x, axis)


def argmax(x: Variable, axis: int = 0) -> Variable:
    """Indices of the maxima along ``axis``, int64."""
    return _arg("arg_max", x, axis)


def _arg(op_type: str, x: Variable, axis: int) -> Variable:
    known = ("float32", "float64", "uint8", "int16", "int32", "int64")
    check_variable_and_dtype(x, "x", known, "argmax" if op_type == "arg_max" else "argmin")
    out = emit(op_type, {"X": x}, VarType.INT64, {"axis": axis})
    out.stop_gradient = True
    return out


def argsort(
    input: Variable, axis: int = -1, descending: bool = False, name: str | None = None
) -> tuple[Variable, Variable]:
    """``input`` sorted along ``axis``, and the int64 indices that sort it."""
    known = ("float32", "float64", "int16", "int32", "int64", "uint8")
    check_variable_and_dtype(input, "input", known, "argsort")
    stopped = not in_dygraph_mode()  # eager mode's gradients flow through a sort, a program's do not
    outputs = [("Out", input.dtype, stopped), ("Indices", VarType.INT64, stopped)]
    attrs = {"axis": axis, "descending": descending}
    out, indices = emit_many("argsort", {"X": input}, outputs, attrs, name=name)
    return out, indices


def reverse(x: Variable, axis: int | list[int]) -> Variable:
    """``x`` with the order of its elements reversed along one or more dimensions."""
    kinds = (*FULL_NUMBERS, "uint8", "bool") if in_dygraph_mode() else (*FULL_NUMBERS, "uint8")
    check_variable_and_dtype(x, "x", kinds, "reverse")
    check_type(axis, "axis", (int, tuple, list), "reverse")
    axes = [axis] if isinstance(axis, int) else list(axis)
    return emit("reverse", {"X": x}, x.dtype, {"axis": axes})


def has_inf(x: Variable) -> Variable:
    """Whether any element is infinite: bool [1]."""
    check_type(x, "x", Variable, "has_inf")
    return emit("isinf", {"X": x}, x.dtype)


def has_nan(x: Variable) -> Variable:
    """Whether any element is NaN: bool [1]."""
    check_type(x, "x", Variable, "has_nan")
    return emit("isnan", {"X": x}, x.dtype)


def isfinite(x: Variable) -> Variable:
    """Whether all elements are finite: bool [1]."""
    check_variable_and_dtype(x, "x", FULL_NUMBERS, "isfinite")
    return emit("isfinite", {"X": x}, "bool")


def diag(diagonal: Variable | np.ndarray) -> Variable:
    """A square matrix with the vector ``diagonal`` on its diagonal."""
    check_type(diagonal, "diagonal", (Variable, np.ndarray), "diag")
    if not isinstance(diagonal, Variable):
        diagonal = assign(diagonal)
    check_dtype(diagonal.dtype, "diagonal", FULL_NUMBERS, "diag")
    out = emit("diag", {"Diagonal": [diagonal]}, diagonal.dtype)
    out.stop_gradient = True
    return out


__getattr__ = unknown_name(__name__)
