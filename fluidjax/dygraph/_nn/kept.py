"""Fields of layers that the attributes of their op hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Kept:
    """A field under Fluid's name: its value is an attribute of the layer's op, and setting it changes later calls.

    The layer's ``__dict__`` shows it as well, as that of Fluid's layers does.

    Args:
        attribute: the name of the attribute in the layer's ``_attrs``.
        of: makes the attribute of what was set, which the field then still shows; None if they are the same.
    """

    def __init__(self, attribute: str, of: Callable[[Any], Any] | None = None) -> None:
        self._attribute, self._of = attribute, of

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, layer: Any, owner: type | None = None) -> Any:
        if layer is None:
            return self
        own = vars(layer)
        return own["_attrs"][self._attribute] if self._of is None else own[self._name]

    def __set__(self, layer: Any, value: Any) -> None:
        own = vars(layer)
        own[self._name] = value
        if self._of is not None:
            value = self._of(value)
        # A new dict: what was recorded of earlier calls keeps the old one.
        own["_attrs"] = {**own.get("_attrs", {}), self._attribute: value}
