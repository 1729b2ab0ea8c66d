"""Fluid's desc objects (``program.desc``, ``block.desc``, ``op.desc``, ``var.desc``) as views of the messages.

Front-end code and old scripts that reach below Operator and Variable find the methods they expect; every
change goes to the message, and the owner is told of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import lowering
from fluidjax import framework_pb2 as pb
from fluidjax.base import enums
from fluidjax.base.enums import AttrType, VarType, to_var_type
from fluidjax.base.errors import EnforceNotMet
from fluidjax.base.version import full_version, version_number
from fluidjax.framework.attrs import attr_type, read_attr
from fluidjax.framework.infer import infer_desc, write_kind, write_shape
from fluidjax.framework.messages import (
    find_attr,
    find_slot,
    lod_holder,
    need_tensor_desc,
    read_col,
    set_attr,
    set_kind,
    set_slot,
    set_tensor,
)
from fluidjax.framework.names import OP_ROLE_VAR


def _nothing() -> None:
    pass


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


class OpDescView:
    """Fluid's OpDesc."""

    def __init__(self, proto: pb.OpDesc | None = None, changed: Callable[[], None] = _nothing) -> None:
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
        set_slot(self.proto.inputs, name, [_text(a) for a in arguments])
        self._changed()

    def set_output(self, name: str, arguments: Sequence[str]) -> None:
        """Bind the variables ``arguments`` to output slot ``name``, which is added where it is missing."""
        set_slot(self.proto.outputs, name, [_text(a) for a in arguments])
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


class VarDescView:
    """Fluid's VarDesc."""

    VarType = enums.VarType

    def __init__(self, proto: pb.VarDesc | str, changed: Callable[[], None] = _nothing) -> None:
        if isinstance(proto, str):
            proto = pb.VarDesc(name=proto)
            set_kind(proto, enums.VarType.LOD_TENSOR)
        self.proto = proto
        self._changed = changed

    def name(self) -> str:
        """The variable's name."""
        return self.proto.name

    def set_name(self, name: str) -> None:
        """Rename the variable; ops that mention the old name keep it."""
        self.proto.name = name
        self._changed()

    def type(self) -> enums.VarType:
        """What the variable holds: LOD_TENSOR, SELECTED_ROWS, READER ..."""
        return enums.VarType(self.proto.type.type)

    def set_type(self, kind: enums.VarType) -> None:
        """Write what the variable holds; ``kind`` is a VarType."""
        set_kind(self.proto, kind)
        self._changed()

    def shape(self) -> list[int]:
        """The dims, -1 where unknown; EnforceNotMet where the variable holds no tensor."""
        return list(need_tensor_desc(self.proto, "shape").dims)

    get_shape = shape

    def set_shape(self, shape: Sequence[int]) -> None:
        """Write the dims; EnforceNotMet where the variable holds no tensor."""
        set_tensor(self.proto, shape=shape)
        self._changed()

    def dtype(self) -> enums.VarType:
        """The element type; EnforceNotMet where the variable holds no tensor."""
        return enums.VarType(need_tensor_desc(self.proto, "dtype").data_type)

    def set_dtype(self, dtype: Any) -> None:
        """Write the element type, given as a VarType, a NumPy dtype or its name; EnforceNotMet as for ``dtype``."""
        set_tensor(self.proto, dtype=to_var_type(dtype))
        self._changed()

    def lod_level(self) -> int:
        """The number of LoD levels; EnforceNotMet unless a LOD_TENSOR or LOD_TENSOR_ARRAY."""
        return self._lod_holder().lod_level

    def set_lod_level(self, level: int) -> None:
        """Write the number of LoD levels; EnforceNotMet unless a LOD_TENSOR or LOD_TENSOR_ARRAY."""
        self._lod_holder().lod_level = level
        self._changed()

    def _lod_holder(self) -> Any:
        holder = lod_holder(self.proto)
        if holder is None:
            raise EnforceNotMet(
                f"Getting 'lod_level' is not supported by the type of var {self.proto.name}: it is {self.type()}. "
                "Only LOD_TENSOR and LOD_TENSOR_ARRAY variables have one."
            )
        return holder

    def persistable(self) -> bool:
        """Whether the scope keeps the variable between runs."""
        return self.proto.persistable

    def set_persistable(self, persistable: bool) -> None:
        """Write whether the scope keeps the variable between runs."""
        self.proto.persistable = persistable
        self._changed()

    def need_check_feed(self) -> bool:
        """Whether a fed value must have the declared dtype and shape."""
        return self.proto.need_check_feed

    def set_need_check_feed(self, need: bool) -> None:
        """Write whether a fed value must have the declared dtype and shape."""
        self.proto.need_check_feed = need
        self._changed()

    def shapes(self) -> list[list[int]]:
        """The dims of each tensor that a READER variable yields."""
        return [list(t.tensor.dims) for t in self.proto.type.reader.lod_tensor]

    def set_shapes(self, shapes: Sequence[Sequence[int]]) -> None:
        """Write the dims of the tensors that a READER variable yields, as many as are given."""
        for tensor, shape in zip(self._reader(len(shapes)), shapes, strict=True):
            tensor.tensor.dims[:] = shape
        self._changed()

    def dtypes(self) -> list[enums.VarType]:
        """The element type of each tensor that a READER variable yields."""
        return [enums.VarType(t.tensor.data_type) for t in self.proto.type.reader.lod_tensor]

    def set_dtypes(self, dtypes: Sequence[Any]) -> None:
        """Write the element types of the tensors that a READER variable yields, as many as are given."""
        for tensor, dtype in zip(self._reader(len(dtypes)), dtypes, strict=True):
            tensor.tensor.data_type = int(to_var_type(dtype))
        self._changed()

    def lod_levels(self) -> list[int]:
        """The number of LoD levels of each tensor that a READER variable yields."""
        return [t.lod_level for t in self.proto.type.reader.lod_tensor]

    def set_lod_levels(self, levels: Sequence[int]) -> None:
        """Write the LoD levels of the tensors that a READER variable yields, as many as are given."""
        for tensor, level in zip(self._reader(len(levels)), levels, strict=True):
            tensor.lod_level = level
        self._changed()

    def _reader(self, count: int) -> Any:
        tensors = self.proto.type.reader.lod_tensor
        while len(tensors) < count:
            tensors.add()
        del tensors[count:]
        return tensors

    def serialize_to_string(self) -> bytes:
        """The VarDesc as protobuf bytes; required fields may be missing."""
        return self.proto.SerializePartialToString()


