"""What an op's outputs are: asks the lowering, and writes the answer into the variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import lowering
from fluidjax.base.enums import AttrType
from fluidjax.base.errors import explain
from fluidjax.framework import callstack, messages
from fluidjax.framework.attrs import declared_type, read_attr
from fluidjax.framework.sparse_types import sparse_outputs
from fluidjax.framework.view import desc_view, op_view, var_view
from fluidjax.proto import framework_pb2 as pb

if TYPE_CHECKING:
    from fluidjax.framework.descs import BlockDescView
    from fluidjax.framework.op_desc import OpDescView
    from fluidjax.framework.operator import Operator


def infer_outputs(op: Operator) -> None:
    """Set shape, element type, LoD level and kind of the op's outputs, as far as they follow from its inputs.

    Raises ValueError when the op names a variable that its block does not see, and the lowering's OpError when the
    inputs do not fit the op.
    """
    if op.type == "create_py_reader":  # its queue lives in the scope only, and its output is a reader already
        return
    block = op.block
    for name in (*op.input_arg_names, *op.output_arg_names):
        if name != lowering.EMPTY and block._find_var_recursive(name) is None:
            raise ValueError(
                explain(
                    f"op {op.type} ({callstack.user_line(op)}): variable {name} is not found in block {block.idx} or "
                    "around it",
                    "variables of the program that the op is appended to",
                    f"{name!r}, which belongs to another program or to none",
                    "build all layers of a network within one `with fluid.program_guard(main, startup):`; or create the"
                    " variable with block.create_var first",
                )
            )

    def var_of(name: str) -> lowering.VarView | None:
        var = block._find_var_recursive(name)
        return None if var is None else var_view(var)

    try:
        view = op_view(op)
        found = lowering.infer_outputs(view, var_of) | sparse_outputs(view, var_of)
    except lowering.OpError as error:
        raise lowering.OpError(f"{error}\n  where: {callstack.user_line(op)}") from error
    for name, info in found.items():
        var = block._var_recursive(name).proto
        write_kind(var, info)
        write_shape(var, info)


def infer_desc(op: OpDescView, block: BlockDescView, write: Callable[[pb.VarDesc, lowering.VarInfo], None]) -> None:
    """``infer_outputs`` for an op and a block that are descs; `write` puts what is inferred into each output.

    Outputs without a variable in the block are left out. Raises the lowering's OpError when the inputs do not fit.
    """

    def var_of(name: str) -> lowering.VarView | None:
        var = block.find_var_recursive(name)
        return None if var is None else desc_view(var.proto)

    attrs = {attr.name: read_attr(attr) for attr in op.proto.attrs}
    view = lowering.OpView(op.type(), op.inputs(), op.outputs(), attrs, -1, block.id)
    found = lowering.infer_outputs(view, var_of) | sparse_outputs(view, var_of)
    for name, info in found.items():
        var = block.find_var_recursive(name)
        if var is not None:
            write(var.proto, info)


def write_kind(proto: pb.VarDesc, info: lowering.VarInfo) -> None:
    """Set the kind and element type of an output."""
    if info.type is not None and info.type != proto.type.type:
        messages.set_kind(proto, info.type)
    if messages.tensor_desc(proto) is not None:
        messages.set_tensor(proto, dtype=info.dtype)


def write_shape(proto: pb.VarDesc, info: lowering.VarInfo) -> None:
    """Set the shape and LoD level of an output."""
    if messages.tensor_desc(proto) is None:
        return
    messages.set_tensor(proto, info.shape)
    holder = messages.lod_holder(proto)
    if info.lod_level is not None and holder is not None and holder.lod_level != info.lod_level:
        holder.lod_level = info.lod_level


def raw_op(
    op_type: str,
    inputs: Mapping[str, list[str]],
    outputs: Mapping[str, list[str]],
    attrs: Mapping[str, Any],
    like: Operator | OpDescView | None = None,
) -> pb.OpDesc:
    """The message of an op, unchecked; slots sorted by name.

    An attribute has the type it has in `like`, else the one its op declares, else the one its value stands for.
    """
    message = pb.OpDesc(type=op_type)
    for slots, given in ((message.inputs, inputs), (message.outputs, outputs)):
        for name in sorted(given):
            slots.add(parameter=name, arguments=given[name])
    known = {attr.name: AttrType(attr.type) for attr in like.proto.attrs} if like is not None else {}
    for name, value in attrs.items():
        messages.add_attr(message, name, value, known.get(name) or declared_type(op_type, name))
    return message
