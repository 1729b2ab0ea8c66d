"""Comparisons, counters, printing and tensor arrays: the small layers that loops and branches are built from."""

from __future__ import annotations

from typing import Any

from fluidjax.data_feeder import check_type
from fluidjax.framework import Variable, in_dygraph_mode
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._control_flow import eager
from fluidjax.layers._control_flow.checks import VarType, require_array, require_dtype, require_variable
from fluidjax.writing.checks import FULL_NUMBERS

__all__ = [
    "array_length",
    "array_read",
    "array_write",
    "create_array",
    "equal",
    "greater_equal",
    "greater_than",
    "increment",
    "is_empty",
    "less_equal",
    "less_than",
    "not_equal",
    "Print",
]


def _compare(op_type: str, x: Variable, y: Variable, cond: Variable | None, attrs: dict | None = None) -> Variable:
    require_dtype(x, "x", op_type, FULL_NUMBERS)
    require_dtype(y, "y", op_type, FULL_NUMBERS)
    helper = LayerHelper(op_type)
    if cond is None:
        cond = helper.create_variable_for_type_inference(dtype="bool")
        cond.stop_gradient = True
    require_variable(cond, "cond", op_type)
    helper.append_op(type=op_type, inputs={"X": [x], "Y": [y]}, outputs={"Out": [cond]}, attrs=attrs or {})
    return cond


def less_than(x: Variable, y: Variable, force_cpu: bool | None = None, cond: Variable | None = None) -> Variable:
    """Elementwise ``cond = x < y``, with y broadcast to x.

    Args:
        x, y: Variables of float32, float64, int32 or int64.
        force_cpu: recorded in the op; has no effect.
        cond: the bool Variable to write to; created if None.

    Returns:
        The bool Variable.

    Raises:
        TypeError: x or y is not a Variable, or has an unsupported dtype; force_cpu is not a bool.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     x = fluid.dygraph.to_variable(np.float32([1, 3]))
        ...     print(fluid.layers.less_than(x, fluid.layers.fill_constant([2], "float32", 2)).numpy())
        [ True False]
    """
    if force_cpu is not None:
        check_type(force_cpu, "force_cpu", bool, "less_than")
    return _compare("less_than", x, y, cond, None if force_cpu is None else {"force_cpu": force_cpu})


def less_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """Elementwise ``cond = x <= y``; arguments and errors as for `less_than`."""
    return _compare("less_equal", x, y, cond)


