"""Internal functions of the backward pass under Fluid's names, for its tests and tools."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from fluidjax.backward.accumulate import sum_repeated_gradients
from fluidjax.backward.names import ROLE_BACKWARD, plain_name
from fluidjax.backward.paths import find_path, unused_outputs
from fluidjax.backward.prune import drop_stopped
from fluidjax.backward.walk import Walk
from fluidjax.base.enums import VarType
from fluidjax.framework import Block, Operator, Variable
from fluidjax.framework.infer import raw_op
from fluidjax.framework.names import OP_DEVICE, OP_ROLE
from fluidjax.framework.op_desc import OpDescView
from lowering.program import OpSpec


def find_op_path(
    block: Block, outputs: Iterable[Variable], inputs: Iterable[Variable], no_grad_set: set[str]
) -> list[Operator]:
    """The ops of a block through which a gradient passes from `outputs` to `inputs` (all, if empty); see ``find_path``.

    `no_grad_set` is extended by constant inputs of these ops.
    """
    return find_path(block, [out.name for out in outputs], [var.name for var in inputs], no_grad_set).ops


def find_no_grad_vars(
    block: Block, op_path: list[Operator], targets: Iterable[Variable], no_grad_set: set[str]
) -> set[str]:
    """Variables written but not read by the ops of a path, which get no gradient."""
    return unused_outputs(block, op_path, [target.name for target in targets], no_grad_set)


def some_in_set(names: Iterable[str], wanted: Collection[str]) -> bool:
    """Whether any of the names is in a set."""
    return any(name in wanted for name in names)


def all_in_set(names: Sequence[str], wanted: Collection[str]) -> bool:
    """Whether there are names, all of which are in a set."""
    return bool(names) and all(name in wanted for name in names)


def create_op_desc(op_type: str, inputs: dict[str, Any], outputs: dict[str, Any], attrs: dict[str, Any]) -> OpDescView:
    """The desc of an op outside any block; its role is Backward unless given in `attrs`."""
    attrs = {OP_ROLE: ROLE_BACKWARD, OP_DEVICE: "", **attrs}
    return OpDescView(raw_op(op_type, _texts(inputs), _texts(outputs), attrs))


def rename_arguments(
    op_descs: Sequence[Any], old_name: str, new_name: str, begin_idx: int | None = None, end_idx: int | None = None
) -> None:
    """Rename a variable in the descs of a range (descs, or tuples that begin with one)."""
    for item in op_descs[begin_idx or 0 : end_idx]:
        desc = item[0] if isinstance(item, tuple) else item
        desc._rename_input(old_name, new_name)
        desc._rename_output(old_name, new_name)


def infer_from_forward(grad_var_name: str, block: Block) -> None:
    """Set the type and shape of a gradient to those of its variable; float32 if the block does not know it."""
    grad, forward = block.desc.find_var(grad_var_name), block.desc.find_var_recursive(plain_name(grad_var_name))
    if grad is None:
        raise ValueError(
            f"block {block.idx} declares no variable {grad_var_name!r}; expected the name of a gradient in it. Create"
            " the variable first"
        )
    grad.set_dtype(VarType.FP32 if forward is None else forward.dtype())
    if forward is not None:
        grad.set_shape(forward.shape())


def add_up_repetitive_outputs(op_descs: list[OpDescView], block_idx: int) -> list[OpDescView]:
    """Give the gradients that several descs write names of their own, and sum them; changes and returns the list."""
    op_descs[:] = _through(op_descs, lambda specs: sum_repeated_gradients(specs, block_idx))
    return op_descs


def remove_no_grad_branch(op_descs: Sequence[OpDescView], no_grad_set: set[str]) -> list[OpDescView]:
    """The descs without those that only read or write gradients in `no_grad_set`, which their outputs join."""
    return _through(op_descs, lambda specs: drop_stopped(specs, no_grad_set))


def append_grad_ops(
    block: Block,
    ops: Iterable[Operator],
    target_block: Block,
    no_grad_dict: dict[int, set[str]],
    grad_to_var: dict[str, Any],
    callbacks: list[Callable[..., None]] | None = None,
    input_grad_names_set: set[str] | None = None,
) -> None:
    """Append the grad ops of `ops` (of `block`) to `target_block`; as ``Walk.append``.

    Args:
        no_grad_dict: block index -> gradients that must not exist.
        grad_to_var: filled in: gradient -> variable.
        callbacks: called after each appended op; ValueError if one is not callable.
        input_grad_names_set: existing gradients; if given, only grad ops that depend on them are appended.
    """
    for callback in callbacks or ():
        if not callable(callback):
            raise ValueError(f"'callback' must be a callable object: received {callback!r}. Give functions")
    order = max(block.program._appending_grad_times, 1)
    walk = Walk(no_grad_dict, callbacks=list(callbacks or ()), grad_to_var=grad_to_var, order=order)
    walk.append(block, ops, target_block, input_grad_names_set)


def _through(op_descs: Sequence[OpDescView], change: Callable[[list[OpSpec]], list[OpSpec]]) -> list[OpDescView]:
    """The descs after a pass over them: remaining ones with their new names, and those the pass has written."""
    specs = [OpSpec(desc.type(), desc.inputs(), desc.outputs(), {}) for desc in op_descs]
    known = {id(spec): desc for spec, desc in zip(specs, op_descs, strict=True)}
    changed = []
    for spec in change(specs):
        desc = known.get(id(spec)) or create_op_desc(spec.type, spec.inputs, spec.outputs, spec.attrs)
        for slot, names in spec.inputs.items():
            desc.set_input(slot, names)
        for slot, names in spec.outputs.items():
            desc.set_output(slot, names)
        changed.append(desc)
    return changed


def _texts(slots: dict[str, Any]) -> dict[str, list[str]]:
    return {slot: [n.decode() if isinstance(n, bytes) else n for n in names] for slot, names in slots.items()}
