"""What an observed call reads: noted, unless it depends on the arguments alone."""

from __future__ import annotations

import types
from collections import OrderedDict
from typing import Any

from fluidjax.base.enums import VarType
from fluidjax.dygraph._known.guards import MISSING, Guards
from fluidjax.dygraph.registered import Held, Registered
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.variables.varbase import ParamBase, VarBase

PLAIN = (int, float, bool, str, type(None), VarType)
DICTS = (dict, OrderedDict, Held)
CONTAINERS = (tuple, list, *DICTS)
_LONGEST = 256  # elements of a list that is compared each time


class Reads:
    """What an observed call reads.

    Args:
        layer: the layer that is called.
        given: its arguments, which are looked at each time.

    Attributes:
        loose: whether it did something that is not known to be done alike again.
        variables: the variables that it read or used and did not make.
        before: their values when it read them first.
        found: those of them that it found outside its arguments.
    """

    def __init__(self, layer: Any, given: tuple[Any, ...]) -> None:
        self.guards = Guards(layer)
        self.loose = False
        self.variables: dict[int, Any] = {}
        self.before: dict[int, Any] = {}
        self.found: set[int] = set()
        self._mine: dict[int, Any] = {}  # containers made by the call
        self._given = {id(each): each for each in _containers(given)}
        self._first = recorder.point.end
        self._serial = recorder.serial

    def see(self, value: Any) -> Any:
        """Note what a value holds that was found outside; returns it."""
        kind = value.__class__
        if kind in PLAIN or id(value) in self._mine or id(value) in self._given:
            return value
        if kind is VarBase or kind is ParamBase:
            if not self._made(value):
                self._variable(value)
                self.found.add(id(value))
        elif kind is tuple:
            for each in value:
                self.see(each)
        elif kind is list or kind in DICTS:
            self.loose |= len(value) > _LONGEST
            if kind is list:
                self.guards.listed(value)
            else:
                self.guards.mapped(value)
            for each in value if kind is list else value.values():
                self.see(each)
        return value

    def _variable(self, var: Any) -> None:
        if not self._made(var) and id(var) not in self.variables:
            self.variables[id(var)], self.before[id(var)] = var, var._value

    def _made(self, var: Any) -> bool:
        held = var._held
        return held is not None and getattr(held, "serial", -1) == self._serial and held.index >= self._first

    def attribute(self, owner: Any, name: str) -> Any:
        """``owner.name``."""
        value = getattr(owner, name)
        if isinstance(owner, VarBase):
            self._of_variable(owner, name)
            return self.fresh(value) if value.__class__ is list else value
        if owner.__class__ is types.ModuleType:
            self.guards.entry(owner.__dict__, name, value)
            self.loose |= name not in owner.__dict__
        elif owner.__class__ in CONTAINERS or owner.__class__ in PLAIN:
            self.see(owner)
        elif owner.__class__ is type:
            self.guards.member(owner, name, value)
        elif owner.__class__ is super:
            self._inherited(owner, name)
        else:
            self._of_object(owner, name)
        return self.see(value)

    def _of_variable(self, var: Any, name: str) -> None:
        if name not in ("shape", "dtype", "stop_gradient", "astype") or var.__class__ not in (VarBase, ParamBase):
            self.loose = True
        elif not self._made(var):
            self._variable(var)

    def _of_object(self, owner: Any, name: str) -> None:
        kind = owner.__class__
        is_layer = isinstance(owner, Registered)
        if isinstance(owner, type):
            self.loose = True
            return
        own = getattr(owner, "__dict__", None)
        ordinary = kind.__getattribute__ is object.__getattribute__ and own is not None
        if not ordinary or (
            getattr(kind, "__getattr__", None) is not (of_layer(kind, "__getattr__") if is_layer else None)
        ):
            self.loose = True
            return
        self.guards.type_of(owner)
        member = getattr(kind, name, MISSING)
        self.guards.member(kind, name, member)
        if member is not MISSING and not isinstance(member, (types.FunctionType, *PLAIN, *CONTAINERS)):
            self.loose = True  # a property, or something else that computes
        elif name in own:  # type: ignore[operator]
            self.guards.entry(own, name, own[name])  # type: ignore[index, arg-type]
        else:
            self.guards.entry(own, name, MISSING)  # type: ignore[arg-type]
            if member is MISSING and is_layer:
                for where in ("_parameters", "_sub_layers"):
                    held = own[where]  # type: ignore[index]
                    self.guards.entry(own, where, held)  # type: ignore[arg-type]
                    self.guards.entry(held, name, held.get(name, MISSING))
                    if name in held:
                        break

    def _inherited(self, owner: Any, name: str) -> None:
        """``super().name``: what the classes after one have under a name."""
        kind = owner.__self_class__
        self.guards.member(kind, "__mro__", kind.__mro__)
        for each in kind.__mro__[kind.__mro__.index(owner.__thisclass__) + 1 :]:
            member = each.__dict__.get(name, MISSING)
            self.guards.entry(each.__dict__, name, member)
            if member is not MISSING:
                self.loose |= member.__class__ is not types.FunctionType
                return
        self.loose = True

    def parent(self, function: Any, kind: Any, owner: Any) -> Any:
        """``super()``."""
        self.loose |= function is not super or kind not in owner.__class__.__mro__
        return function(kind, owner)

    def item(self, owner: Any, index: Any) -> Any:
        """``owner[index]``."""
        if isinstance(owner, VarBase):
            self._operands("getitem", owner)
            self._plain(index)
        elif owner.__class__ is list or owner.__class__ is tuple or owner.__class__ in DICTS:
            self.see(owner)
            self._plain(index)
        elif isinstance(owner, Registered) and index.__class__ in (int, str):
            self._container(owner, "__getitem__")
        else:
            self.loose = True
        value = owner[index]
        return (
            self.fresh(value)
            if owner.__class__ is list and value.__class__ is list and index.__class__ is slice
            else value
        )

    def _container(self, owner: Any, method: str) -> None:
        """A list of layers or parameters is looked at as a whole."""
        kind = owner.__class__
        function = getattr(kind, method, None)
        if getattr(function, "__module__", "") != "fluidjax.dygraph.container":
            self.loose = True
            return
        self.guards.member(kind, method, function)
        self.guards.type_of(owner)
        for where in ("_parameters", "_sub_layers"):
            self.guards.entry(owner.__dict__, where, owner.__dict__[where])
            self.see(owner.__dict__[where])

    def _plain(self, value: Any) -> None:
        """A value that may be compared and converted."""
        kind = value.__class__
        if kind is slice:
            value, kind = (value.start, value.stop, value.step), tuple
        if kind in (tuple, list):
            self.see(value)
            for each in value:
                self._plain(each)
        elif kind not in PLAIN:
            self.loose = True

    def plain(self, value: Any) -> Any:
        """A value that is written as text."""
        self._plain(value)
        return value

    def slice(self, start: Any, stop: Any, step: Any) -> Any:
        """``start:stop:step``."""
        return slice(start, stop, step)

    def each(self, value: Any) -> Any:
        """What is iterated over."""
        kind = value.__class__
        if isinstance(value, Registered):
            self._container(value, "__iter__")
        elif kind in (tuple, list) or value.__class__ in DICTS:
            self.see(value)
        elif kind not in (range, enumerate, zip, reversed, str) and id(value) not in self._mine:
            self.loose = True
        return value

    def named(self, value: Any) -> Any:
        """What is given as ``**value``."""
        self.loose |= value.__class__ not in DICTS
        return self.see(value)

    def fresh(self, value: Any) -> Any:
        """A container that the call made."""
        self._mine[id(value)] = value
        return value

    def truth(self, value: Any) -> Any:
        """A condition."""
        kind = value.__class__
        if kind in (tuple, list) or value.__class__ in DICTS:
            self.see(value)
        elif kind not in PLAIN:
            self.loose = True
        return value

    def _operands(self, name: str, *operands: Any) -> None:
        """The operands of an operator on variables: these, and numbers."""
        for each in operands:
            if each.__class__ in (VarBase, ParamBase):
                self._variable(each)
            elif each.__class__ not in (int, float, bool):
                self.loose = True
        for method in (f"__{name}__", f"__r{name}__"):
            self.guards.member(VarBase, method, getattr(VarBase, method, MISSING))
            self.guards.member(ParamBase, method, getattr(ParamBase, method, MISSING))


def _containers(values: Any) -> list[Any]:
    """The lists and tuples among values, and those within them."""
    found = [each for each in values if each.__class__ in (list, tuple)]
    return [*found, *[inner for each in found for inner in _containers(each)]]


def of_layer(kind: type, name: str) -> Any:
    """What Layer, which a class derives from, has under a name."""
    for each in kind.__mro__:
        if each.__module__ == "fluidjax.dygraph.layers" and each.__name__ == "Layer":
            return each.__dict__[name]
    return None
