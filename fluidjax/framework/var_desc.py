"""Fluid's VarDesc as a view of its message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fluidjax.base import enums
from fluidjax.base.enums import to_var_type
from fluidjax.base.errors import EnforceNotMet
from fluidjax.framework.messages import (
    lod_holder,
    need_tensor_desc,
    set_kind,
    set_tensor,
)
from fluidjax.framework.op_desc import Desc, nothing
from fluidjax.proto import framework_pb2 as pb


class VarDescView(Desc):
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
        """Rename the variable; ops that refer to the old name are not updated."""
        self.proto.name = name
        self._changed()

    def type(self) -> enums.VarType:
        """The type of the variable: LOD_TENSOR, SELECTED_ROWS, READER ..."""
        return enums.VarType(self.proto.type.type)

    def set_type(self, kind: enums.VarType) -> None:
        """Set the type of the variable; ``kind`` is a VarType."""
        set_kind(self.proto, kind)
        self._changed()

    def shape(self) -> list[int]:
        """The dimensions, -1 if unknown. Raises EnforceNotMet if the variable is not a tensor."""
        return list(need_tensor_desc(self.proto, "shape").dims)

    get_shape = shape

    def set_shape(self, shape: Sequence[int]) -> None:
        """Set the dimensions. Raises EnforceNotMet if the variable is not a tensor."""
        set_tensor(self.proto, shape=shape)
        self._changed()

    def dtype(self) -> enums.VarType:
        """The dtype. Raises EnforceNotMet if the variable is not a tensor."""
        return enums.VarType(need_tensor_desc(self.proto, "dtype").data_type)

    def set_dtype(self, dtype: Any) -> None:
        """Set the dtype, given as a VarType, a NumPy dtype or its name. Raises EnforceNotMet as for ``dtype``."""
        set_tensor(self.proto, dtype=to_var_type(dtype))
        self._changed()

    def lod_level(self) -> int:
        """The LoD level. Raises EnforceNotMet unless it is a LOD_TENSOR or LOD_TENSOR_ARRAY."""
        return self._lod_holder().lod_level

    def set_lod_level(self, level: int) -> None:
        """Set the LoD level. Raises EnforceNotMet unless it is a LOD_TENSOR or LOD_TENSOR_ARRAY."""
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
        """Whether the variable persists in the scope between runs."""
        return self.proto.persistable

    def set_persistable(self, persistable: bool) -> None:
        """Set whether the variable persists in the scope between runs."""
        self.proto.persistable = persistable
        self._changed()

    def need_check_feed(self) -> bool:
        """Whether feeds must match the declared dtype and shape."""
        return self.proto.need_check_feed

    def set_need_check_feed(self, need: bool) -> None:
        """Set whether feeds must match the declared dtype and shape."""
        self.proto.need_check_feed = need
        self._changed()

    def shapes(self) -> list[list[int]]:
        """The dimensions of each tensor that a READER variable yields."""
        return [list(t.tensor.dims) for t in self.proto.type.reader.lod_tensor]

    def set_shapes(self, shapes: Sequence[Sequence[int]]) -> None:
        """Set the dimensions of the tensors that a READER variable yields, as many as given."""
        for tensor, shape in zip(self._reader(len(shapes)), shapes, strict=True):
            tensor.tensor.dims[:] = shape
        self._changed()

    def dtypes(self) -> list[enums.VarType]:
        """The dtype of each tensor that a READER variable yields."""
        return [enums.VarType(t.tensor.data_type) for t in self.proto.type.reader.lod_tensor]

    def set_dtypes(self, dtypes: Sequence[Any]) -> None:
        """Set the dtypes of the tensors that a READER variable yields, as many as given."""
        for tensor, dtype in zip(self._reader(len(dtypes)), dtypes, strict=True):
            tensor.tensor.data_type = int(to_var_type(dtype))
        self._changed()

    def lod_levels(self) -> list[int]:
        """The LoD level of each tensor that a READER variable yields."""
        return [t.lod_level for t in self.proto.type.reader.lod_tensor]

    def set_lod_levels(self, levels: Sequence[int]) -> None:
        """Set the LoD levels of the tensors that a READER variable yields, as many as given."""
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
