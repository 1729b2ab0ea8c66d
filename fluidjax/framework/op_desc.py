"""Fluid's OpDesc as a view of its message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import lowering
from fluidjax import framework_pb2 as pb
from fluidjax.base.enums import AttrType
from fluidjax.base.errors import EnforceNotMet
from fluidjax.framework.attrs import attr_type, read_attr
from fluidjax.framework.infer import infer_desc, write_kind, write_shape
from fluidjax.framework.messages import (
    find_attr,
    find_slot,
    set_attr,
    set_slot,
)
from fluidjax.framework.names import OP_ROLE_VAR

if TYPE_CHECKING:
    from fluidjax.framework.descs import BlockDescView


def nothing() -> None:
    """Nobody is told of changes."""


def text(name: str | bytes) -> str:
    """A name as text; callers of old give bytes too."""
    return name.decode() if isinstance(name, bytes) else name


class OpDescView:
    """Fluid's OpDesc."""

    def __init__(self, proto: pb.OpDesc | None = None, changed: Callable[[], None] = nothing) -> None:
        self.proto = pb.OpDesc(type="") if proto is None else proto
        self._changed = changed

    def type(self) -> str:
        """The op type, such as ``relu``."""
        return self.proto.type

    def set_type(self, name: str) -> None:
        """Rename the op type; slots and attributes stay as they are."""
        self.proto.type = name
        self._changed()

    def input(self, name: str) -> list[str]:
        """The variables of input slot ``name``; [] where the op has no such slot."""
        return find_slot(self.proto.inputs, name) or []

    def output(self, name: str) -> list[str]:
        """The variables of output slot ``name``; [] where the op has no such slot."""
        return find_slot(self.proto.outputs, name) or []

    def inputs(self) -> dict[str, list[str]]:
        """Input slot -> its variables, as a copy."""
        return {slot.parameter: list(slot.arguments) for slot in self.proto.inputs}

    def outputs(self) -> dict[str, list[str]]:
        """Output slot -> its variables, as a copy."""
        return {slot.parameter: list(slot.arguments) for slot in self.proto.outputs}

    def input_names(self) -> list[str]:
        """The input slots in the order of the message, those without variables included."""
        return [slot.parameter for slot in self.proto.inputs]

    def output_names(self) -> list[str]:
        """The output slots in the order of the message, those without variables included."""
        return [slot.parameter for slot in self.proto.outputs]

    def input_arg_names(self) -> list[str]:
        """The variables of all input slots, in the order of the slots; repeated ones are repeated."""
        return [name for slot in self.proto.inputs for name in slot.arguments]

    def output_arg_names(self) -> list[str]:
        """The variables of all output slots, in the order of the slots; repeated ones are repeated."""
        return [name for slot in self.proto.outputs for name in slot.arguments]

    def set_input(self, name: str, arguments: Sequence[str]) -> None:
        """Bind the variables ``arguments`` to input slot ``name``, which is added where it is missing."""
        set_slot(self.proto.inputs, name, [text(a) for a in arguments])
        self._changed()

    def set_output(self, name: str, arguments: Sequence[str]) -> None:
        """Bind the variables ``arguments`` to output slot ``name``, which is added where it is missing."""
        set_slot(self.proto.outputs, name, [text(a) for a in arguments])
        self._changed()

    def remove_output(self, name: str) -> None:
        """Drop output slot ``name``; nothing happens where there is none."""
        self._remove_slot(self.proto.outputs, name)

    def remove_input(self, name: str) -> None:
        """Drop input slot ``name``; nothing happens where there is none."""
        self._remove_slot(self.proto.inputs, name)

    def _remove_slot(self, slots: Any, name: str) -> None:
        for index, slot in enumerate(slots):
            if slot.parameter == name:
                del slots[index]
                break
        self._changed()

    def _rename_input(self, old: str, new: str) -> None:
        self._rename(self.proto.inputs, old, new)

    def _rename_output(self, old: str, new: str) -> None:
        self._rename(self.proto.outputs, old, new)

    def _rename(self, slots: Any, old: str, new: str) -> None:
        role_var = find_attr(self.proto, OP_ROLE_VAR)
        for names in (*(slot.arguments for slot in slots), role_var.strings if role_var is not None else []):
            for index, name in enumerate(names):
                if name == old:
                    names[index] = new
        self._changed()

    def attr_names(self) -> list[str]:
        """The attributes that the message holds, in its order."""
        return [attr.name for attr in self.proto.attrs]

    def has_attr(self, name: str) -> bool:
        """Whether the message holds the attribute; a default that nobody wrote does not count."""
        return find_attr(self.proto, name) is not None

    def attr(self, name: str) -> Any:
        """The value of an attribute, a block as its index; EnforceNotMet where the op has no such attribute."""
        return read_attr(self._need_attr(name))

    def attr_type(self, name: str) -> AttrType:
        """The type tag of an attribute; EnforceNotMet where the op has no such attribute."""
        return AttrType(self._need_attr(name).type)

    def _need_attr(self, name: str) -> pb.OpDesc.Attr:
        attr = find_attr(self.proto, name)
        if attr is None:
            raise EnforceNotMet(
                f"Attribute {name} is not found: op {self.proto.type} has {', '.join(self.attr_names()) or 'none'}. "
                "Ask has_attr(name) first."
            )
        return attr

    def _set_attr(self, name: str, value: Any) -> None:
        set_attr(self.proto, name, value)
        self._changed()

    def set_block_attr(self, name: str, block: Any) -> None:
        """Write a BLOCK attribute: the index of ``block``, which may be given as a BlockDescView or an index."""
        set_attr(self.proto, name, block.id if isinstance(block, BlockDescView) else block, AttrType.BLOCK)
        self._changed()

    def set_blocks_attr(self, name: str, blocks: Sequence[Any]) -> None:
        """Write a BLOCKS attribute: the indices of ``blocks``, each given as a BlockDescView or an index."""
        indices = [b.id if isinstance(b, BlockDescView) else b for b in blocks]
        set_attr(self.proto, name, indices, AttrType.BLOCKS)
        self._changed()

    def remove_attr(self, name: str) -> None:
        """Drop an attribute; nothing happens where there is none."""
        for index, attr in enumerate(self.proto.attrs):
            if attr.name == name:
                del self.proto.attrs[index]
                break
        self._changed()

    def _block_attr_id(self, name: str) -> int:
        return self.attr(name)

    def _blocks_attr_ids(self, name: str) -> list[int]:
        return self.attr(name)

    def copy_from(self, other: OpDescView) -> None:
        """Become a copy of ``other``: type, slots, attributes and target mark are replaced."""
        self.proto.CopyFrom(other.proto)
        self._changed()

    def set_is_target(self, is_target: bool) -> None:
        """Write the mark by which Paddle's own pruning keeps ops; nothing here reads it."""
        self.proto.is_target = is_target
        self._changed()

    def check_attrs(self) -> None:
        """Check the attributes and fill in the defaults of those not set."""
        given = {attr.name: read_attr(attr) for attr in self.proto.attrs if not attr.name.startswith("op_")}
        spec = lowering.get_op(self.proto.type).attrs
        for name, value in lowering.check_attrs(self.proto.type, given).items():
            if name not in given:
                set_attr(self.proto, name, value, attr_type(spec[name].type) if name in spec else None)
        self._changed()

    def infer_var_type(self, block: BlockDescView) -> None:
        """Set the kind and element type of the op's outputs in a block, from those of its inputs."""
        infer_desc(self, block, write_kind)
        block._changed()

    def infer_shape(self, block: BlockDescView) -> None:
        """Set the shape and LoD level of the op's outputs in a block, from its inputs.

        Raises lowering.OpError when the inputs do not fit the op.
        """
        infer_desc(self, block, write_shape)
        block._changed()

    def serialize_to_string(self) -> bytes:
        """The OpDesc as protobuf bytes; required fields may be missing."""
        return self.proto.SerializePartialToString()
