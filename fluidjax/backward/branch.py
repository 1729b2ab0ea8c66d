"""The gradient op of a branch that contains its own backward pass (an optimizer inside ``cond`` or ``Switch``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lowering
from fluidjax.backward.descs import Pending
from fluidjax.backward.names import ROLE_BACKWARD, grad_name
from fluidjax.backward.variables import declare_outputs
from fluidjax.framework.view import op_view

if TYPE_CHECKING:
    from fluidjax.framework import Block, Operator


def append_branch_gradient(parent: Block, op: Operator, grad_block: Block, names: list[str]) -> Operator:
    """Append to ``parent`` the gradient of conditional_block ``op``, which runs ``grad_block``.

    Args:
        names: the outer variables that the gradient block reads; each gets a gradient variable, which Fluid declares in
            the gradient block: a second branch over the same parameters has gradients of its own.
    """
    specs, _ = lowering.grad_ops(op_view(op), (), grad_block=grad_block.idx)
    spec = specs[0]
    spec.inputs["Input"] = list(names)
    spec.outputs["Input@GRAD"] = [grad_name(name) for name in names]
    attrs = {**Pending.of(spec, op).attrs, "op_role": ROLE_BACKWARD}
    written = parent._append_op_desc(spec.type, spec.inputs, spec.outputs, attrs, like=op)
    declare_outputs(grad_block, written)
    return written