class BlockDescView:
    """Fluid's BlockDesc."""

    def __init__(self, proto: pb.BlockDesc, program: pb.ProgramDesc, changed: Callable[[], None] = _nothing) -> None:
        self.proto = proto
        self._program = program
        self._changed = changed

    @property
    def id(self) -> int:
        """The block's index in its program."""
        return self.proto.idx

    idx = id

    @property
    def parent(self) -> int:
        """The index of the block around this one; -1 for the outermost."""
        return self.proto.parent_idx

    def get_forward_block_idx(self) -> int:
        """The index of the block that this one is the gradient of; -1 where it is none."""
        return self.proto.forward_block_idx

    def _set_forward_block_idx(self, index: int) -> None:
        self.proto.forward_block_idx = index
        self._changed()

    def op_size(self) -> int:
        """The number of ops in the block."""
        return len(self.proto.ops)

    def op(self, index: int) -> OpDescView:
        """A view of op ``index``; IndexError where there is none."""
        return OpDescView(self.proto.ops[index], self._changed)

    def append_op(self) -> OpDescView:
        """A view of a new op at the end, without type, slots or attributes."""
        self._changed()
        return OpDescView(self.proto.ops.add(type=""), self._changed)

    def _insert_op(self, index: int) -> OpDescView:
        self.proto.ops.insert(index, pb.OpDesc(type=""))
        self._changed()
        return OpDescView(self.proto.ops[index], self._changed)

    def _prepend_op(self) -> OpDescView:
        return self._insert_op(0)

    def _remove_op(self, start: int, end: int) -> None:
        del self.proto.ops[start:end]
        self._changed()

    def all_vars(self) -> list[VarDescView]:
        """Views of the block's own variables, in the order in which they were declared."""
        return [VarDescView(var, self._changed) for var in self.proto.vars]

    def find_var(self, name: str | bytes) -> VarDescView | None:
        """A view of the block's own variable ``name``; None where there is none."""
        wanted = _text(name)
        for var in self.proto.vars:
            if var.name == wanted:
                return VarDescView(var, self._changed)
        return None

    def has_var(self, name: str | bytes) -> bool:
        """Whether the block itself, not one around it, declares ``name``."""
        return self.find_var(name) is not None

    def find_var_recursive(self, name: str | bytes) -> VarDescView | None:
        """A view of ``name`` in this block or the nearest one around it; None where no block declares it."""
        found = self.find_var(name)
        if found is not None or self.proto.parent_idx < 0:
            return found
        parent = self._program.blocks[self.proto.parent_idx]
        return BlockDescView(parent, self._program, self._changed).find_var_recursive(name)

    def has_var_recursive(self, name: str | bytes) -> bool:
        """Whether this block or one around it declares ``name``."""
        return self.find_var_recursive(name) is not None

    def var(self, name: str | bytes) -> VarDescView:
        """A view of the block's own variable ``name``, declared as a LOD_TENSOR where it is missing."""
        found = self.find_var(name)
        if found is None:
            var = self.proto.vars.add(name=_text(name))
            set_kind(var, VarType.LOD_TENSOR)
            self._changed()
            found = VarDescView(var, self._changed)
        return found

    def _remove_var(self, name: str | bytes) -> None:
        wanted = _text(name)
        for index, var in enumerate(self.proto.vars):
            if var.name == wanted:
                del self.proto.vars[index]
                break
        self._changed()

    def serialize_to_string(self) -> bytes:
        """The BlockDesc as protobuf bytes; required fields may be missing."""
        return self.proto.SerializePartialToString()


