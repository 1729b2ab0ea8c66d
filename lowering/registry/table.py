"""The table of all ops, by type; gradients of gradients enter it when they are first asked for."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from lowering.errors import RegistryError, UnknownOpError
from lowering.registry.definition import OpDef

_REGISTRY: dict[str, OpDef] = {}

# What gives a gradient op without a gradient of its own one: the engine, which stands above the registry, enters it.
DERIVE: list[Callable[[OpDef], None]] = []


def register(definition: OpDef) -> OpDef:
    """Enter an op; RegistryError when its type is taken by another rule."""
    known = _REGISTRY.get(definition.type)
    if known is not None:
        raise RegistryError(
            f"op {definition.type!r} is registered twice: by {known.fn.__module__} and by {definition.fn.__module__};"
            " an op type has one rule, so rename or remove one of them"
        )
    _REGISTRY[definition.type] = definition
    return definition


def registered_ops() -> list[str]:
    """All registered op types, sorted (grad ops with a rule of their own included)."""
    return sorted(_REGISTRY)


def has_op(type: str) -> bool:
    """Whether ``get_op(type)`` finds a definition; a derived gradient is made and entered on the way."""
    return type in _REGISTRY or _derived(type) is not None


def get_op(type: str) -> OpDef:
    """The definition of op ``type``; UnknownOpError (with the nearest names) when there is none."""
    found = _REGISTRY.get(type) or _derived(type)
    if found is None:
        raise UnknownOpError(unknown_op_message(type))
    return found


def unknown_op_message(type: str) -> str:
    """That there is no op of this type, and which ones are spelled alike."""
    near = difflib.get_close_matches(type, _REGISTRY, n=3)
    hint = f"; similar ops that exist: {', '.join(near)}" if near else ""
    return (
        f"op {type!r} is unknown: expected one of the {len(_REGISTRY)} registered op types{hint}."
        " Register a rule for it with lowering.op (CONTRIBUTING: how to add an op)"
    )


def _derived(type: str) -> OpDef | None:
    """A gradient of a gradient that has no rule of its own follows from its grad op by vjp."""
    if not type.endswith("_grad"):
        return None
    base = _REGISTRY.get(type[: -len("_grad")]) or _derived(type[: -len("_grad")])
    if base is not None:
        double_gradient(base)
    return _REGISTRY.get(type)


def double_gradient(definition: OpDef) -> OpDef | None:
    """The grad op of an op; that of a grad op without a rule is derived on demand."""
    wanting = definition.gradient is None and definition.make_grad is None
    if wanting and definition.forward is not None and definition.obstacle is None:
        for derive in DERIVE:
            derive(definition)
    return definition.gradient
