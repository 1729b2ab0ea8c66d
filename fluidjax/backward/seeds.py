"""The gradients at which a backward pass begins: ones, for it computes the gradient of a sum."""

from __future__ import annotations

from fluidjax.backward.descs import append_op, device_of
from fluidjax.backward.names import ROLE_BACKWARD, ROLE_LOSS, grad_name
from fluidjax.framework import Block, Variable
from lowering.program import OpSpec


def append_loss_gradient(block: Block, loss: Variable) -> None:
    """Append what fills ``loss@GRAD`` with ones, on the device of the op that computes the loss.

    Fluid fills it with one number, which is all of a loss of shape [1]. What reads it as the gradient of more reads
    beyond its end, so the gradient of a loss that may be more than one number has as many ones as the loss.
    """
    where = {"force_cpu": False, "op_device": device_of(loss.op)}
    if all(size == 1 for size in loss.shape):
        ones = {"shape": [1], "value": 1.0, "dtype": int(loss.dtype), **where}
        append_op(block, OpSpec("fill_constant", {}, {"Out": [grad_name(loss.name)]}, ones), ROLE_BACKWARD | ROLE_LOSS)
    else:
        append_ones(block, loss, ROLE_BACKWARD | ROLE_LOSS, where)


def append_ones(
    block: Block, target: Variable, role: int = ROLE_BACKWARD, where: dict[str, object] | None = None
) -> None:
    """Append what fills ``target@GRAD`` with ones, as many as ``target`` has numbers when the program runs."""
    shape = f"{target.name}_shape"
    append_op(block, OpSpec("shape", {"Input": [target.name]}, {"Out": [shape]}))
    attrs = {"shape": list(target.shape), "value": 1.0, "dtype": int(target.dtype), **(where or {})}
    append_op(block, OpSpec("fill_constant", {"ShapeTensor": [shape]}, {"Out": [grad_name(target.name)]}, attrs), role)
