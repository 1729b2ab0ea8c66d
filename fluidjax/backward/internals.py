"""The backward pass by the names that Fluid keeps to itself, as its tests and tools call them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from fluidjax.backward.names import ROLE_BACKWARD, plain_name
from fluidjax.backward.paths import find_path, unused_outputs
from fluidjax.base.enums import VarType
from fluidjax.framework import Block, Operator, Variable
from fluidjax.framework.infer import raw_op
from fluidjax.framework.names import OP_DEVICE, OP_ROLE
from fluidjax.framework.op_desc import OpDescView


def find_op_path(
    block: Block, outputs: Iterable[Variable], inputs: Iterable[Variable], no_grad_set: set[str]
) -> list[Operator]:
    """The ops of a block that a gradient from `outputs` to `inputs` (all, if empty) passes; as ``find_path``.

    `no_grad_set` is extended by the inputs of these ops that are constant.
    """
    return find_path(block, [out.name for out in outputs], [var.name for var in inputs], no_grad_set).ops


def find_no_grad_vars(
    block: Block, op_path: list[Operator], targets: Iterable[Variable], no_grad_set: set[str]
) -> set[str]:
    """What the ops of a path write and none of them reads: it gets no gradient."""
    return unused_outputs(block, op_path, [target.name for target in targets], no_grad_set)


def some_in_set(names: Iterable[str], wanted: Collection[str]) -> bool:
    """Whether one of the names, or more, is in a set."""
    return any(name in wanted for name in names)


def all_in_set(names: Sequence[str], wanted: Collection[str]) -> bool:
    """Whether there are names and all of them are in a set."""
    return bool(names) and all(name in wanted for name in names)


def create_op_desc(op_type: str, inputs: dict[str, Any], outputs: dict[str, Any], attrs: dict[str, Any]) -> OpDescView:
    """An op's desc outside of any block; its role is Backward where `attrs` says nothing."""
    attrs = {OP_ROLE: ROLE_BACKWARD, OP_DEVICE: "", **attrs}
    return OpDescView(raw_op(op_type, _texts(inputs), _texts(outputs), attrs))


def rename_arguments(
    op_descs: Sequence[Any], old_name: str, new_name: str, begin_idx: int | None = None, end_idx: int | None = None
) -> None:
    """Give a variable another name in the descs of a stretch (descs, or tuples that begin with one)."""
    for item in op_descs[begin_idx or 0 : end_idx]:
        desc = item[0] if isinstance(item, tuple) else item
        desc._rename_input(old_name, new_name)
        desc._rename_output(old_name, new_name)


def infer_from_forward(grad_var_name: str, block: Block) -> None:
    """Give a gradient the type and shape of its variable; float32 where the block knows no such variable."""
    grad, forward = block.desc.find_var(grad_var_name), block.desc.find_var_recursive(plain_name(grad_var_name))
    if grad is None:
        raise ValueError(
            f"block {block.idx} declares no variable {grad_var_name!r}; expected the name of a gradient in it. Create"
            " the variable first"
        )
    grad.set_dtype(VarType.FP32 if forward is None else forward.dtype())
    if forward is not None:
        grad.set_shape(forward.shape())


def _texts(slots: dict[str, Any]) -> dict[str, list[str]]:
    return {slot: [n.decode() if isinstance(n, bytes) else n for n in names] for slot, names in slots.items()}
