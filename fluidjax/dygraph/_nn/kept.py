"""Fields of layers that the attributes of their op hold."""

from __future__ import annotations

from typing import Any


class Kept:
    """A field under Fluid's name: its value is an attribute of the layer's op, and setting it changes later calls.

    Args:
        attribute: the name of the attribute in the layer's ``_attrs``.
    """

    def __init__(self, attribute: str) -> None:
        self._attribute = attribute

    def __get__(self, layer: Any, owner: type | None = None) -> Any:
        return self if layer is None else vars(layer)["_attrs"][self._attribute]

    def __set__(self, layer: Any, value: Any) -> None:
        # A new dict: what was recorded of earlier calls keeps the old one.
        own = vars(layer)
        own["_attrs"] = {**own["_attrs"], self._attribute: value}
