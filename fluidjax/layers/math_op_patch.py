"""Operators on variables: ``x + y``, ``2 * x``, ``x < y``, ``x.astype('int64')`` write ops.

With a plain number, ``+ - * /`` become one ``scale`` op; other operators create a constant variable.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from fluidjax import unique_name
from fluidjax.base.enums import INTEGERS, VarType, to_var_type
from fluidjax.framework import Block, Variable
from fluidjax.framework.callstack import depth_of_user


def _block(var: Variable) -> Block:
    return var.block.program.current_block()


def _temporary(var: Variable, dtype: VarType, stop_gradient: bool = False) -> Variable:
    name = unique_name.generate_with_ignorable_key("tmp")
    return _block(var).create_var(name=name, dtype=dtype, stop_gradient=stop_gradient)


def _scaled(var: Variable, scale: float, bias: float) -> Variable:
    """scale * var + bias."""
    out = _temporary(var, var.dtype)
    attrs = {"scale": float(scale), "bias": float(bias)}
    _block(var).append_op(type="scale", inputs={"X": [var]}, outputs={"Out": [out]}, attrs=attrs)
    return out


def _scalar(var: Variable, value: float, dtype: VarType) -> Variable:
    """A constant of shape [1]."""
    return _constant(var, value, dtype, [1])


def _constant(var: Variable, value: float, dtype: VarType, shape: list[int]) -> Variable:
    out = _temporary(var, dtype, stop_gradient=True)
    attrs = {"dtype": int(dtype), "shape": shape, "value": float(value), "force_cpu": False}
    _block(var).append_op(type="fill_constant", outputs={"Out": [out]}, attrs=attrs)
    return out


def _like(var: Variable, value: float, dtype: VarType) -> Variable:
    """A constant shaped like `var`; its first unknown dimension is determined at run time, the others are 1."""
    unknown = next((axis for axis, size in enumerate(var.shape) if size < 0), None)
    if unknown is None:
        return _constant(var, value, dtype, list(var.shape))
    out = _temporary(var, dtype, stop_gradient=True)
    attrs: dict[str, Any] = {
        "shape": [1 if size < 0 and axis != unknown else size for axis, size in enumerate(var.shape)],
        "value": float(value),
        "dtype": int(dtype),
        "input_dim_idx": unknown,
        "output_dim_idx": unknown,
    }
    _block(var).append_op(
        type="fill_constant_batch_size_like", inputs={"Input": [var]}, outputs={"Out": [out]}, attrs=attrs
    )
    return out


def astype(self: Variable, dtype: Any) -> Variable:
    """The variable cast to another dtype."""
    kind = to_var_type(dtype)
    out = _temporary(self, kind)
    attrs = {"in_dtype": int(self.dtype), "out_dtype": int(kind)}
    _block(self).append_op(type="cast", inputs={"X": [self]}, outputs={"Out": [out]}, attrs=attrs)
    return out


# A scale op would compute these with the fraction; the others meet a constant of the variable's type.
_NEED_WHOLE = ("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__")


def check_number(var: Any, other: Any, symbol: str) -> None:
    """Raise AssertionError for a fractional number added to or multiplied with an integer variable, as Fluid does.

    Fluid cuts it to a whole one where it divides, raises or compares: ``x < 0.5`` is ``x < 0``. A warning says so.
    """
    if not isinstance(other, float) or var.dtype not in INTEGERS or not math.isfinite(other) or other == int(other):
        return
    if symbol in _NEED_WHOLE:
        raise AssertionError(
            f"float value {other} cannot convert to integer, which {symbol} with variable {var.name} of {var.dtype} "
            "needs. Cast the variable first: var.astype('float32')."
        )
    warnings.warn(
        f"{symbol} of variable {var.name} of {var.dtype} and {other}: Fluid makes the number one of the variable's "
        f"type, which is {int(other)}. Cast the variable first if the fraction matters: var.astype('float32').",
        stacklevel=depth_of_user(),
    )


def _operand(var: Variable, other: Any, reverse: bool, symbol: str) -> Variable:
    """The other operand as a variable of the same dtype."""
    if not isinstance(other, Variable):
        try:
            value = float(other.item() if isinstance(other, np.ndarray) else other)
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(other, np.ndarray) else type(error)
            raise kind(
                f"{symbol} with variable {var.name}: {other!r} is neither a Variable nor a number ({error}). Make it a "
                "variable with fluid.layers.assign."
            ) from None
        return _like(var, value, var.dtype) if reverse else _scalar(var, value, var.dtype)
    return other if other.dtype == var.dtype else astype(other, var.dtype)


def _plain(number: Any) -> Any:
    """NumPy scalars to the left of an operator, converted to Python numbers as NumPy does for Fluid's variables."""
    scalar = isinstance(number, np.generic) or (isinstance(number, np.ndarray) and number.ndim == 0)
    return number.item() if scalar else number


