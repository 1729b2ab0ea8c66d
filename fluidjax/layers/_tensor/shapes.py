"""Shape arguments that may contain Variables, and fill_constant and cast, which create such Variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax.base.enums import VarType, to_var_type
from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Variable, in_dygraph_mode
from fluidjax.layer_helper import LayerHelper
from fluidjax.writing.checks import FILLED, check_dtype, check_type, check_variable_and_dtype, convert_dtype
from fluidjax.writing.emit import emit


def contains_variable(values: Any) -> bool:
    """Whether a list of numbers contains a Variable."""
    for value in values:
        if value.__class__ is not int and isinstance(value, Variable):
            return True
    return False


def cast(x: Variable, dtype: Any) -> Variable:
    """``x`` converted to another dtype: bool, float16, float32, float64, int8, int32, int64 or uint8.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     x = fluid.dygraph.to_variable(np.float32([0.2, 1.7]))
        ...     print(fluid.layers.cast(x, "int64").numpy())
        [0 1]
    """
    known = ("bool", "float16", "float32", "float64", "int32", "int64", "uint8")
    check_variable_and_dtype(x, "x", known, "cast")
    check_dtype(dtype, "dtype", (*known, "int8"), "cast")
    attrs = {"in_dtype": int(x.dtype), "out_dtype": int(to_var_type(dtype))}
    return emit("cast", {"X": [x]}, dtype, attrs)


def fill_constant(shape: Any, dtype: Any, value: Any, force_cpu: bool = False, out: Variable | None = None) -> Variable:
    """A tensor filled with ``value``.

    Args:
        shape: a list of ints and Variables [1], or a Variable.
        dtype: bool, float16, float32, float64, int32 or int64.
        value: a number, or a Variable [1].
        force_cpu: recorded in the op; has no effect.
        out: an existing variable to write to.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     print(fluid.layers.fill_constant([2, 2], "int64", 7).numpy())
        [[7 7]
         [7 7]]
    """
    attrs: dict[str, Any] = {"force_cpu": force_cpu}
    inputs: dict[str, Any] = {}
    if isinstance(value, Variable):
        inputs["ValueTensor"] = value
    else:
        attrs["value"] = _number(value)
        whole = convert_dtype(dtype) in ("int64", "int32")
        attrs["str_value"] = str(int(value)) if whole else str(float(value))
    helper = LayerHelper("fill_constant")
    check_dtype(dtype, "dtype", FILLED, "fill_constant")
    check_type(shape, "shape", (Variable, list, tuple), "fill_constant")
    if out is not None:
        check_variable_and_dtype(out, "out", [convert_dtype(dtype)], "fill_constant")
    shape_argument(helper, inputs, attrs, shape, "fill_constant")
    if out is None:
        make = helper.create_variable if in_dygraph_mode() else helper.create_variable_for_type_inference
        out = make(dtype=dtype)
    attrs["dtype"] = int(out.dtype)
    helper.append_op(type="fill_constant", inputs=inputs, outputs={"Out": [out]}, attrs=attrs)
    out.stop_gradient = True
    return out


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(
            f"'value' in fill_constant must be a number or a Variable [1], but received {value!r:.60}. Pass a number."
        ) from None


def constants(value: int, dtype: str = "int32") -> Variable:
    """A Variable [1] that holds a number known at build time."""
    return fill_constant([1], dtype, value, force_cpu=True)


def as_tensors(helper: LayerHelper, values: Sequence[Any], dtype: str = "int32") -> list[Variable]:
    """Each number or Variable of a list as a Variable [1]; numbers become temporaries of the layer."""
    tensors = []
    for value in values:
        if isinstance(value, Variable):
            value.stop_gradient = True
            tensors.append(value)
        else:
            made = helper.create_variable_for_type_inference(dtype)
            tensors.append(fill_constant([1], dtype, value, force_cpu=True, out=made))
    return tensors


def as_attr(values: Sequence[Any], unknown: int = -1) -> list[int]:
    """The numbers of a list, with ``unknown`` in place of each Variable."""
    return [unknown if isinstance(v, Variable) else _whole(v) for v in values]


def _whole(value: Any) -> int:
    if isinstance(value, str):
        raise TypeError(f"sizes must be ints or Variables, received {value!r}. Pass a number.")
    return int(value)


def _as_int32(value: Variable, name: str, op_type: str) -> Variable:
    check_dtype(value.dtype, name, ("int32", "int64"), op_type)
    return cast(value, "int32") if value.dtype == VarType.INT64 else value


def shape_argument(
    helper: LayerHelper, inputs: dict[str, Any], attrs: dict[str, Any], shape: Any, op_type: str
) -> None:
    """Bind a shape to an op: attribute ``shape``, input ShapeTensor (a Variable) or ShapeTensorList (a mixed list)."""
    if isinstance(shape, Variable):
        shape.stop_gradient = True
        inputs["ShapeTensor"] = _as_int32(shape, "shape", op_type)
        return
    if not len(shape):
        raise AssertionError(f"The size of argument(shape) of {op_type} can't be zero; pass at least one dim")
    attrs["shape"] = as_attr(shape)
    if any(not isinstance(v, Variable) and v < 0 for v in shape):
        raise ArgumentError(
            f"Each value of attribute 'shape' of {op_type} is expected to be no less than 0, received {list(shape)}."
            " Take unknown sizes from a tensor with fill_constant_batch_size_like or fluid.layers.shape."
        )
    if contains_variable(shape):
        tensors = []
        for i, value in enumerate(shape):
            if isinstance(value, Variable):
                value.stop_gradient = True
                tensors.append(_as_int32(value, f"shape[{i}]", op_type))
            else:
                tensors.append(constants(int(value)))
        inputs["ShapeTensorList"] = tensors
