"""The table of all ops by type; gradients of gradients are added on first request.

The files of ops are imported when one of their ops is first asked for: all of them take longer than everything else
that an import of the front end does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lowering.errors import RegistryError, UnknownOpError, near
from lowering.registry.definition import OpDef

_REGISTRY: dict[str, OpDef] = {}

# Of files that are being imported: nobody else may find an op whose gradient and checks still follow.
_ARRIVING: dict[str, OpDef] = {}
_lock = threading.RLock()
_imports = 0

# Derives a gradient op for gradient ops without one; set by the engine, which is a layer above the registry.
DERIVE: list[Callable[[OpDef], None]] = []

# Imports the file that lists say an op type is in, or all files for None; set by what has files of ops.
IMPORT: list[Callable[[str | None], None]] = []


def register(definition: OpDef) -> OpDef:
    """Add an op; RegistryError if another rule has its type."""
    with _lock:
        _import(definition.type)
        known = _known(definition.type)
        if known is None:
            (_ARRIVING if _imports else _REGISTRY)[definition.type] = definition
            return definition
    raise RegistryError(
        f"op {definition.type!r} is registered twice: by {known.fn.__module__} and by {definition.fn.__module__};"
        " an op type has one rule, so rename or remove one of them"
    )


@contextmanager
def arriving() -> Iterator[None]:
    """Ops that are registered inside are found when all of it is done."""
    global _imports
    with _lock:
        _imports += 1
        try:
            yield
        finally:
            _imports -= 1
            if not _imports:
                _REGISTRY.update(_ARRIVING)
                _ARRIVING.clear()


def registered_ops() -> list[str]:
    """All registered op types, sorted (including grad ops with a rule of their own); imports all files of ops."""
    _import(None)
    return sorted(_REGISTRY)


def has_op(type: str) -> bool:
    """Whether ``get_op(type)`` finds a definition; a derived gradient is created and added in the process."""
    return type in _REGISTRY or _sought(type) is not None


def get_op(type: str) -> OpDef:
    """The definition of op ``type``; UnknownOpError (with the nearest names) if there is none."""
    found = _REGISTRY.get(type) or _sought(type)
    if found is None:
        raise UnknownOpError(unknown_op_message(type))
    return found


def unknown_op_message(type: str) -> str:
    """The message for an unknown op type, with similar names."""
    known = registered_ops()
    close = near(type, known, 3)
    hint = f"; similar ops that exist: {', '.join(close)}" if close else ""
    return (
        f"op {type!r} is unknown: expected one of the {len(known)} registered op types{hint}."
        " Register a rule for it with lowering.op (CONTRIBUTING: how to add an op)"
    )


def _import(type: str | None) -> None:
    for read in IMPORT:
        read(type)


def _known(type: str) -> OpDef | None:
    return _REGISTRY.get(type) or _ARRIVING.get(type)


def _sought(type: str) -> OpDef | None:
    """The definition of an op whose file is not imported yet, or which is the gradient of a grad op."""
    with _lock:
        found = _listed(type)
        if found is None:  # no list names it: its file, if there is one, is new
            _import(None)
            found = _listed(type)
        return found


def _listed(type: str) -> OpDef | None:
    """The gradient of a grad op without a rule of its own is derived from it by vjp."""
    _import(type)
    found = _known(type)
    if found is not None or not type.endswith("_grad"):
        return found
    base = _listed(type[: -len("_grad")])
    if base is not None:
        double_gradient(base)
    return _known(type)


def double_gradient(definition: OpDef) -> OpDef | None:
    """The grad op of an op; that of a grad op without a rule is derived on demand."""
    wanting = definition.gradient is None and definition.make_grad is None
    if wanting and definition.forward is not None and definition.obstacle is None:
        for derive in DERIVE:
            derive(definition)
    return definition.gradient
