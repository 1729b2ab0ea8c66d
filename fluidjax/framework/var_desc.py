"""Fluid's VarDesc as a view of its message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fluidjax import framework_pb2 as pb
from fluidjax.base import enums
from fluidjax.base.enums import to_var_type
from fluidjax.base.errors import EnforceNotMet
from fluidjax.framework.messages import (
    lod_holder,
    need_tensor_desc,
    set_kind,
    set_tensor,
)
from fluidjax.framework.op_desc import nothing


class VarDescView:
    """Fluid's VarDesc."""

    VarType = enums.VarType

    def __init__(self, proto: pb.VarDesc | str, changed: Callable[[], None] = nothing) -> None:
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
