"""Between OpDesc messages and the ops that the backward pass works on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import lowering
from lowering.program import OpSpec, OpView

from fluidjax.backward.names import ROLE_BACKWARD
from fluidjax.enums import AttrType
from fluidjax.framework.attrs import attr_type, read_attr, type_of_value, write_attr

_BLOCK_ATTRS = ("sub_block", "block")


@dataclass
class Pending(OpSpec):
    """An op about to be written. ``origin``: the OpDesc whose unchanged attributes are copied as they are."""

    origin: Any = None

    @classmethod
    def of(cls, spec: OpSpec, op: Any) -> Pending:
        return cls(spec.type, dict(spec.inputs), dict(spec.outputs), spec.attrs, op.desc.proto)


def read_desc(desc: Any) -> tuple[dict[str, list[str]], dict[str, list[str]], dict[str, Any]]:
    """Inputs, outputs and attributes of an OpDesc message; a BLOCK attribute is the block's index."""
    inputs = {slot.parameter: list(slot.arguments) for slot in desc.inputs}
    outputs = {slot.parameter: list(slot.arguments) for slot in desc.outputs}
    return inputs, outputs, {attr.name: read_attr(attr) for attr in desc.attrs}


def view_of(op: Any) -> OpView:
    return OpView(op.type, *read_desc(op.desc.proto), block_idx=op.block.idx)


def specs_of(block: Any) -> list[OpSpec]:
    """The ops of a block as they are written."""
    return [OpSpec(desc.type, *read_desc(desc)) for desc in block.desc.proto.ops]


def append_pending(
    block: Any, ops: Iterable[OpSpec], callbacks: Iterable[Callable[..., None]], grad_to_var: dict[str, Any]
) -> None:
    """Append ``ops`` to ``block`` as they are (no defaults, no shape inference), with op_role Backward.

    Each callback runs after each op, with ``block`` and ``context`` (``grad_to_var`` plus the op's OpDesc under
    ``__current_op_desc__``).
    """
    callbacks = list(callbacks)
    for op in ops:
        grad_to_var["__current_op_desc__"] = append_desc(block, op)
        for callback in callbacks:
            callback(block=block, context=grad_to_var)
    grad_to_var.pop("__current_op_desc__", None)


def append_desc(block: Any, op: OpSpec, role: int = ROLE_BACKWARD) -> Any:
    """Append one op to the desc of ``block`` and return its desc."""
    desc = block.desc.append_op()
    fill_desc(desc.proto, op, role)
    return desc


def fill_desc(proto: Any, op: OpSpec, role: int) -> None:
    """Write ``op`` into an empty OpDesc message."""
    proto.type = op.type
    for slots, out in ((op.inputs, proto.inputs), (op.outputs, proto.outputs)):
        for slot in sorted(slots):
            out.add(parameter=slot, arguments=slots[slot])
    origin = getattr(op, "origin", None)
    known = {attr.name: attr for attr in origin.attrs} if origin is not None else {}
    device = known["op_device"].s if "op_device" in known else ""
    for name, value in {"op_device": device, **op.attrs, "op_role": role}.items():
        same = known.get(name)
        if same is not None and read_attr(same) == value:
            proto.attrs.append(same)
        else:
            write_attr(proto.attrs.add(name=name), _attr_type(op.type, name, value), value)


def _attr_type(op_type: str, name: str, value: Any) -> AttrType:
    """The type of a new attribute: the registry's, or that of the value."""
    spec = lowering.get_op(op_type).attrs.get(name) if lowering.has_op(op_type) else None
    if spec is not None:
        return attr_type(spec.type)
    if name in _BLOCK_ATTRS:
        return AttrType.BLOCK
    return AttrType.STRINGS if value == [] else type_of_value(value)
