"""Reading and writing OpDesc and VarDesc messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fluidjax.base.enums import AttrType, VarType
from fluidjax.base.errors import EnforceNotMet
from fluidjax.framework.attrs import attr_fields, declared_type, type_of_value
from fluidjax.proto import framework_pb2 as pb

# As messages have them: members of an enum are slow to look up and to compare.
_LOD_TENSOR, _SELECTED_ROWS = int(VarType.LOD_TENSOR), int(VarType.SELECTED_ROWS)
_LOD_TENSOR_ARRAY = int(VarType.LOD_TENSOR_ARRAY)


def tensor_desc(var: pb.VarDesc) -> pb.VarType.TensorDesc | None:
    """The message with dtype and dims, depending on the type of variable; None if it is not a tensor."""
    kind = var.type.type
    if kind == _LOD_TENSOR:
        return var.type.lod_tensor.tensor
    if kind == _SELECTED_ROWS:
        return var.type.selected_rows
    if kind == _LOD_TENSOR_ARRAY:
        return var.type.tensor_array.tensor
    return None


def set_kind(var: pb.VarDesc, kind: int) -> None:
    """Set the type of the variable."""
    var.type.type = int(kind)  # type: ignore[assignment]


def need_tensor_desc(var: pb.VarDesc, what: str) -> pb.VarType.TensorDesc:
    """``tensor_desc``, or EnforceNotMet."""
    tensor = tensor_desc(var)
    if tensor is None:
        raise EnforceNotMet(
            f"Getting '{what}' is not supported by the type of var {var.name}: it is {VarType(var.type.type)}. "
            "Only LOD_TENSOR, SELECTED_ROWS and LOD_TENSOR_ARRAY variables have one."
        )
    return tensor


def lod_holder(var: pb.VarDesc) -> Any:
    """The message that has ``lod_level``, or None."""
    if var.type.type == _LOD_TENSOR:
        return var.type.lod_tensor
    if var.type.type == _LOD_TENSOR_ARRAY:
        return var.type.tensor_array
    return None


def dims_of(shape: Iterable[Any]) -> tuple[int, ...]:
    """The dims of a shape as ints. Raises TypeError for anything but whole numbers."""
    given = tuple(shape)
    try:
        dims = tuple(int(n) for n in given)
    except ValueError:
        dims = ()
    if len(dims) != len(given) or any(n != d for n, d in zip(given, dims, strict=True) if isinstance(n, float)):
        raise TypeError(
            f"a shape is a list of ints, received {list(given)!r}. Pass whole numbers, -1 for unknown dims."
        )
    return dims


def set_tensor(var: pb.VarDesc, shape: Sequence[int] | None = None, dtype: int | None = None) -> None:
    """Write the dims and element type that are given."""
    tensor = need_tensor_desc(var, "tensor_desc")
    if shape is not None:
        tensor.dims[:] = dims_of(shape)
    if dtype is not None:
        tensor.data_type = int(dtype)  # type: ignore[assignment]  # the stubs have types of their own for enums


def find_slot(slots: Any, name: str) -> list[str] | None:
    """The argument names of a slot; None if the op has no such slot."""
    for slot in slots:
        if slot.parameter == name:
            return list(slot.arguments)
    return None


def set_slot(slots: Any, name: str, arguments: Sequence[str]) -> None:
    """Set the argument names of one slot; slots stay sorted by name."""
    for slot in slots:
        if slot.parameter == name:
            slot.arguments[:] = arguments
            return
    slots.add(parameter=name, arguments=arguments)
    if len(slots) > 1 and slots[-2].parameter > name:
        slots.sort(key=lambda slot: slot.parameter)


def find_attr(op: pb.OpDesc, name: str) -> pb.OpDesc.Attr | None:
    """The message of one attribute, or None."""
    for attr in op.attrs:
        if attr.name == name:
            return attr
    return None


def add_attr(op: pb.OpDesc, name: str, value: Any, kind: AttrType | None = None) -> None:
    """Add an attribute that the op does not have yet; its type is `kind`, or else implied by the value."""
    op.attrs.add(**attr_fields(name, type_of_value(value) if kind is None else kind, value))


def set_attr(op: pb.OpDesc, name: str, value: Any, kind: AttrType | None = None) -> None:
    """Set an attribute; its type is `kind`, or else its current type, or else implied by the value."""
    attr = find_attr(op, name)
    if kind is None:
        kind = _implied_type(op, name, value) if attr is None else _kept_type(AttrType(attr.type), value)
    try:
        written = pb.OpDesc.Attr(**attr_fields(name, kind, value))
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"op {op.type}: attribute {name} is of type {kind.name}, {error}. Give a value of that type."
        ) from error
    (op.attrs.add() if attr is None else attr).CopyFrom(written)


def _implied_type(op: pb.OpDesc, name: str, value: Any) -> AttrType:
    """The type of a value; the op's own says what an empty list holds, and whether a number is a truth value."""
    given = type_of_value(value)
    declared = declared_type(op.type, name) or given
    empty = given is AttrType.INTS and not len(value) and declared.name.endswith("S")
    return declared if empty or (given, declared) == (AttrType.INT, AttrType.BOOL) else given


def _kept_type(kind: AttrType, value: Any) -> AttrType:
    """The type after assigning a value: the current one, unless the value requires another (a list for a scalar)."""
    given = type_of_value(value)
    numbers = {AttrType.INT, AttrType.LONG, AttrType.FLOAT, AttrType.BOOL, AttrType.BLOCK}
    is_list = isinstance(value, (list, tuple))
    if (is_list and kind.name.endswith("S")) or (kind in numbers and given in numbers):
        return kind
    return given


def read_col(op: pb.OpDesc) -> int:
    """The column of a feed or fetch op."""
    attr = find_attr(op, "col")
    return 0 if attr is None else attr.i
