"""The parameters that layers made under a tracer: Fluid 1.3 to 1.6 gave them to optimizers that were given none."""

from __future__ import annotations

from weakref import WeakValueDictionary

from fluidjax.eager.varbase import ParamBase


class Made:
    """What a tracer knows of layers.

    Attributes:
        named: whether layers were made as in Fluid 1.6, with a name in the first place; optimizers follow then.
    """

    def __init__(self) -> None:
        self.named = False
        self._held: WeakValueDictionary[int, ParamBase] = WeakValueDictionary()

    def add(self, param: ParamBase) -> ParamBase:
        """Note a parameter, and return it."""
        self._held[id(param)] = param
        return param

    def parameters(self) -> list[ParamBase]:
        """Those that somebody still holds, in the order they were made."""
        return list(self._held.values())