class ProgramDescView:
    """Fluid's ProgramDesc."""

    def __init__(
        self, proto: pb.ProgramDesc | ProgramDescView | bytes | None = None, changed: Callable[[], None] = _nothing
    ) -> None:
        if proto is None:
            self.proto = pb.ProgramDesc()
            self.proto.blocks.add(idx=0, parent_idx=-1)
            self.proto.version.version = version_number(full_version)
        elif isinstance(proto, bytes):
            self.proto = pb.ProgramDesc.FromString(proto)
        elif isinstance(proto, ProgramDescView):
            self.proto = pb.ProgramDesc()
            self.proto.CopyFrom(proto.proto)
        else:
            self.proto = proto
        self._changed = changed

    def num_blocks(self) -> int:
        """The number of blocks; the outermost one counts."""
        return len(self.proto.blocks)

    def block(self, index: int) -> BlockDescView:
        """A view of block ``index``; IndexError where there is none."""
        return BlockDescView(self.proto.blocks[index], self.proto, self._changed)

    def append_block(self, parent: BlockDescView) -> BlockDescView:
        """A view of a new block inside ``parent``, with the next index."""
        self.proto.blocks.add(idx=len(self.proto.blocks), parent_idx=parent.id)
        self._changed()
        return self.block(len(self.proto.blocks) - 1)

    def get_feed_target_names(self) -> list[str]:
        """What the feed ops of block 0 write, in the order of their columns."""
        ops = [op for op in self.proto.blocks[0].ops if op.type == "feed"]
        named = {read_col(op): (find_slot(op.outputs, "Out") or [""])[0] for op in ops}
        return [named[col] for col in sorted(named)]

    def get_fetch_target_names(self) -> list[str]:
        """What the fetch ops of block 0 read, in the order of their columns."""
        ops = [op for op in self.proto.blocks[0].ops if op.type == "fetch"]
        named = {read_col(op): (find_slot(op.inputs, "X") or [""])[0] for op in ops}
        return [named[col] for col in sorted(named)]

    def _version(self) -> int:
        return self.proto.version.version

    def _set_version(self, version: int = 0) -> None:
        self.proto.version.version = version
        self._changed()

    def flush(self) -> None:
        """Bring the message up to date; it always is."""

    def parse_from_string(self, data: bytes) -> None:
        """Become the ProgramDesc that ``data`` holds; protobuf's DecodeError where it holds none."""
        self.proto.ParseFromString(data)
        self._changed()

    def serialize_to_string(self) -> bytes:
        """The ProgramDesc as protobuf bytes; required fields may be missing."""
        return self.proto.SerializePartialToString()
