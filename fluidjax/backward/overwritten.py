"""What recomputation cannot do: recompute a value whose operands have been overwritten."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import lowering
from fluidjax.backward.names import EMPTY, is_grad
from fluidjax.backward.paths import names_in, names_out
from fluidjax.framework import user_line
from lowering.program import OpSpec

if TYPE_CHECKING:
    from fluidjax.framework import Block, Operator

GradOps = Callable[["Operator"], Iterable[OpSpec]]


def check_in_place(block: Block, ops: Iterable[Operator], grad_ops: GradOps) -> None:
    """Raise ValueError if one of ``ops`` overwrites a variable whose older value is needed again.

    An op may work in place (``relu`` on the result of ``fc``) if nothing else has read the older value and no
    gradient op needs it.

    Args:
        block: holds the variables.
        ops: forward ops, in order.
        grad_ops: the grad ops of an op.
    """
    users: dict[str, list[Operator]] = {}
    for op in ops:
        for name in dict.fromkeys(names_out(op)):
            if users.get(name) and not _lasts(block, name) and _is_wanted(name, op, users[name], grad_ops):
                raise ValueError(_overwrites(op, name, users[name][-1]))
        for name in dict.fromkeys([*names_in(op), *names_out(op)]):
            users.setdefault(name, []).append(op)


def _lasts(block: Block, name: str) -> bool:
    """Statistics updated by ops are not recomputed."""
    var = block._find_var_recursive(name)
    return var is not None and bool(var.persistable)


def _is_wanted(name: str, op: Operator, users: list[Operator], grad_ops: GradOps) -> bool:
    """Whether the value of ``name`` before ``op`` is needed again, other than by ``op`` in the forward pass."""
    if name not in names_in(op) or any(name not in names_out(user) for user in users):
        return True
    if any(name in _read_by(spec, spec.inputs) for user in users for spec in grad_ops(user)):
        return True
    return any(name in _read_by(spec, op.input_names) for spec in grad_ops(op))


def _read_by(spec: OpSpec, slots: Iterable[str]) -> set[str]:
    """The forward variables in ``slots`` whose values, rather than shapes alone, gradient op ``spec`` reads."""
    definition = lowering.get_op(spec.type)
    found: set[str] = set()
    for slot in slots:
        of_slot = definition.input(slot)
        if of_slot is None or of_slot.wants != "meta":
            found.update(n for n in spec.inputs.get(slot, ()) if n != EMPTY and not is_grad(n))
    return found


def _overwrites(op: Operator, name: str, user: Operator) -> str:
    return (
        f"recompute: op {op.type} ({user_line(op)}) overwrites {name!r}, which {user.type} ({user_line(user)}) has"
        f" used; expected {name!r} to keep its value until the backward pass has computed it again. Write the result of"
        f" {op.type} to a variable of its own, or differentiate without checkpoints"
    )
