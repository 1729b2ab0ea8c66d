"""``variable[...]``: indices and slices become slice, strided_slice and reverse ops."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fluidjax import unique_name
from fluidjax.base.enums import VarType
from fluidjax.framework.variable import Variable

if TYPE_CHECKING:
    from fluidjax.framework.block import Block

# An end past every element.
_FAR = 10000000


@dataclass
class _Plan:
    """The operations for each axis; axes in ``turned`` are reversed before, those in ``reversed`` after slicing."""

    axes: list[int] = field(default_factory=list)
    starts: list[Any] = field(default_factory=list)
    ends: list[Any] = field(default_factory=list)
    steps: list[Any] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    reversed: list[int] = field(default_factory=list)
    turned: list[int] = field(default_factory=list)

    def add(self, axis: int, start: Any, end: Any, step: Any = 1) -> None:
        self.axes.append(axis)
        self.starts.append(start)
        self.ends.append(end)
        self.steps.append(step)


def getitem(self: Variable, item: Any) -> Variable:
    """``Variable.__getitem__``: the elements selected by the indices.

    An index removes its axis. Indices and slice ends may be variables. Raises TypeError for invalid indices.
    """
    var, block = self, self.block
    plan = _Plan()
    for axis, index in enumerate(_expanded(var, item)):
        _plan_axis(var, block, plan, axis, index)
    out = _reverse(var, var, block, plan.turned) if plan.turned else var
    if plan.axes:
        out = _write_slice(out, block, plan)
    if plan.reversed:
        axes = [axis - sum(1 for gone in plan.dropped if gone < axis) for axis in plan.reversed]
        out = _reverse(var, out, block, axes)
    return out


def _reverse(var: Variable, value: Variable, block: Block, axes: list[int]) -> Variable:
    result = _result(block, var.name + "_slice_reverse", var.dtype)
    block.append_op(type="reverse", inputs={"X": value}, outputs={"Out": result}, attrs={"axis": axes})
    return result


def _expanded(var: Variable, item: Any) -> list[Any]:
    """One index per leading axis; an ellipsis stands for the axes in the middle."""
    items = list(item) if isinstance(item, tuple) else [item]
    given = sum(1 for index in items if index is not Ellipsis)
    if given > len(var.shape) > 0:
        raise IndexError(
            f"variable {var.name} of shape {list(var.shape)} is indexed with {given} indices; expected at most "
            f"{len(var.shape)}. Drop some."
        )
    dots = [position for position, index in enumerate(items) if index is Ellipsis]
    if not dots:
        return items
    if len(dots) > 1:
        raise TypeError(f"variable {var.name}: more than one ellipsis in {item!r}. Use one.")
    fill = [slice(None)] * (len(var.shape) - len(items) + 1)
    return [*items[: dots[0]], *fill, *items[dots[0] + 1 :]]


def _is_variable(value: Any) -> bool:
    return isinstance(value, Variable)


def _check_index(var: Variable, value: Any) -> Any:
    if _is_variable(value):
        return value
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    raise TypeError(
        f"variable {var.name} cannot be indexed with {value!r} of type {type(value).__name__}. Expected integers, "
        "slices, an ellipsis or Variables. Use fluid.layers.gather for lists of rows."
    )


def _plan_axis(var: Variable, block: Block, plan: _Plan, axis: int, index: Any) -> None:
    if not isinstance(index, slice):
        index = _check_index(var, index)
        plan.dropped.append(axis)
        plan.add(axis, index, _after(block, index))
        return
    if index.start is None and index.stop is None and index.step is None:
        return
    step = 1 if index.step is None else _check_index(var, index.step)
    backwards = isinstance(step, int) and step < 0
    if index.start is None and index.stop is None and backwards and step == -1:
        plan.reversed.append(axis)
        return
    bounds = (index.start, index.stop)
    if backwards and step != -1 and None in bounds and not any(map(_is_variable, bounds)):
        # Where an end is left out the elements are NumPy's, which step from the start; the op steps from the end.
        first, last = (None if bound is None else ~_check_index(var, bound) for bound in bounds)
        plan.turned.append(axis)
        plan.add(axis, 0 if first is None else first, _FAR if last is None else last, -step)
        return
    start = (_FAR if backwards else 0) if index.start is None else _check_index(var, index.start)
    end = (-_FAR if backwards else _FAR) if index.stop is None else _check_index(var, index.stop)
    plan.add(axis, start, end, step)


def _after(block: Block, index: Any) -> Any:
    """The index after `index`."""
    if not _is_variable(index):
        return _FAR if index == -1 else index + 1
    one = _fill(block, 1)
    out = block.create_var(dtype="int32", stop_gradient=True)
    block.append_op(
        type="elementwise_add", inputs={"X": [index], "Y": [one]}, outputs={"Out": [out]}, attrs={"axis": -1}
    )
    return out


def _fill(block: Block, value: int) -> Variable:
    out = block.create_var(dtype="int32", stop_gradient=True)
    attrs = {"dtype": int(VarType.INT32), "shape": [1], "value": float(value), "force_cpu": True}
    block.append_op(type="fill_constant", inputs={}, outputs={"Out": [out]}, attrs=attrs)
    return out


def _result(block: Block, key: str, dtype: Any) -> Variable:
    return block.create_var(name=unique_name.generate_with_ignorable_key(key), dtype=dtype)


def _write_slice(var: Variable, block: Block, plan: _Plan) -> Variable:
    strided = any(_is_variable(step) or step != 1 for step in plan.steps)
    inputs: dict[str, Any] = {"Input": [var]}
    attrs: dict[str, Any] = {"axes": plan.axes, "decrease_axis": plan.dropped}
    kinds = [("starts", plan.starts), ("ends", plan.ends)] + ([("strides", plan.steps)] if strided else [])
    for name, values in kinds:
        attrs[name] = [-1 if _is_variable(value) else value for value in values]
        if any(_is_variable(value) for value in values):
            slot = name.capitalize() + "TensorList"
            inputs[slot] = [value if _is_variable(value) else _fill(block, value) for value in values]
    attrs["infer_flags"] = [
        -1 if any(_is_variable(values[i]) for _, values in kinds) else 1 for i in range(len(plan.axes))
    ]
    kind = "strided_slice" if strided else "slice"
    out = _result(block, f"{var.name}_{kind}", var.dtype)
    block.append_op(type=kind, inputs=inputs, outputs={"Out": [out]}, attrs=attrs)
    return out
