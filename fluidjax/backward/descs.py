"""Writing ops verbatim: what the backward pass appends is neither checked nor inferred."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fluidjax.backward.names import ROLE_BACKWARD
from lowering.program import OpSpec

if TYPE_CHECKING:
    from fluidjax.framework import Block, Operator


# The gradient makers of these write their attributes individually; all others copy those of the forward op, including
# its origin (name scope, call stack).
_WRITE_THEIR_OWN = frozenset(
    "assign bce_loss bmm cast conditional_block cumsum increment index_sample mean meshgrid minus partial_concat "
    "partial_sum reorder_lod_tensor_by_rank reverse scale sign sum top_k where".split()
)
_ORIGIN_ATTRS = ("op_role_var", "op_namescope", "op_callstack")


@dataclass
class Pending(OpSpec):
    """A grad op about to be written.

    Attributes:
        origin: the op it is the gradient (or a copy) of.
        overwrites: gradients of variables outside a loop that the loop replaces.
    """

    origin: Operator | None = None
    overwrites: frozenset[str] = frozenset()

    @classmethod
    def of(cls, spec: OpSpec, op: Operator) -> Pending:
        """``spec`` with its origin ``op``; without ``_ORIGIN_ATTRS`` for op types in ``_WRITE_THEIR_OWN``."""
        attrs = own_attributes(spec.attrs, op.type)
        return cls(spec.type, dict(spec.inputs), dict(spec.outputs), attrs, op)


def own_attributes(attrs: dict[str, Any], forward: str) -> dict[str, Any]:
    """``attrs`` as the gradient maker of op type ``forward`` writes them: some omit the origin."""
    if forward not in _WRITE_THEIR_OWN:
        return attrs
    return {name: value for name, value in attrs.items() if name not in _ORIGIN_ATTRS}


def append_pending(
    block: Block, ops: Iterable[OpSpec], callbacks: Iterable[Callable[..., None]], grad_to_var: dict[str, Any]
) -> list[tuple[Operator, Operator | None]]:
    """Append ``ops`` to ``block`` with op_role Backward; returns each with its origin.

    Each callback runs after each op, with ``block`` and ``context`` (``grad_to_var`` plus the op's OpDesc under
    ``__current_op_desc__``).
    """
    callbacks, appended = list(callbacks), []
    for op in ops:
        written = append_op(block, op)
        appended.append((written, getattr(op, "origin", None)))
        if callbacks:
            grad_to_var["__current_op_desc__"] = written.desc
            for callback in callbacks:
                callback(block=block, context=grad_to_var)
    grad_to_var.pop("__current_op_desc__", None)
    return appended


def append_op(block: Block, op: OpSpec, role: int = ROLE_BACKWARD) -> Operator:
    """Append one op to ``block``; it runs on the device of its origin."""
    origin = getattr(op, "origin", None)
    attrs = {"op_device": device_of(origin), **op.attrs, "op_role": role}
    return block._append_op_desc(op.type, op.inputs, op.outputs, attrs, like=origin)


def device_of(op: Operator | None) -> str:
    """The device that an op's ``device_guard`` named; empty where there was none."""
    return op.attr("op_device") if op is not None and op.has_attr("op_device") else ""
