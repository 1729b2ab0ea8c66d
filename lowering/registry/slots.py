"""What parameters, annotations and words of the notation tell about an op's slots and attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from lowering.errors import RegistryError
from lowering.program import GRAD
from lowering.registry.attributes import ATTR_TYPES, as_attribute
from lowering.registry.definition import RAW_TYPES, SPECIAL, AttrSpec, OpDef, Sizes, Slot
from lowering.registry.signature import EMPTY, Param, params
from lowering.registry.vendor import VENDOR
from lowering.values import LoDArray, Meta

_MISSING = object()


@cache
def camel(param: str) -> str:
    """``moment1_out`` -> ``Moment1Out``."""
    return "".join(part[:1].upper() + part[1:] for part in param.split("_"))


@cache
def snake(slot: str) -> str:
    """``SavedMean`` -> ``saved_mean``; ``XShape`` -> ``x_shape``; ``X@GRAD`` -> ``d_x``."""
    if slot.endswith(GRAD):
        return "d_" + snake(slot[: -len(GRAD)])
    text = ""
    for i, char in enumerate(slot):
        boundary = i and char.isupper() and (not slot[i - 1].isupper() or slot[i + 1 : i + 2].islower())
        text += ("_" if boundary and slot[i - 1] != "_" else "") + char.lower()
    return text


def parse_outputs(text: str, slots: Mapping[str, str]) -> list[Slot]:
    """``"Y MeanOut Xs* Mask?~"``: ``*`` duplicable, ``?`` dispensable, ``~`` intermediate."""
    params = {name: param for param, name in slots.items()}
    found = []
    for word in text.split():
        name = word.rstrip("*?~")
        param, marks = params.get(name, snake(name)), word[len(name) :]
        found.append(Slot(name, param, "*" in marks, "?" in marks, intermediate="~" in marks))
    return found


def _wants(annotation: Any) -> str:
    if annotation is Meta:
        return "meta"
    if annotation is LoDArray:
        return "lod"
    if annotation is Sizes:
        return "sizes"
    return "raw" if annotation in RAW_TYPES else "array"


def _inner(annotation: Any) -> Any:
    """What the annotation of a parameter tells about one value."""
    if getattr(annotation, "__origin__", None) is list:
        return annotation.__args__[0]
    return None if annotation is list else annotation


def input_slot(param: Param, name: str) -> Slot:
    """The slot of one positional parameter."""
    annotation = param.annotation
    duplicable = annotation is list or getattr(annotation, "__origin__", None) is list
    dispensable = param.default is not EMPTY
    return Slot(name, param.name, duplicable, dispensable, _wants(_inner(annotation)))


def checked_slot(definition: OpDef, param: Param) -> Slot:
    """The op's slot as read by a check of its numbers, according to the annotation of the check's own parameter."""
    found = next((s for s in definition.inputs if s.param == param.name), None)
    if found is None:
        known = [s.param for s in definition.inputs]
        raise RegistryError(f"check of {definition.type}: {param.name!r} is none of the op's inputs, which are {known}")
    return found._replace(wants=_wants(_inner(param.annotation)))


def attr_spec(param: Param, where: str) -> AttrSpec:
    """The attribute that a keyword-only parameter declares; ``where`` names the op in errors."""
    default = param.default
    required = default is EMPTY
    annotation = param.annotation
    if annotation is EMPTY and not required:
        annotation = type(default)
    if annotation not in ATTR_TYPES:
        raise RegistryError(
            f"{where}: attribute {param.name!r} is annotated {annotation!r}; expected one of int, float, str, bool,"
            " list[int], list[float], list[str], list[bool], Long, Longs, Block, Blocks"
        )
    kind = ATTR_TYPES[annotation]
    value = None if required else as_attribute(kind, default, lambda got: RegistryError(f"{where}: default {got!r}"))
    return AttrSpec(param.name.rstrip("_"), kind, value, required, param.name)


def vendor_attrs(vendor: str | Mapping[str, Any]) -> dict[str, AttrSpec]:
    """Attributes that are never read, by name or with defaults of the op's own."""
    wanted = dict.fromkeys(vendor.split(), _MISSING) if isinstance(vendor, str) else dict(vendor)
    return {
        name: AttrSpec(name, VENDOR[name][0], VENDOR[name][1] if value is _MISSING else value)
        for name, value in wanted.items()
    }


_SignatureParts = tuple[list[Param], list[Param], frozenset[str]]


def signature(fn: Callable[..., Any]) -> _SignatureParts:
    """(positional parameters, attribute parameters, special keywords)."""
    positional, keyword = params(fn)
    special = frozenset(p.name for p in keyword if p.name in SPECIAL)
    return positional, [p for p in keyword if p.name not in SPECIAL], special


def words(given: str | Iterable[str]) -> tuple[str, ...]:
    """Names given as one string or as several."""
    return tuple(given.split()) if isinstance(given, str) else tuple(given)
