"""Layers on SelectedRows: merge_selected_rows, get_tensor_from_selected_rows; and clip_by_norm, which accepts them."""

from __future__ import annotations

from fluidjax import unique_name
from fluidjax.base.enums import VarType
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.writing.checks import check_type, check_variable_and_dtype

__all__ = ["clip_by_norm", "get_tensor_from_selected_rows", "merge_selected_rows"]


def clip_by_norm(x: Variable, max_norm: float, name: str | None = None) -> Variable:
    """x max_norm / max(|x|, max_norm): x scaled down to an L2 norm of at most max_norm; float32.

    A SelectedRows gives a SelectedRows with duplicate rows summed.
    """
    helper = LayerHelper("clip_by_norm", **locals())
    check_variable_and_dtype(x, "X", ["float32"], "clip_by_norm")
    check_type(max_norm, "max_norm", float, "clip_by_norm")
    if name is None:
        name = unique_name.generate_with_ignorable_key(".".join([helper.name, "tmp"]))
    out = helper.create_variable(type=x.type, name=name, dtype=x.dtype, persistable=False)
    helper.append_op(type="clip_by_norm", inputs={"X": x}, attrs={"max_norm": max_norm}, outputs={"Out": out})
    return out


def merge_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """A SelectedRows with duplicate rows summed."""
    helper = LayerHelper("merge_selected_rows", **locals())
    out = helper.create_variable_for_type_inference(dtype=x.dtype)
    helper.append_op(type="merge_selected_rows", inputs={"X": x}, attrs={}, outputs={"Out": out})
    return out


def get_tensor_from_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """The values of a SelectedRows, as a tensor [number of stored rows, ...].

    Raises TypeError unless x is a SelectedRows.
    """
    check_type(x, "x", Variable, "get_tensor_from_selected_rows")
    if x.type != VarType.SELECTED_ROWS:
        raise TypeError(
            f"The type of 'x' in get_tensor_from_selected_rows must be SELECTED_ROWS, received {x.type} (variable"
            f" {x.name!r}). Pass a sparse gradient."
        )
    helper = LayerHelper("get_tensor_from_selected_rows", **locals())
    out = helper.create_variable_for_type_inference(dtype=x.dtype)
    helper.append_op(type="get_tensor_from_selected_rows", inputs={"X": x}, attrs={}, outputs={"Out": out})
    return out
