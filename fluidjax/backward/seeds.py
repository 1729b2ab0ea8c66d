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
    device, role = device_of(loss.op), ROLE_BACKWARD | ROLE_LOSS
    if all(size == 1 for size in loss.shape):
        ones = {"shape": [1], "value": 1.0, "dtype": int(loss.dtype), "force_cpu": False, "op_device": device}
        append_op(block, OpSpec("fill_constant", {}, {"Out": [grad_name(loss.name)]}, ones), role)
    else:
        append_ones(block, loss, role, device)


def append_ones(block: Block, target: Variable, role: int = ROLE_BACKWARD, device: str = "") -> None:
    """Append what fills ``target@GRAD`` with ones, as many as ``target`` has numbers when the program runs."""
    shape, where = f"{target.name}_shape", {"op_device": device}
    append_op(block, OpSpec("shape", {"Input": [target.name]}, {"Out": [shape]}, where))
    attrs = {"shape": list(target.shape), "value": 1.0, "dtype": int(target.dtype), **where}
    append_op(block, OpSpec("fill_constant", {"ShapeTensor": [shape]}, {"Out": [grad_name(target.name)]}, attrs), role)
