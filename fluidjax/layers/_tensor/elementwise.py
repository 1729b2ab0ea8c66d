"""Binary operators, logic, scaling and sums of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers.tensor import assign, sums
from fluidjax.writing.checks import (
    FLOATS,
    FULL_NUMBERS,
    INTS,
    NUMBERS,
    check_type,
    check_variable_and_dtype,
    convert_dtype,
)
from fluidjax.writing.emit import emit

__all__ = [
    "elementwise_add",
    "elementwise_sub",
    "elementwise_mul",
    "elementwise_div",
    "elementwise_max",
    "elementwise_min",
    "elementwise_pow",
    "elementwise_mod",
    "elementwise_floordiv",
    "logical_and",
    "logical_or",
    "logical_xor",
    "addcmul",
    "clamp",
    "clip",
    "elementwise_equal",
    "logical_not",
    "scale",
    "sum",
]


def _elementwise_op(helper: LayerHelper) -> Variable:
    """The result of an op whose operands ``x`` and ``y``, ``axis``, ``act`` and ``name`` a LayerHelper was given."""
    given, op_type = helper.kwargs, helper.layer_type
    for name in ("x", "y"):
        assert given.get(name) is not None, f"{name} cannot be None in {op_type}"
        check_variable_and_dtype(given[name], name, NUMBERS, op_type)
    out = helper.create_variable_for_type_inference(given["x"].dtype)
    inputs = {"X": given["x"], "Y": given["y"]}
    helper.append_op(type=op_type, inputs=inputs, outputs={"Out": out}, attrs={"axis": given.get("axis", -1)})
    return helper.append_activation(out)


def _arithmetic(op_type: str, formula: str, dtypes: tuple[str, ...], result: str) -> Callable[..., Variable]:
    def function(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
        check_variable_and_dtype(x, "x", dtypes, op_type)
        check_variable_and_dtype(y, "y", dtypes, op_type)
        return emit(op_type, {"X": x, "Y": y}, x.dtype, {"axis": axis}, name=name, act=act)

    function.__name__ = function.__qualname__ = op_type
    function.__doc__ = f"""Elementwise out = {formula}, with broadcasting.

    Args:
        x, y: of the same dtype ({", ".join(dtypes)}). The shape of the lower-rank operand must match the other's from
            ``axis`` on; dimensions of size 1 are broadcast.
        axis: where the shapes are aligned; -1 aligns the trailing dimensions.
        act: activation applied to the result.
        name: the layer's name.

    Raises:
        TypeError: an operand is not a Variable, or has an unsupported dtype.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     x = fluid.dygraph.to_variable(np.int64([7, 8]))
        ...     y = fluid.dygraph.to_variable(np.int64([2, 3]))
        ...     print(fluid.layers.{op_type}(x, y).numpy())
        {result}
    """
    return function


elementwise_add = _arithmetic("elementwise_add", "x + y", NUMBERS, "[ 9 11]")
elementwise_sub = _arithmetic("elementwise_sub", "x - y", NUMBERS, "[5 5]")
elementwise_mul = _arithmetic("elementwise_mul", "x * y", NUMBERS, "[14 24]")
elementwise_div = _arithmetic("elementwise_div", "x / y; integers truncate", NUMBERS, "[3 2]")
elementwise_max = _arithmetic("elementwise_max", "max(x, y)", NUMBERS, "[7 8]")
elementwise_min = _arithmetic("elementwise_min", "min(x, y)", NUMBERS, "[2 3]")
elementwise_pow = _arithmetic("elementwise_pow", "x ** y", NUMBERS, "[ 49 512]")
elementwise_mod = _arithmetic("elementwise_mod", "the remainder of x / y", NUMBERS, "[1 2]")
elementwise_floordiv = _arithmetic("elementwise_floordiv", "x / y without its fraction", NUMBERS, "[3 2]")


def _logical(op_type: str, inputs: dict[str, Any], out: Variable | None, name: str | None) -> Variable:
    for slot, value in inputs.items():
        check_variable_and_dtype(value, slot.lower(), "bool", op_type)
    if out is not None:
        check_type(out, "out", Variable, op_type)
    return emit(op_type, inputs, next(iter(inputs.values())).dtype, name=name, out=out)


def _logic(op_type: str, formula: str) -> Callable[..., Variable]:
    def function(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
        return _logical(op_type, {"X": x, "Y": y}, out, name)

    function.__name__ = function.__qualname__ = op_type
    function.__doc__ = f"""out = {formula}, for bool tensors of the same shape; written to ``out`` if given."""
    return function


logical_and = _logic("logical_and", "x and y")
logical_or = _logic("logical_or", "x or y")
logical_xor = _logic("logical_xor", "exactly one of x and y")


def logical_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """out = not x, for a bool tensor; written to ``out`` if given."""
    return _logical("logical_not", {"X": x}, out, name)


def elementwise_equal(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """out = x == y as bool, for tensors of the same shape and dtype."""
    return emit("equal", {"X": [x], "Y": [y]}, "bool", name=name, layer="elementwise_equal", stop_gradient=True)


def scale(
    x: Variable,
    scale: float | Variable = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """out = scale * x + bias, or scale * (x + bias) unless ``bias_after_scale``.

    Args:
        x: any numeric dtype.
        scale: a number, or a Variable [1].
        bias: a number.
        act: activation applied to the result.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     print(fluid.layers.scale(fluid.dygraph.to_variable(np.float32([1, 2])), scale=10.0, bias=0.5).numpy())
        [10.5 20.5]
    """
    dtypes = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")
    check_variable_and_dtype(x, "x", dtypes, "scale")
    inputs: dict[str, Any] = {"X": [x]}
    attrs: dict[str, Any] = {"bias": float(bias), "bias_after_scale": bias_after_scale}
    if isinstance(scale, Variable):
        inputs["ScaleTensor"] = [scale]
    else:
        attrs["scale"] = float(scale)
    return emit("scale", inputs, x.dtype, attrs, name=name, act=act)


def sum(x: Variable | list[Variable]) -> Variable:
    """The sum of a list of tensors of the same shape."""
    return sums(x, out=None)


def clip(x: Variable, min: float, max: float, name: str | None = None) -> Variable:
    """out = x clipped to [min, max]; a floating-point dtype."""
    check_variable_and_dtype(x, "x", FLOATS, "clip")
    return emit("clip", {"X": x}, x.dtype, {"min": float(min), "max": float(max)}, name=name)


def clamp(
    input: Variable,
    min: float | Variable | None = None,
    max: float | Variable | None = None,
    output: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """out = input clipped to [min, max]; each bound may be None, a number or a Variable [1].

    A missing lower bound is -inf (Fluid 1.8 uses the smallest positive float, which clips negative values to it).

    Raises:
        AssertionError: both bounds are missing.
    """
    assert min is not None or max is not None, "clamp: either min or max should be defined; pass one of them"
    check_type(input, "input", Variable, "clamp")
    inputs: dict[str, Any] = {"X": input}
    attrs = {"min": float("-inf"), "max": float("inf")}
    for key, bound in (("min", min), ("max", max)):
        if isinstance(bound, Variable):
            bound.stop_gradient = True
            inputs[key.capitalize()] = bound
        elif bound is not None:
            check_type(bound, key, float, "clamp")
            attrs[key] = float(bound)
    return emit("clip", inputs, input.dtype, attrs, name=name, layer="clamp", out=output)


def addcmul(
    input: Variable,
    tensor1: Variable,
    tensor2: Variable,
    value: float = 1.0,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """out = input + value * tensor1 * tensor2; written to ``out`` if given."""
    for label, var in (("input", input), ("tensor1", tensor1), ("tensor2", tensor2)):
        check_variable_and_dtype(var, label, FULL_NUMBERS, "addcmul")
    check_type(value, "value", int if convert_dtype(input.dtype) in INTS else float, "addcmul")
    result = elementwise_add(input, elementwise_mul(tensor1, tensor2) * value)
    if out is not None:
        assign(result, output=out)
        return out
    del name
    return result
