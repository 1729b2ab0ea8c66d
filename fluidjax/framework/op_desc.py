"""Fluid's OpDesc as a view of its message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import lowering
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
from fluidjax.proto import framework_pb2 as pb

if TYPE_CHECKING:
    from fluidjax.framework.descs import BlockDescView


def nothing() -> None:
    """Do nothing: the default observer of changes."""


def text(name: str | bytes) -> str:
    """A name as str; old callers also pass bytes."""
    return name.decode() if isinstance(name, bytes) else name


class Desc:
    """What Fluid's desc objects have in common: views of the same message are equal."""

    proto: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Desc) and self.proto is other.proto

    def __hash__(self) -> int:
        return id(self.proto)


class OpDescView(Desc):
    """Fluid's OpDesc."""

    def __init__(
        self,
        proto: pb.OpDesc | None = None,
        changed: Callable[[], None] = nothing,
        block: BlockDescView | None = None,
    ) -> None:
        self.proto = pb.OpDesc(type="") if proto is None else proto
        self._changed = changed
        self._block = block

    def block(self) -> BlockDescView | None:
        """The block that the op is in; None for an op that was made alone."""
        return self._block

    def type(self) -> str:
        """The op type, such as ``relu``."""
        return self.proto.type

    def set_type(self, name: str) -> None:
        """Change the op type, keeping slots and attributes."""
        self.proto.type = name
        self._changed()

    def input(self, name: str) -> list[str]:
        """The variables of input slot ``name``; [] if the op has no such slot."""
        return find_slot(self.proto.inputs, name) or []

    def output(self, name: str) -> list[str]:
        """The variables of output slot ``name``; [] if the op has no such slot."""
        return find_slot(self.proto.outputs, name) or []

    def inputs(self) -> dict[str, list[str]]:
        """A copy of the mapping from input slots to variables."""
        return {slot.parameter: list(slot.arguments) for slot in self.proto.inputs}

    def outputs(self) -> dict[str, list[str]]:
        """A copy of the mapping from output slots to variables."""
        return {slot.parameter: list(slot.arguments) for slot in self.proto.outputs}

    def input_names(self) -> list[str]:
        """The input slots in message order, including empty ones."""
        return [slot.parameter for slot in self.proto.inputs]

    def output_names(self) -> list[str]:
        """The output slots in message order, including empty ones."""
        return [slot.parameter for slot in self.proto.outputs]

    def input_arg_names(self) -> list[str]:
        """The variables of all input slots, in slot order, with duplicates."""
        return [name for slot in self.proto.inputs for name in slot.arguments]

    def output_arg_names(self) -> list[str]:
        """The variables of all output slots, in slot order, with duplicates."""
        return [name for slot in self.proto.outputs for name in slot.arguments]

    def set_input(self, name: str, arguments: Sequence[str]) -> None:
        """Bind the variables ``arguments`` to input slot ``name``, added if missing."""
        set_slot(self.proto.inputs, name, [text(a) for a in arguments])
        self._changed()

    def set_output(self, name: str, arguments: Sequence[str]) -> None:
        """Bind the variables ``arguments`` to output slot ``name``, added if missing."""
        set_slot(self.proto.outputs, name, [text(a) for a in arguments])
        self._changed()

    def remove_output(self, name: str) -> None:
        """Remove output slot ``name``, if present."""
        self._remove_slot(self.proto.outputs, name)

    def remove_input(self, name: str) -> None:
        """Remove input slot ``name``, if present."""
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
        """The attributes in the message, in its order."""
        return [attr.name for attr in self.proto.attrs]

    def has_attr(self, name: str) -> bool:
        """Whether the message contains the attribute; unset defaults do not count."""
        return find_attr(self.proto, name) is not None

    def attr(self, name: str) -> Any:
        """The value of an attribute, a block as its index. Raises EnforceNotMet if the op has no such attribute."""
        return read_attr(self._need_attr(name))

    def attr_type(self, name: str) -> AttrType:
        """The type of an attribute. Raises EnforceNotMet if the op has no such attribute."""
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
        """Set a BLOCK attribute to the index of ``block``, a BlockDescView or an index."""
        set_attr(self.proto, name, getattr(block, "id", block), AttrType.BLOCK)
        self._changed()

    def set_blocks_attr(self, name: str, blocks: Sequence[Any]) -> None:
        """Set a BLOCKS attribute to the indices of ``blocks``, BlockDescViews or indices."""
        set_attr(self.proto, name, [getattr(b, "id", b) for b in blocks], AttrType.BLOCKS)
        self._changed()

    def remove_attr(self, name: str) -> None:
        """Remove an attribute, if present."""
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
        """Become a copy of ``other``, including type, slots, attributes and target mark."""
        self.proto.CopyFrom(other.proto)
        self._changed()

    def set_is_target(self, is_target: bool) -> None:
        """Set the mark by which Paddle's own pruning keeps ops; it has no effect here."""
        self.proto.is_target = is_target
        self._changed()

    def check_attrs(self) -> None:
        """Check the attributes, and set missing ones to their defaults."""
        given = {attr.name: read_attr(attr) for attr in self.proto.attrs if not attr.name.startswith("op_")}
        spec = lowering.get_op(self.proto.type).attrs
        for name, value in lowering.check_attrs(self.proto.type, given).items():
            if name not in given:
                set_attr(self.proto, name, value, attr_type(spec[name].type) if name in spec else None)
        self._changed()

    def infer_var_type(self, block: BlockDescView) -> None:
        """Infer the type and dtype of the op's outputs in a block from those of its inputs."""
        infer_desc(self, block, write_kind)
        block._changed()

    def infer_shape(self, block: BlockDescView) -> None:
        """Infer the shape and LoD level of the op's outputs in a block from its inputs.

        Raises lowering.OpError if the inputs do not match the op.
        """
        infer_desc(self, block, write_shape)
        block._changed()

    def serialize_to_string(self) -> bytes:
        """The OpDesc as protobuf bytes; required fields may be missing."""
        return self.proto.SerializePartialToString()
