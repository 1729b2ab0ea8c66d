"""A serialized ProgramDesc as the read-only view that the lowering works on, made without the front end."""

from __future__ import annotations

from typing import Any

from fluidjax.proto import framework_pb2 as pb
from lowering.program import BlockView, OpView, ProgramView, VarView

# OpDesc.Attr field by attribute type number.
_FIELDS = ("i", "f", "s", "ints", "floats", "strings", "b", "bools", "block_idx", "l", "blocks_idx", "longs")


def _attr(attr: Any) -> Any:
    value = getattr(attr, _FIELDS[attr.type])
    return list(value) if attr.type in (3, 4, 5, 7, 10, 11) else value


def _op(desc: Any, index: int, block: int) -> OpView:
    inputs = {v.parameter: list(v.arguments) for v in desc.inputs}
    outputs = {v.parameter: list(v.arguments) for v in desc.outputs}
    return OpView(desc.type, inputs, outputs, {a.name: _attr(a) for a in desc.attrs}, index, block)


def _var(desc: Any) -> VarView:
    kind = desc.type.type
    tensor = {
        7: lambda: desc.type.lod_tensor.tensor,
        8: lambda: desc.type.selected_rows,
        13: lambda: desc.type.tensor_array.tensor,
    }.get(kind, lambda: None)()
    level = {7: desc.type.lod_tensor.lod_level, 13: desc.type.tensor_array.lod_level}.get(kind, 0)
    if tensor is None:
        return VarView(desc.name, kind, persistable=desc.persistable)
    return VarView(desc.name, kind, tensor.data_type, tuple(tensor.dims), level, desc.persistable)


def program_view(data: bytes) -> ProgramView:
    """Parse a ProgramDesc into a ProgramView."""
    desc = pb.ProgramDesc.FromString(data)
    blocks = []
    for b in desc.blocks:
        ops = tuple(_op(o, i, b.idx) for i, o in enumerate(b.ops))
        blocks.append(BlockView(b.idx, b.parent_idx, ops, {v.name: _var(v) for v in b.vars}, b.forward_block_idx))
    return ProgramView(tuple(blocks))
