"""Outputs of ops on SelectedRows and tensor arrays: in Fluid, Out takes the variable type of X."""

from __future__ import annotations

from collections.abc import Callable

from fluidjax.base.enums import VarType
from lowering import OpView, VarInfo, VarView

# Ops whose output is sparse when X is; `sum` only when all of X are.
_SPARSE_THROUGH = frozenset(
    "assign cast clip clip_by_norm elementwise_add elementwise_div elementwise_mul elementwise_sub merge_selected_rows "
    "scale sum".split()
)
_DENSE_FROM_SPARSE = frozenset(("get_tensor_from_selected_rows",))
_ARRAYS_THROUGH = frozenset(("assign", "sum"))


def sparse_outputs(op: OpView, var_of: Callable[[str], VarView | None]) -> dict[str, VarInfo]:
    """The outputs that follow from a sparse X or a tensor array, by name; empty if X is a tensor, or the op another."""
    if op.type not in _SPARSE_THROUGH and op.type not in _DENSE_FROM_SPARSE:
        return {}
    inputs = [var_of(name) for name in op.inputs.get("X", ())]
    arrays = [var for var in inputs if var is not None and var.type == VarType.LOD_TENSOR_ARRAY]
    if arrays and op.type in _ARRAYS_THROUGH:
        info = VarInfo(arrays[0].shape, arrays[0].dtype, None, int(VarType.LOD_TENSOR_ARRAY))
        return dict.fromkeys(op.outputs.get("Out", ()), info)
    sparse = [var for var in inputs if var is not None and var.type == VarType.SELECTED_ROWS]
    if not sparse:
        return {}
    stays = op.type in _SPARSE_THROUGH and len(sparse) == len(inputs)
    kind = VarType.SELECTED_ROWS if stays else VarType.LOD_TENSOR
    return {name: VarInfo(sparse[0].shape, sparse[0].dtype, None, int(kind)) for name in op.outputs.get("Out", ())}
