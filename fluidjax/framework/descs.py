"""Fluid's desc objects (``program.desc``, ``block.desc``, ``op.desc``, ``var.desc``) as views of the messages.

They provide the methods expected by front-end code and by old scripts that go below Operator and Variable; every
change is made to the message, and its owner notified.
"""

from __future__ import annotations

from collections.abc import Callable

from fluidjax.base.enums import VarType
from fluidjax.base.version import full_version, version_number
from fluidjax.framework.messages import (
    find_slot,
    read_col,
    set_kind,
)
from fluidjax.framework.op_desc import Desc, OpDescView, nothing, text
from fluidjax.framework.var_desc import VarDescView
from fluidjax.proto import framework_pb2 as pb


class BlockDescView(Desc):
    """Fluid's BlockDesc."""

    def __init__(self, proto: pb.BlockDesc, program: pb.ProgramDesc, changed: Callable[[], None] = nothing) -> None:
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
        """The index of the parent block; -1 for the outermost."""
        return self.proto.parent_idx

    def get_forward_block_idx(self) -> int:
        """The index of the block that this one is the gradient of; -1 if it is not one."""
        return self.proto.forward_block_idx

    def _set_forward_block_idx(self, index: int) -> None:
        self.proto.forward_block_idx = index
        self._changed()

    def op_size(self) -> int:
        """The number of ops in the block."""
        return len(self.proto.ops)

    def op(self, index: int) -> OpDescView:
        """A view of op ``index``. Raises IndexError if there is none."""
        return OpDescView(self.proto.ops[index], self._changed, self)

    def append_op(self) -> OpDescView:
        """A view of a new op at the end, without type, slots or attributes."""
        self._changed()
        return OpDescView(self.proto.ops.add(type=""), self._changed, self)

    def _insert_op(self, index: int) -> OpDescView:
        self.proto.ops.insert(index, pb.OpDesc(type=""))
        self._changed()
        return OpDescView(self.proto.ops[index], self._changed, self)

    def _prepend_op(self) -> OpDescView:
        return self._insert_op(0)

    def _remove_op(self, start: int, end: int) -> None:
        del self.proto.ops[start:end]
        self._changed()

    def all_vars(self) -> list[VarDescView]:
        """Views of the block's own variables, in the order in which they were declared."""
        return [VarDescView(var, self._changed) for var in self.proto.vars]

    def find_var(self, name: str | bytes) -> VarDescView | None:
        """A view of the block's own variable ``name``; None if there is none."""
        wanted = text(name)
        for var in self.proto.vars:
            if var.name == wanted:
                return VarDescView(var, self._changed)
        return None

    def has_var(self, name: str | bytes) -> bool:
        """Whether the block itself, rather than an ancestor, declares ``name``."""
        return self.find_var(name) is not None

    def find_var_recursive(self, name: str | bytes) -> VarDescView | None:
        """A view of ``name`` here, in the block this is the gradient of, or in the nearest ancestor of either."""
        pending, seen = [self.proto.idx], set[int]()
        while pending:
            idx = pending.pop(0)
            if idx < 0 or idx in seen:
                continue
            seen.add(idx)
            proto = self._program.blocks[idx]
            found = BlockDescView(proto, self._program, self._changed).find_var(name)
            if found is not None:
                return found
            pending += [proto.forward_block_idx, proto.parent_idx]
        return None

    def has_var_recursive(self, name: str | bytes) -> bool:
        """Whether this block or an ancestor declares ``name``."""
        return self.find_var_recursive(name) is not None

    def var(self, name: str | bytes) -> VarDescView:
        """A view of the block's own variable ``name``, declared as a LOD_TENSOR if missing."""
        found = self.find_var(name)
        if found is None:
            var = self.proto.vars.add(name=text(name))
            set_kind(var, VarType.LOD_TENSOR)
            self._changed()
            found = VarDescView(var, self._changed)
        return found

    def _remove_var(self, name: str | bytes) -> None:
        wanted = text(name)
        for index, var in enumerate(self.proto.vars):
            if var.name == wanted:
                del self.proto.vars[index]
                break
        self._changed()

    def _rename_var(self, name: str | bytes, new_name: str | bytes) -> None:
        """Rename a variable here and in the block's ops; one that is not here is no error."""
        old, new = text(name), text(new_name)
        found = self.find_var(old)
        if found is None:
            return
        found.set_name(new)
        for op in map(self.op, range(self.op_size())):
            op._rename_input(old, new)
            op._rename_output(old, new)
        self._changed()

    def serialize_to_string(self) -> bytes:
        """The BlockDesc as protobuf bytes; required fields may be missing."""
        return self.proto.SerializePartialToString()


class ProgramDescView(Desc):
    """Fluid's ProgramDesc."""

    def __init__(
        self, proto: pb.ProgramDesc | ProgramDescView | bytes | None = None, changed: Callable[[], None] = nothing
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
        """The number of blocks, including the outermost."""
        return len(self.proto.blocks)

    def block(self, index: int) -> BlockDescView:
        """A view of block ``index``. Raises IndexError if there is none."""
        return BlockDescView(self.proto.blocks[index], self.proto, self._changed)

    def append_block(self, parent: BlockDescView) -> BlockDescView:
        """A view of a new block inside ``parent``, with the next index."""
        self.proto.blocks.add(idx=len(self.proto.blocks), parent_idx=parent.id)
        self._changed()
        return self.block(len(self.proto.blocks) - 1)

    def get_feed_target_names(self) -> list[str]:
        """The outputs of the feed ops of block 0, in the order of their columns."""
        ops = [op for op in self.proto.blocks[0].ops if op.type == "feed"]
        named = {read_col(op): (find_slot(op.outputs, "Out") or [""])[0] for op in ops}
        return [named[col] for col in sorted(named)]

    def get_fetch_target_names(self) -> list[str]:
        """The inputs of the fetch ops of block 0, in the order of their columns."""
        ops = [op for op in self.proto.blocks[0].ops if op.type == "fetch"]
        named = {read_col(op): (find_slot(op.inputs, "X") or [""])[0] for op in ops}
        return [named[col] for col in sorted(named)]

    def _version(self) -> int:
        return self.proto.version.version

    def _set_version(self, version: int = 0) -> None:
        self.proto.version.version = version
        self._changed()

    def flush(self) -> None:
        """A no-op: the message is always up to date."""

    def parse_from_string(self, data: bytes) -> None:
        """Replace the content by a serialised ProgramDesc. Raises protobuf's DecodeError for invalid bytes."""
        self.proto.ParseFromString(data)
        self._changed()

    def serialize_to_string(self) -> bytes:
        """The ProgramDesc as protobuf bytes; required fields may be missing."""
        return self.proto.SerializePartialToString()
