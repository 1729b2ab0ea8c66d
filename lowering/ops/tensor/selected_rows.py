"""Operators on SelectedRows values."""

from __future__ import annotations

from collections.abc import Callable

from lowering.dtypes import LOD_TENSOR
from lowering.errors import SlotError
from lowering.ops.sparse import distinct_rows
from lowering.program import OpView, VarInfo, VarOf
from lowering.registry import Value, op
from lowering.values import LoDArray, SelectedRows, fill_padding


def _like_x(kind: int | None) -> Callable[[OpView, VarOf], dict[str, VarInfo]]:
    """Shape inference: outputs like X, as the kind of variable ``kind`` (None: X's own)."""

    def infer(op_view: OpView, var_of: VarOf) -> dict[str, VarInfo]:
        source = var_of(op_view.inputs["X"][0])
        if source is None:
            return {}
        info = VarInfo(tuple(source.shape), source.dtype, None, source.type if kind is None else kind)
        return dict.fromkeys(op_view.outputs["Out"], info)

    return infer


def _sparse(x: object, op_type: str) -> SelectedRows:
    if not isinstance(x, SelectedRows):
        raise SlotError(
            f"op {op_type} expects SelectedRows in slot X, received a {type(x).__name__}; give it the gradient of a"
            " look-up with is_sparse=True, or leave the op out for dense gradients"
        )
    return x


@op(grad=None, lod=None, infer=_like_x(None))
def merge_selected_rows(x: Value):
    """Out = X with unique rows, ascending if duplicate rows were summed and otherwise as they come."""
    return distinct_rows([_sparse(x, "merge_selected_rows")])


@op(grad=None, lod=None, infer=_like_x(LOD_TENSOR))
def get_tensor_from_selected_rows(x: Value):
    """Out [n, ...] = the values of X, without row numbers; as many as X has rows."""
    sparse = _sparse(x, "get_tensor_from_selected_rows")
    if sparse.nrows is None:
        return sparse.values
    return LoDArray(fill_padding(sparse.values, sparse.nrows, backward=False), (), sparse.nrows)
