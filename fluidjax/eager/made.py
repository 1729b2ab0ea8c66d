"""The parameters created by layers under a tracer, which Fluid 1.3 to 1.6 used for optimizers without a list."""

from __future__ import annotations

from weakref import WeakValueDictionary

from fluidjax.eager.variables.varbase import ParamBase


class Made:
    """What a tracer knows of layers.

    Attributes:
        named: whether layers were created as in Fluid 1.6, with a name as first argument; optimizers then follow.
    """

    def __init__(self) -> None:
        self.named = False
        self._held: WeakValueDictionary[int, ParamBase] = WeakValueDictionary()

    def add(self, param: ParamBase) -> ParamBase:
        """Record a parameter, and return it."""
        self._held[id(param)] = param
        return param

    def parameters(self) -> list[ParamBase]:
        """Those that are still referenced, in order of creation."""
        return list(self._held.values())
