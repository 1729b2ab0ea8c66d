"""What an op's outputs are: asks the lowering, and writes the answer into the variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import lowering
from fluidjax import framework_pb2 as pb
from fluidjax.enums import AttrType
from fluidjax.framework import callstack, messages
from fluidjax.framework.attrs import declared_type
from fluidjax.framework.sparse_types import sparse_outputs
from fluidjax.framework.view import op_view, var_view

if TYPE_CHECKING:
    from fluidjax.framework.operator import Operator
    from fluidjax.framework.variable import Variable


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
                f"op {op.type} ({callstack.user_line(op)}): variable {name} is not found in block {block.idx} or "
                "around it. Create it with block.create_var first, or check the name."
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
        _write(block._var_recursive(name), info)


def _write(var: Variable, info: lowering.VarInfo) -> None:
    proto = var.proto
    if info.type is not None and info.type != proto.type.type:
        messages.set_kind(proto, info.type)
    if messages.tensor_desc(proto) is None:
        return
    messages.set_tensor(proto, info.shape, info.dtype)
    holder = messages.lod_holder(proto)
    if info.lod_level is not None and holder is not None and holder.lod_level != info.lod_level:
        holder.lod_level = info.lod_level


def raw_op(
    op_type: str,
    inputs: Mapping[str, list[str]],
    outputs: Mapping[str, list[str]],
    attrs: Mapping[str, Any],
    like: Operator | None = None,
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