def _binary(
    method: str, op_type: str, reverse: bool = False, scale_of: Callable[[float], tuple[float, float]] | None = None
) -> Callable[[Variable, Any], Variable]:
    """The Variable method that writes `op_type`; for a number, a scale op whose scale and bias come from `scale_of`."""
    reflected = method.startswith("__r")

    def operate(self: Variable, other_var: Any) -> Variable:
        if reflected:
            other_var = _plain(other_var)
        check_number(self, other_var, method)
        whole_division = op_type == "elementwise_div" and self.dtype in INTEGERS
        if scale_of is not None and isinstance(other_var, (int, float)) and not whole_division:
            return _scaled(self, *scale_of(other_var))
        other = _operand(self, other_var, reverse, method)
        left, right = (other, self) if reverse else (self, other)
        out = _temporary(self, self.dtype)
        axis = 0 if right.shape and right.shape[0] == -1 else -1
        _block(self).append_op(
            type=op_type, inputs={"X": [left], "Y": [right]}, outputs={"Out": out}, attrs={"axis": axis}
        )
        return out

    operate.__name__ = method
    operate.__doc__ = f"Write a ``{op_type}`` op of the two, {'the other one first' if reverse else 'this one first'}."
    return operate


def _negated(var: Variable) -> Variable:
    """Write a ``scale`` op with factor -1."""
    return _scaled(var, -1.0, 0.0)


# Method -> op type, whether the other side comes first, scale and bias of the scale op that does it with a number.
METHODS: dict[str, tuple[str, bool, Callable[[float], tuple[float, float]] | None]] = {
    "__add__": ("elementwise_add", False, lambda v: (1.0, v)),
    "__radd__": ("elementwise_add", False, lambda v: (1.0, v)),
    "__sub__": ("elementwise_sub", False, lambda v: (1.0, -float(v))),
    "__rsub__": ("elementwise_sub", True, lambda v: (-1.0, v)),
    "__mul__": ("elementwise_mul", False, lambda v: (v, 0.0)),
    "__rmul__": ("elementwise_mul", False, lambda v: (v, 0.0)),
    "__div__": ("elementwise_div", False, lambda v: (1.0 / v, 0.0)),
    "__truediv__": ("elementwise_div", False, lambda v: (1.0 / v, 0.0)),
    "__rdiv__": ("elementwise_div", True, None),
    "__rtruediv__": ("elementwise_div", True, None),
    "__pow__": ("elementwise_pow", False, None),
    "__rpow__": ("elementwise_pow", True, None),
    "__floordiv__": ("elementwise_floordiv", False, None),
    "__mod__": ("elementwise_mod", False, None),
    "__eq__": ("equal", False, None),
    "__ne__": ("not_equal", False, None),
    "__lt__": ("less_than", False, None),
    "__le__": ("less_equal", False, None),
    "__gt__": ("greater_than", False, None),
    "__ge__": ("greater_equal", False, None),
}


def monkey_patch_variable() -> None:
    """Add the operators to Variable."""
    for method, (op_type, reverse, scale_of) in METHODS.items():
        setattr(Variable, method, _binary(method, op_type, reverse, scale_of))
    for method, function in (("__neg__", _negated), ("astype", astype)):
        setattr(Variable, method, function)
