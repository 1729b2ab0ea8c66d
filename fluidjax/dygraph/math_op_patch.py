"""Operators on eager variables; the choice of op and the treatment of numbers are those of static mode.

The differences: two variables must have the same dtype, and all shapes are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from fluidjax.base.enums import INTEGERS, VarType, to_var_type
from fluidjax.base.errors import EnforceNotMet, explain
from fluidjax.base.mode import current_tracer
from fluidjax.eager.kernels import Kernel, kernel_of
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.layers.math_op_patch import METHODS, check_number

__all__ = ["monkey_patch_math_varbase"]


def _tracer(what: str) -> Any:
    tracer = current_tracer()
    if tracer is None:
        raise EnforceNotMet(
            explain(
                f"{what} on a variable of eager mode, which is off",
                "a use under fluid.dygraph.guard()",
                "no guard",
                "move it inside the guard, or take the value with numpy()",
            )
        )
    return tracer


def _write(op_type: str, inputs: dict[str, VarBase], attrs: dict[str, Any]) -> VarBase:
    kernel = kernel_of(op_type, attrs, tuple(inputs), ("Out",))
    return _tracer(op_type).apply(kernel, tuple(inputs.values()))[0]


@lru_cache(maxsize=4096)
def _scale(scale: float, bias: float) -> Kernel:
    return kernel_of("scale", {"scale": scale, "bias": bias}, ("X",), ("Out",))


def _scaled(var: VarBase, scale: float, bias: float) -> VarBase:
    return (current_tracer() or _tracer("scale")).apply(_scale(float(scale), float(bias)), (var,))[0]


def _constant(value: float, dtype: VarType, shape: list[int]) -> VarBase:
    tracer = _tracer("fill_constant")
    out = VarBase._of(tracer.generate("generated_var"), None)
    attrs = {"dtype": int(dtype), "shape": shape, "value": float(value), "force_cpu": False}
    tracer.trace_op("fill_constant", {}, {"Out": out}, attrs)
    out.stop_gradient = True
    return out


def _operand(var: VarBase, other: Any, reverse: bool, symbol: str) -> VarBase:
    """The other operand as a variable of the same dtype."""
    if isinstance(other, VarBase):
        if other.dtype is not var.dtype:
            raise TypeError(
                f"{symbol}: the dtypes of the variables differ: {var.name} is {var.dtype}, {other.name} is "
                f"{other.dtype}. Expected one dtype. Cast one of them with astype."
            )
        return other
    try:
        value = math.nan if isinstance(other, (np.ndarray, str)) else float(other)
    except (TypeError, ValueError):
        value = math.nan
    if math.isnan(value) and not isinstance(other, (float, np.floating)):
        raise EnforceNotMet(
            explain(
                f"{symbol} with variable {var.name}",
                "a variable or a number",
                f"{type(other).__name__} {other!r:.60}",
                "make an array a variable with fluid.dygraph.to_variable",
            )
        )
    return _constant(value, var.dtype, var.shape if reverse else [1])


def _binary(
    method: str, op_type: str, reverse: bool, scale_of: Callable[[float], tuple[float, float]] | None
) -> Callable[[VarBase, Any], VarBase]:
    kernel: Kernel = kernel_of(op_type, {"axis": -1}, ("X", "Y"), ("Out",))

    def operate(self: VarBase, other_var: Any) -> VarBase:
        if isinstance(other_var, VarBase):
            tracer = current_tracer() or _tracer(method)
            known = tracer.follow(kernel, (other_var, self) if reverse else (self, other_var))
            if known is not None:
                return known[0]
        else:
            check_number(self, other_var, method)
            whole_division = op_type == "elementwise_div" and self.dtype in INTEGERS
            if scale_of is not None and isinstance(other_var, (int, float)) and not whole_division:
                return _scaled(self, *scale_of(other_var))
        other = _operand(self, other_var, reverse, method)
        tracer = current_tracer() or _tracer(method)
        return tracer.apply(kernel, (other, self) if reverse else (self, other))[0]

    operate.__name__ = method
    operate.__doc__ = f"A ``{op_type}`` op of the two, {'the other one first' if reverse else 'this one first'}."
    return operate


def _negated(self: VarBase) -> VarBase:
    """A ``scale`` op with factor -1."""
    return _scaled(self, -1.0, 0.0)


def astype(self: VarBase, dtype: Any) -> VarBase:
    """The variable cast to another dtype, given as a NumPy dtype or its name."""
    if isinstance(dtype, VarType):
        raise TypeError(f"astype: expected a NumPy dtype or its name, received {dtype}. Write 'float32'.")
    kind = to_var_type(dtype)
    return _write("cast", {"X": self}, {"in_dtype": int(self.dtype), "out_dtype": int(kind)})


def _getitem(self: VarBase, item: Any) -> VarBase:
    """The elements selected by indices and slices; `self` where the slices name whole axes.

    An index removes its axis, unless a slice beside it has a step: then the axis stays, of size 1, as in 1.8.5.
    """
    items = list(item) if isinstance(item, tuple) else [item]
    if len(items) > len(self._spec.shape):
        raise _index_error(self, item, f"at most {len(self._spec.shape)} indices")
    axes, starts, ends, steps, dropped = [], [], [], [], []
    for axis, index in enumerate(items):
        start, end, step = _bounds(self, item, axis, index)
        if not isinstance(index, slice):
            dropped.append(axis)
        elif _is_whole(index, self._spec.shape[axis]):
            continue
        axes.append(axis)
        starts.append(start)
        ends.append(end)
        steps.append(step)
    if not axes:
        return self
    attrs: dict[str, Any] = {"axes": axes, "starts": starts, "ends": ends, "infer_flags": [1] * len(axes)}
    if all(step == 1 for step in steps):
        return _write("slice", {"Input": self}, {**attrs, "decrease_axis": dropped})
    return _write("strided_slice", {"Input": self}, {**attrs, "strides": steps})


def _is_whole(index: slice, size: int) -> bool:
    """Whether a slice names an axis as it is; bounds beyond its ends are cut off by an op, as in 1.8.5."""
    bounds = (index.start in (None, 0, -size), index.stop in (None, size), index.step in (None, 1))
    return all(bounds)


def _bounds(var: VarBase, item: Any, axis: int, index: Any) -> tuple[int, int, int]:
    size = var._spec.shape[axis]
    if isinstance(index, slice):
        try:
            bounds = slice(_wrapped(index.start, size), _wrapped(index.stop, size), index.step)
            start, end, step = bounds.indices(size)
        except TypeError:
            raise _index_error(var, item, "slices of integers") from None
        if not len(range(start, end, step)):
            raise _index_error(var, item, "slices that choose at least one element")
        return start, end if end >= 0 else -size - 1, step
    if type(index) is not int:
        raise _index_error(var, item, "integers, slices and tuples of them")
    if not -size <= index < size:
        raise IndexError(
            f"index {index} is out of bounds for axis {axis} of variable {var.name} of shape {var.shape}. Use one "
            f"from {-size} to {size - 1}."
        )
    start = index % size
    return start, start + 1, 1


def _wrapped(bound: int | None, size: int) -> int | None:
    """A negative bound counts from the end; if still before the first element, Fluid wraps it a second time."""
    if bound is None or bound >= -size:
        return bound
    return max(bound + 2 * size, 0)


def _index_error(var: VarBase, item: Any, expected: str) -> EnforceNotMet:
    return EnforceNotMet(
        explain(
            f"variable {var.name} of shape {var.shape} cannot be indexed so",
            expected,
            repr(item)[:80],
            "use fluid.layers.slice, gather or masks by multiplication",
        )
    )


def monkey_patch_math_varbase() -> None:
    """Add the operators to VarBase."""
    for method, (op_type, reverse, scale_of) in METHODS.items():
        setattr(VarBase, method, _binary(method, op_type, reverse, scale_of))
    for method, function in (("__neg__", _negated), ("astype", astype), ("__getitem__", _getitem)):
        setattr(VarBase, method, function)
