"""The gradient ops of a single op desc, without a surrounding program."""

from __future__ import annotations

from collections.abc import Iterable

from fluidjax.backward.descs import own_attributes
from fluidjax.backward.names import grad_name
from fluidjax.framework.attrs import read_attr
from fluidjax.framework.descs import BlockDescView
from fluidjax.framework.infer import raw_op
from fluidjax.framework.op_desc import OpDescView
from lowering.engine.gradients.grad_maker import grad_ops
from lowering.program import OpView


def get_grad_op_desc(
    op_desc: OpDescView, no_grad_set: Iterable[str], grad_sub_blocks: Iterable[BlockDescView]
) -> tuple[list[OpDescView], dict[str, str]]:
    """The ops that compute the gradient of one op, as ``append_backward`` would write them.

    Args:
        op_desc: the forward op's desc.
        no_grad_set: names of gradients (``x@GRAD``) that are not needed.
        grad_sub_blocks: the gradient's sub-block, for ops that run one.

    Returns:
        (descs, gradient variable -> forward variable) with the gradients that the ops read and write.
    """
    attrs = {attr.name: read_attr(attr) for attr in op_desc.proto.attrs}
    view = OpView(op_desc.type(), op_desc.inputs(), op_desc.outputs(), attrs, -1, 0)
    blocks = [block.id for block in grad_sub_blocks]
    specs, grad_to_var = grad_ops(view, no_grad_set, grad_block=blocks[0] if blocks else None)
    named = {
        name for spec in specs for side in (spec.inputs, spec.outputs) for names in side.values() for name in names
    }
    grad_to_var |= {grad_name(name): name for name in op_desc.output_arg_names() if grad_name(name) in named}
    messages = [raw_op(s.type, s.inputs, s.outputs, own_attributes(s.attrs, op_desc.type()), op_desc) for s in specs]
    return [OpDescView(message) for message in messages], grad_to_var
