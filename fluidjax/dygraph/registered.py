"""The parameters and sublayers registered with a Layer, by name: depth-first traversal and assignment."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from fluidjax.base.errors import explain
from fluidjax.framework import Parameter

_HELD = {"_parameters": "parameter", "_sub_layers": "sublayer"}
_WALKED = "_walked"  # the attribute of a layer that holds its parameters, as they were found last


class Held(OrderedDict[str, Any]):
    """The parameters or sublayers of a layer. Whatever may change which they are is counted, for all layers at once.

    The other methods of a dict that change it go through these.
    """

    changes = 0

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        Held.changes += 1

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        Held.changes += 1

    def clear(self) -> None:
        """See dict."""
        super().clear()
        Held.changes += 1

    def pop(self, *arguments: Any, **named: Any) -> Any:
        """See dict."""
        found = super().pop(*arguments, **named)
        Held.changes += 1
        return found

    def popitem(self, last: bool = True) -> tuple[str, Any]:
        """See OrderedDict."""
        found = super().popitem(last)
        Held.changes += 1
        return found

    def move_to_end(self, key: str, last: bool = True) -> None:
        """See OrderedDict."""
        super().move_to_end(key, last)
        Held.changes += 1


class Registered:
    """Base class of Layer: has parameters and sublayers."""

    _parameters: dict[str, Any]
    _sub_layers: dict[str, Any]


def layers(top: Any, prefix: str, below: bool, include_top: bool, seen: set[Any]) -> Iterator[tuple[str, Any]]:
    """Pairs of structured name and layer, without duplicates; those in ``seen`` are skipped."""
    if top in seen:
        return
    if include_top:
        seen.add(top)
        yield prefix, top
    for name, layer in top._sub_layers.items() if below else ():
        if layer is not None:
            yield from layers(layer, _joined(prefix, name), True, True, seen)


def parameters(top: Any, prefix: str, below: bool) -> Iterator[tuple[str, Any]]:
    """Pairs of structured name and parameter, without duplicates; a layer's own precede those of its sublayers."""
    seen: set[int] = set()
    for path, layer in layers(top, prefix, below, True, set()):
        for name, parameter in layer._parameters.items():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                yield _joined(path, name), parameter


def each_parameter(top: Any) -> list[Any]:
    """The same parameters without their names."""
    own = top.__dict__
    held = own["_parameters"], own["_sub_layers"]
    walked = own.get(_WALKED)
    if walked is not None and walked[0] == Held.changes and walked[1] is held[0] and walked[2] is held[1]:
        return walked[3]
    found: list[Any] = []
    seen: set[Any] = {None}
    pending, counted = [top], True
    while pending:
        layer = pending.pop()
        if layer not in seen:
            seen.add(layer)
            found += layer._parameters.values()
            pending += layer._sub_layers.values()
            counted = counted and layer._parameters.__class__ is layer._sub_layers.__class__ is Held
    found = [parameter for parameter in dict.fromkeys(found) if parameter is not None]
    if counted:
        own[_WALKED] = Held.changes, *held, found
    return found


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else str(name)


def assign(layer: Any, name: str, value: Any) -> bool:
    """Register a value assigned to an attribute; returns False if it is not something to register.

    A parameter or layer is moved to its own dict from any other. None clears an entry but keeps its place.

    Raises ValueError before ``Layer.__init__`` has run, TypeError for a value of a different kind than registered.
    """
    if name in _HELD:
        Held.changes += 1
    kind = _kind(value)
    if kind is not None:
        held = _dicts(layer, name)
        if kind == "_sub_layers" and name in held["_parameters"]:
            raise TypeError(wrong_kind(layer, name, value, "parameter"))
        for other in (layer.__dict__, *held.values()):
            if other is not held[kind]:
                other.pop(name, None)
        held[kind][name] = value
        return True
    for key, what in _HELD.items():
        held_one = layer.__dict__.get(key)
        if held_one is not None and name in held_one:
            if value is not None:
                raise TypeError(wrong_kind(layer, name, value, what))
            held_one[name] = None
            return True
    return False


def _kind(value: Any) -> str | None:
    if isinstance(value, Parameter):
        return "_parameters"
    return "_sub_layers" if isinstance(value, Registered) else None


def _dicts(layer: Any, name: str) -> dict[str, dict[str, Any]]:
    if "_parameters" not in layer.__dict__:
        raise ValueError(
            explain(
                f"super({type(layer).__name__}, self).__init__() should be called first, before {name!r} is assigned",
                "a Layer that is initialised",
                "one that is not",
                "make super().__init__() the first line of __init__",
            )
        )
    return {key: layer.__dict__[key] for key in _HELD}


def wrong_kind(layer: Any, name: str, value: Any, what: str) -> str:
    """The message for a value that is neither None nor of the kind registered under the name."""
    expected = "Parameter" if what == "parameter" else "Layer"
    return explain(
        f"assignment to {what} {name!r} of {layer.full_name()} should be of type {expected} or None, but got "
        f"{type(value).__name__!r}",
        f"a {expected}, or None to take it away",
        repr(value),
        f"use another name, or delete the {what} first",
    )


def check_layer(owner: Any, name: Any, value: Any) -> None:
    """Raise AssertionError if a value is not a Layer."""
    if not isinstance(value, Registered):
        raise AssertionError(
            explain(
                f"{owner.full_name()}: sublayer {name!r} is no Layer",
                "an object of a class that derives from fluid.dygraph.Layer",
                repr(value),
                "wrap it in a Layer, or keep it in an ordinary attribute",
            )
        )


def check_there(layer: Any, name: str, state: dict[str, Any], structured: bool) -> None:
    """Raise RuntimeError if a state dict lacks a parameter."""
    if name not in state:
        raise RuntimeError(
            explain(
                f"Parameter not found, Can't not find [ {name} ] in stat_dict for {layer.full_name()} "
                f"(use_structured_name is set to [{structured}])",
                "an array for each parameter",
                f"the names {sorted(state)[:8]}",
                "load the state of a layer built alike, or set use_structured_name to how the names were saved",
            )
        )
