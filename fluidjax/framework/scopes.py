"""The name scope and device recorded by ops, with the guards that set them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from fluidjax.base.errors import ArgumentError

_device = ""


class NameScope:
    """A node in the tree of name scopes; repeated prefixes are numbered."""

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
        """The enclosing scope."""
        return self._parent

    def name(self) -> str:
        """The scope's own component of the path."""
        return self._name


_name_scope = NameScope()


@contextlib.contextmanager
def name_scope(prefix: str | None = None) -> Iterator[None]:
    """Context manager: ops record `prefix` in their ``op_namescope``, for information; names are unaffected."""
    global _name_scope
    if not prefix:
        raise ArgumentError("name_scope: the prefix is empty. Give it a name, for instance name_scope('encoder').")
    before = _name_scope
    _name_scope = before.child(prefix)
    try:
        yield
    finally:
        _name_scope = before


def full_name_scope() -> str:
    """The path of the current name scope: ``/encoder/layer_0/``."""
    path, scope = "", _name_scope
    while scope.parent() is not None:
        path = f"{scope.name()}/{path}"
        scope = scope.parent()  # type: ignore[assignment]
    return "/" + path


@contextlib.contextmanager
def device_guard(device: str | None = None) -> Iterator[None]:
    """Context manager: ops record a device, 'cpu' or 'gpu' (or 'gpu:0' ...), in their ``op_device``.

    XLA places a whole block on one device; the attribute is stored in files but otherwise has no effect.
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
    """Set the device recorded by new ops; returns the previous one."""
    global _device
    before, _device = _device, device
    return before


def current_device() -> str:
    """The device recorded by new ops."""
    return _device
