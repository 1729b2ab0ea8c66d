"""Attributes of an OpDesc message: reading, writing, and the type of a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import lowering
from fluidjax.base.enums import AttrType
from fluidjax.framework import names
from fluidjax.proto.framework_pb2 import Complex, OpDesc, Scalar

_FIELDS = {
    AttrType.INT: "i",
    AttrType.FLOAT: "f",
    AttrType.STRING: "s",
    AttrType.INTS: "ints",
    AttrType.FLOATS: "floats",
    AttrType.STRINGS: "strings",
    AttrType.BOOL: "b",
    AttrType.BOOLS: "bools",
    AttrType.BLOCK: "block_idx",
    AttrType.LONG: "l",
    AttrType.BLOCKS: "blocks_idx",
    AttrType.LONGS: "longs",
    AttrType.FLOAT64S: "float64s",
    AttrType.VAR: "var_name",
    AttrType.VARS: "vars_name",
    AttrType.FLOAT64: "float64",
    AttrType.SCALAR: "scalar",
    AttrType.SCALARS: "scalars",
}
_LISTS = {"ints", "floats", "strings", "bools", "blocks_idx", "longs", "float64s", "vars_name", "scalars"}
_BY_NAME = {**AttrType.__members__, "BOOLEAN": AttrType.BOOL, "BOOLEANS": AttrType.BOOLS}
_SCALAR = int(AttrType.SCALAR)
_SCALAR_FIELDS = {Scalar.BOOLEAN: "b", Scalar.LONG: "i", Scalar.FLOAT64: "r"}
_FIELD_OF = {int(kind): (field, field in _LISTS) for kind, field in _FIELDS.items()}


BOOKKEEPING_TYPES = {
    names.OP_ROLE: AttrType.INT,
    names.OP_ROLE_VAR: AttrType.STRINGS,
    names.OP_NAMESCOPE: AttrType.STRING,
    names.OP_CALLSTACK: AttrType.STRINGS,
    names.OP_DEVICE: AttrType.STRING,
}


def attr_type(name: str | int) -> AttrType:
    """The AttrType of a name such as "INTS" or "BOOLEAN"."""
    return _BY_NAME[name] if isinstance(name, str) else AttrType(name)


def declared_type(op_type: str, name: str) -> AttrType | None:
    """The AttrType declared for an attribute by an op, or by the op it is the gradient of; None if neither does."""
    if name in BOOKKEEPING_TYPES:
        return BOOKKEEPING_TYPES[name]
    if not lowering.has_op(op_type):
        return None
    definition = lowering.get_op(op_type)
    spec = definition.attrs.get(name)
    if spec is None and definition.forward is not None:
        spec = definition.forward.attrs.get(name)
    return None if spec is None else attr_type(spec.type)


def read_attr(attr: OpDesc.Attr) -> Any:
    """The value of one attribute; blocks as their indices, variables as their names, scalars as Python's numbers."""
    field, is_list = _FIELD_OF[attr.type]
    value = getattr(attr, field)
    if attr.type >= _SCALAR:
        return [read_scalar(one) for one in value] if is_list else read_scalar(value)
    return list(value) if is_list else value


def read_scalar(scalar: Scalar) -> bool | int | float | complex:
    """The number in the message; zero of its type if there is none."""
    if scalar.type == Scalar.COMPLEX128:
        return complex(scalar.c.r, scalar.c.i)
    return getattr(scalar, _SCALAR_FIELDS[scalar.type])


def _scalar_message(value: Any) -> Scalar:
    if isinstance(value, (bool, np.bool_)):
        return Scalar(type=Scalar.BOOLEAN, b=bool(value))
    if isinstance(value, (int, np.integer)):
        return Scalar(type=Scalar.LONG, i=int(value))
    if isinstance(value, (float, np.floating)):
        return Scalar(type=Scalar.FLOAT64, r=float(value))
    if isinstance(value, (complex, np.complexfloating)):
        return Scalar(type=Scalar.COMPLEX128, c=Complex(r=float(value.real), i=float(value.imag)))
    raise TypeError(f"expected a number, got {value!r}")


def _block_index(block: Any) -> int:
    return int(block if isinstance(block, (int, np.integer)) else block.idx)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {value!r}")
    return value


def _scalar_integer(value: Any) -> int:
    as_int = int(value)
    if as_int != value:
        raise TypeError(f"expected an integer, got {value!r}")
    return as_int


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "i": _scalar_integer,
    "f": float,
    "s": _text,
    "b": bool,
    "block_idx": _block_index,
    "l": _scalar_integer,
    "ints": _scalar_integer,
    "floats": float,
    "strings": _text,
    "bools": bool,
    "blocks_idx": _block_index,
    "longs": _scalar_integer,
    "float64s": float,
    "var_name": _text,
    "vars_name": _text,
    "float64": float,
    "scalar": _scalar_message,
    "scalars": _scalar_message,
}


def attr_fields(name: str, kind: AttrType, value: Any) -> dict[str, Any]:
    """The fields of the message of one attribute.

    Raises TypeError or ValueError if the value does not match the type.
    """
    field, is_list = _FIELD_OF[kind]
    convert = _CONVERT[field]
    converted = list(map(convert, _as_list(value))) if is_list else convert(value)
    return {"name": name, "type": int(kind), field: converted}


def _as_list(value: Any) -> Iterable[Any]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"expected a list, got {value!r}")
    return value


def type_of_value(value: Any) -> AttrType:
    """The attribute type implied by a plain Python value; as in Fluid, truth values that no op declares are numbers.

    Raises TypeError for a value that no attribute type can represent.
    """
    if isinstance(value, (list, tuple, np.ndarray)):
        return _type_of_list(list(value))
    if isinstance(value, (int, np.integer, np.bool_)):
        return AttrType.INT if -(2**31) <= int(value) < 2**31 else AttrType.LONG
    if isinstance(value, (float, np.floating)):
        return AttrType.FLOAT
    if isinstance(value, (str, bytes)):
        return AttrType.STRING
    if hasattr(value, "idx") and hasattr(value, "ops"):
        return AttrType.BLOCK
    raise TypeError(f"no attribute can hold {value!r} of type {type(value).__name__}")


_PLURAL = {
    AttrType.INT: AttrType.INTS,
    AttrType.LONG: AttrType.LONGS,
    AttrType.FLOAT: AttrType.FLOATS,
    AttrType.STRING: AttrType.STRINGS,
    AttrType.BLOCK: AttrType.BLOCKS,
}


def _type_of_list(values: list) -> AttrType:
    kinds = {type_of_value(v) for v in values} or {AttrType.INT}
    if kinds == {AttrType.INT, AttrType.LONG}:
        kinds = {AttrType.LONG}
    if kinds == {AttrType.INT, AttrType.FLOAT}:
        kinds = {AttrType.FLOAT}
    if len(kinds) > 1 or not kinds <= set(_PLURAL):
        raise TypeError(f"no attribute can hold the list {values!r}: its elements differ in type")
    return _PLURAL[kinds.pop()]
