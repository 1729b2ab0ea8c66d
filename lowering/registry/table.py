"""The table of all ops by type; gradients of gradients are added on first request."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from lowering.errors import RegistryError, UnknownOpError
from lowering.registry.definition import OpDef

_REGISTRY: dict[str, OpDef] = {}

# Derives a gradient op for gradient ops without one; set by the engine, which is a layer above the registry.
DERIVE: list[Callable[[OpDef], None]] = []


def register(definition: OpDef) -> OpDef:
    """Add an op; RegistryError if another rule has its type."""
    known = _REGISTRY.get(definition.type)
    if known is not None:
        raise RegistryError(
            f"op {definition.type!r} is registered twice: by {known.fn.__module__} and by {definition.fn.__module__};"
            " an op type has one rule, so rename or remove one of them"
        )
    _REGISTRY[definition.type] = definition
    return definition


def registered_ops() -> list[str]:
    """All registered op types, sorted (including grad ops with a rule of their own)."""
    return sorted(_REGISTRY)


def has_op(type: str) -> bool:
    """Whether ``get_op(type)`` finds a definition; a derived gradient is created and added in the process."""
    return type in _REGISTRY or _derived(type) is not None


def get_op(type: str) -> OpDef:
    """The definition of op ``type``; UnknownOpError (with the nearest names) if there is none."""
    found = _REGISTRY.get(type) or _derived(type)
    if found is None:
        raise UnknownOpError(unknown_op_message(type))
    return found


def unknown_op_message(type: str) -> str:
    """The message for an unknown op type, with similar names."""
    near = difflib.get_close_matches(type, _REGISTRY, n=3)
    hint = f"; similar ops that exist: {', '.join(near)}" if near else ""
    return (
        f"op {type!r} is unknown: expected one of the {len(_REGISTRY)} registered op types{hint}."
        " Register a rule for it with lowering.op (CONTRIBUTING: how to add an op)"
    )


def _derived(type: str) -> OpDef | None:
    """The gradient of a grad op without a rule of its own is derived from it by vjp."""
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
