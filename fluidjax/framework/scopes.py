"""What ops note of where they were made: the name scope and the device, with the guards that set them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

_device = ""


class NameScope:
    """A node in the tree of name scopes; a prefix used again gets a number."""

    def __init__(self, name: str = "", parent: NameScope | None = None) -> None:
        self._children: dict[str, list[NameScope]] = {}
        self._name = name
        self._parent = parent

    def child(self, prefix: str) -> NameScope:
        """A new scope inside this one."""
        siblings = self._children.setdefault(prefix, [])
        scope = NameScope(prefix if not siblings else f"{prefix}_{len(siblings)}", self)
        siblings.append(scope)
        return scope

    def parent(self) -> NameScope | None:
        """The scope around this one."""
        return self._parent

    def name(self) -> str:
        """The scope's own part of the path."""
        return self._name


_name_scope = NameScope()


@contextlib.contextmanager
def name_scope(prefix: str | None = None) -> Iterator[None]:
    """Ops made within the guard note `prefix` in their ``op_namescope``; for reading only, names stay as they are."""
    global _name_scope
    if not prefix:
        raise ValueError("name_scope: the prefix is empty. Give it a name, for instance name_scope('encoder').")
    before = _name_scope
    _name_scope = before.child(prefix)
    try:
        yield
    finally:
        _name_scope = before


def full_name_scope() -> str:
    """The path of the name scope that new ops note: ``/encoder/layer_0/``."""
    path, scope = "", _name_scope
    while scope.parent() is not None:
        path = f"{scope.name()}/{path}"
        scope = scope.parent()  # type: ignore[assignment]
    return "/" + path


@contextlib.contextmanager
def device_guard(device: str | None = None) -> Iterator[None]:
    """Ops made within the guard note a device, 'cpu' or 'gpu' (or 'gpu:0' ...), in their ``op_device``.

    XLA places a whole block on one device; the note is kept in files and otherwise has no effect.
    """
    if device not in ("cpu", "gpu", "", None) and not re.fullmatch(r"gpu:\d+", str(device)):
        raise ValueError(
            f"device_guard: the device is {device!r}. Expected 'cpu', 'gpu', 'gpu:<number>', '' or None. Name one."
        )
    before = switch_device(device or "")
    try:
        yield
    finally:
        switch_device(before)


def switch_device(device: str) -> str:
    """Let new ops note `device`; returns the one before."""
    global _device
    before, _device = _device, device
    return before


def current_device() -> str:
    """The device that new ops note."""
    return _device
