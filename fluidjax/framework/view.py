"""A program in the form used by the lowering: read-only views, created once per change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluidjax.framework import messages
from fluidjax.proto import framework_pb2 as pb
from lowering.program import BlockView, OpView, ProgramView, VarView

if TYPE_CHECKING:
    from fluidjax.framework.block import Block
    from fluidjax.framework.operator import Operator
    from fluidjax.framework.program import Program
    from fluidjax.framework.variable import Variable


def op_view(op: Operator, index: int = -1) -> OpView:
    """An op in the form used by the lowering."""
    op._fresh()
    view = op._view
    if view is None or view.index != index or view.block_idx != op.block.idx:
        view = OpView(op.type, op._input_map, op._output_map, op._attr_map, index, op.block.idx)
        op._view = view
    return view


def var_view(var: Variable) -> VarView:
    """A variable in the form used by the lowering."""
    return desc_view(var.proto, var.stop_gradient)


def desc_view(proto: pb.VarDesc, stop_gradient: bool = False) -> VarView:
    """The variable of a message in the form used by the lowering."""
    tensor, holder = messages.tensor_desc(proto), messages.lod_holder(proto)
    return VarView(
        name=proto.name,
        type=proto.type.type,
        dtype=tensor.data_type if tensor is not None else 5,
        shape=tuple(tensor.dims) if tensor is not None else (),
        lod_level=holder.lod_level if holder is not None else 0,
        persistable=proto.persistable,
        stop_gradient=stop_gradient,
        need_check_feed=proto.need_check_feed,
    )


def block_view(block: Block) -> BlockView:
    """A block in the form used by the lowering, with the ops and variables added through desc objects."""
    by_descs = block.program._raw_generation > 0
    ops, variables = (block._written(), block._declared()) if by_descs else (block.ops, block.vars)
    return BlockView(
        idx=block.idx,
        parent_idx=block.parent_idx,
        ops=tuple(op_view(op, index) for index, op in enumerate(ops)),
        vars={name: var_view(var) for name, var in variables.items()},
        forward_idx=block.forward_block_idx,
    )


def program_view(program: Program) -> ProgramView:
    """A program in the form used by the lowering; the same object until the program changes."""
    token = program._version_token()
    cached = program._view_cache
    if cached is None or cached[0] != token:
        versions = {pair.op_name: pair.op_version.version for pair in program.proto.op_version_map.pair}
        blocks = tuple(block_view(block) for block in program.blocks)
        cached = (token, ProgramView(blocks, program.proto.version.version, versions))
        program._view_cache = cached
    return cached[1]
