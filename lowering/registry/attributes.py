"""Attributes: their types, their conversion to Fluid's, and the checks on an op under construction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from lowering.errors import AttrError
from lowering.registry.definition import AttrSpec, Block, Blocks, Float64s, Long, Longs, OpDef, Scalars
from lowering.registry.domains import DOMAINS
from lowering.registry.table import get_op
from lowering.registry.vendor import COMMON

ATTR_TYPES: dict[Any, str] = {
    int: "INT",
    float: "FLOAT",
    str: "STRING",
    bool: "BOOLEAN",
    list[int]: "INTS",
    list[float]: "FLOATS",
    list[str]: "STRINGS",
    list[bool]: "BOOLEANS",
    Long: "LONG",
    Longs: "LONGS",
    Block: "BLOCK",
    Blocks: "BLOCKS",
    Scalars: "SCALARS",
    Float64s: "FLOAT64S",
}


def _float32(value: float) -> float:
    return float(np.float32(value))


def _int64(value: float) -> int:
    return int(np.int64(int(value)))


_WHOLE = (int, np.integer, np.bool_)
_NUMBERS = (*_WHOLE, float, np.floating)
# Fluid truncates a fraction given for a LONG or a BOOLEAN, and refuses it for an INT.
_CONVERTERS: dict[str, tuple[tuple[type, ...], Callable[[Any], Any]]] = {
    "INT": (_WHOLE, int),
    "LONG": (_NUMBERS, _int64),
    "BLOCK": ((int, np.integer), int),
    "FLOAT": (_NUMBERS, _float32),
    "STRING": ((str, bytes), lambda v: v if isinstance(v, str) else v.decode("utf-8", "surrogateescape")),
    "BOOLEAN": (_NUMBERS, bool),
    "FLOAT64": (_NUMBERS, float),
    "SCALAR": (
        (bool, int, float, complex, np.bool_, np.number),
        lambda v: v.item() if isinstance(v, np.generic) else v,
    ),
    "VAR": ((str,), str),
}


_LISTS = {
    "INTS": "INT",
    "LONGS": "LONG",
    "FLOATS": "FLOAT",
    "STRINGS": "STRING",
    "BOOLEANS": "BOOLEAN",
    "BLOCKS": "BLOCK",
    "FLOAT64S": "FLOAT64",
    "SCALARS": "SCALAR",
    "VARS": "VAR",
}


def as_attribute(kind: str, value: Any, error: Callable[[Any], Exception]) -> Any:
    """``value`` converted to attribute type ``kind``, lists element by element.

    Raises:
        Exception: ``error(value)``, for a value or element of a type that ``kind`` does not accept.
    """
    if kind in _LISTS:
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise error(value)
        return [as_attribute(_LISTS[kind], v, error) for v in value]
    accepted, convert = _CONVERTERS[kind]
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    if not isinstance(value, accepted):
        raise error(value)
    try:
        return convert(value)
    except (ValueError, OverflowError):  # no int64: not a number, or too large
        raise error(value) from None


def check_attrs(type: str, attrs: Mapping[str, Any], *, where: str = "") -> dict[str, Any]:
    """Attributes of an op under construction: converted to Fluid's types, defaults filled in.

    A grad op's attributes are inherited from its forward op, so they are converted if known and kept otherwise.
    Raises AttrError for an attribute that is unknown, of the wrong type or value, or required and missing.
    """
    definition = get_op(type)
    place = f"op {type}{where}"
    checked: dict[str, Any] = {}
    for name, value in attrs.items():
        spec = definition.attrs.get(name)
        if spec is not None:
            checked[name] = as_attribute(spec.type, value, partial(_attr_type_error, place, spec))
            _check_domain(place, type, name, checked[name])
        elif name in COMMON or definition.forward is not None:
            checked[name] = value
        else:
            known = ", ".join(sorted(definition.attrs)) or "none"
            raise AttrError(f"{place} has no attribute {name!r}; expected one of: {known}. Remove or rename it")
    if definition.forward is None:
        _fill_defaults(definition, checked, place)
    return checked


def _check_domain(place: str, type: str, name: str, value: Any) -> None:
    domain = DOMAINS.get((type, name))
    if domain is not None and value not in domain:
        raise AttrError(
            f"{place}: attribute {name!r} must be {domain}, received {value!r}; change the layer's argument"
        )


def _fill_defaults(definition: OpDef, checked: dict[str, Any], place: str) -> None:
    for spec in definition.attrs.values():
        if spec.name in checked or spec.newer:
            continue
        if spec.required:
            raise AttrError(f"{place} needs attribute {spec.name!r} ({spec.type}), and none was given; pass it")
        checked[spec.name] = list(spec.default) if isinstance(spec.default, list) else spec.default


def _attr_type_error(place: str, spec: AttrSpec, got: Any) -> AttrError:
    return AttrError(
        f"{place}: attribute {spec.name!r} expects {spec.type}, received {got!r} ({type(got).__name__});"
        " convert the value"
    )