def greater_than(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """Elementwise ``cond = x > y``; arguments and errors as for `less_than`."""
    return _compare("greater_than", x, y, cond)


def greater_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """Elementwise ``cond = x >= y``; arguments and errors as for `less_than`."""
    return _compare("greater_equal", x, y, cond)


def equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """Elementwise ``cond = x == y``; floats are equal where they differ by less than 1e-8, as in 1.8.5.

    Arguments and errors as for `less_than`.
    """
    return _compare("equal", x, y, cond)


def not_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """Elementwise ``cond = x != y``, the opposite of `equal`; arguments and errors as for `less_than`."""
    return _compare("not_equal", x, y, cond)


def is_empty(x: Variable, cond: Variable | None = None) -> Variable:
    """Whether x has no elements, as a bool Variable of shape [1].

    Raises:
        TypeError: x or cond is not a Variable, or cond is none of bool.
    """
    require_dtype(x, "x", "is_empty", FULL_NUMBERS)
    helper = LayerHelper("is_empty")
    if cond is None:
        cond = helper.create_variable_for_type_inference(dtype="bool")
        cond.stop_gradient = True
    require_dtype(cond, "cond", "is_empty", ("bool",))
    helper.append_op(type="is_empty", inputs={"X": [x]}, outputs={"Out": [cond]})
    return cond


def increment(x: Variable, value: float = 1.0, in_place: bool = True) -> Variable:
    """``out = x + value`` for a single-element Variable; updates x itself when ``in_place``.

    Args:
        x: Variable of shape [1]: float32, float64, int32 or int64.
        value: the increment.
        in_place: write the result to x, as loop counters require.

    Returns:
        x, or a new Variable of the same dtype.
    """
    require_dtype(x, "x", "increment", FULL_NUMBERS)
    helper = LayerHelper("increment")
    out = x if in_place else helper.create_variable_for_type_inference(dtype=x.dtype)
    helper.append_op(type="increment", inputs={"X": [x]}, outputs={"Out": [out]}, attrs={"step": float(value)})
    return out


def Print(
    input: Variable,
    first_n: int = -1,
    message: str | None = None,
    summarize: int = 20,
    print_tensor_name: bool = True,
    print_tensor_type: bool = True,
    print_tensor_shape: bool = True,
    print_tensor_lod: bool = True,
    print_phase: str = "both",
) -> Variable:
    """Pass ``input`` through unchanged, printing it each time the op runs.

    Args:
        input: the Variable to print.
        first_n: print the first n times only; -1 for every time.
        message: text printed before the value.
        summarize: number of elements to print; -1 for all.
        print_tensor_name, print_tensor_type, print_tensor_shape, print_tensor_lod: what else to print.
        print_phase: "forward", "backward" (the gradient only) or "both".

    Returns:
        A Variable with the value of ``input``. Later layers must consume it, or the backward pass prints nothing.
    """
    require_dtype(input, "input", "Print", (*FULL_NUMBERS, "bool"))
    helper = LayerHelper("print_" + input.name)
    out = helper.create_variable_for_type_inference(dtype=input.dtype)
    attrs = {
        "first_n": first_n,
        "summarize": summarize,
        "message": message or "",
        "print_tensor_name": print_tensor_name,
        "print_tensor_type": print_tensor_type,
        "print_tensor_shape": print_tensor_shape,
        "print_tensor_lod": print_tensor_lod,
        "print_phase": print_phase.upper(),
    }
    helper.append_op(type="print", inputs={"In": [input]}, outputs={"Out": [out]}, attrs=attrs)
    return out


def create_array(dtype: str) -> Any:
    """Create an empty LOD_TENSOR_ARRAY variable with elements of ``dtype``; in eager mode, an empty list."""
    if in_dygraph_mode():
        return []
    helper = LayerHelper("array")
    return helper.create_variable(name=f"{helper.name}.out", type=VarType.LOD_TENSOR_ARRAY, dtype=dtype)


def array_write(x: Variable, i: Variable, array: Any = None) -> Any:
    """``array[i] = x``, growing the array to hold index i.

    Args:
        x: the Variable to store.
        i: int64 Variable of shape [1].
        array: the array to write to; created if None.

    Returns:
        The array.

    Raises:
        TypeError: i is not int64, or ``array`` is not an array.
    """
    if in_dygraph_mode():
        return eager.array_write(x, i, array)
    require_dtype(i, "i", "array_write", ("int64",))
    require_variable(x, "x", "array_write")
    helper = LayerHelper("array_write")
    if array is None:
        array = helper.create_variable(name=f"{helper.name}.out", type=VarType.LOD_TENSOR_ARRAY, dtype=x.dtype)
    require_array(array, "array", "array_write")
    helper.append_op(type="write_to_array", inputs={"X": [x], "I": [i]}, outputs={"Out": [array]})
    return array


def array_read(array: Any, i: Variable) -> Variable:
    """``out = array[i]``; i is an int64 Variable of shape [1].

    Raises:
        TypeError: ``array`` is not an array or i is not int64.
    """
    if in_dygraph_mode():
        return eager.array_read(array, i)
    require_dtype(i, "i", "array_read", ("int64",))
    require_array(array, "array", "array_read")
    helper = LayerHelper("array_read")
    out = helper.create_variable_for_type_inference(dtype=array.dtype)
    helper.append_op(type="read_from_array", inputs={"X": [array], "I": [i]}, outputs={"Out": [out]})
    return out


def array_length(array: Any) -> Any:
    """The number of elements in ``array``, int64 of shape [1].

    Raises:
        TypeError: ``array`` is not an array.
    """
    if in_dygraph_mode():
        return eager.array_length(array)
    require_array(array, "array", "array_length")
    helper = LayerHelper("array_length")
    out = helper.create_variable_for_type_inference(dtype="int64")
    out.stop_gradient = True
    helper.append_op(type="lod_array_length", inputs={"X": [array]}, outputs={"Out": [out]})
    return out
