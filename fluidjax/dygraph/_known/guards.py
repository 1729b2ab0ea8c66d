"""What a call found outside its arguments, to be compared before it is repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

MISSING: Any = object()


class Guards:
    """Everything that Python read during a call, and what it found there.

    Nothing refers to the layer that was called, so that a layer which nobody holds any more is released at once; its
    attributes are compared by name.
    """

    def __init__(self, top: Any) -> None:
        self._top = top.__dict__
        self._own: dict[str, Any] = {}  # attributes of the layer
        self._items: dict[tuple[int, Any], tuple[Any, Any, Any]] = {}  # entries of dicts
        self._members: dict[tuple[int, str], tuple[Any, str, Any]] = {}  # members of classes
        self._types: dict[int, tuple[Any, Any]] = {}  # the classes of objects
        self._cells: dict[int, tuple[Any, Any]] = {}  # variables of enclosing functions
        self._lists: dict[int, tuple[Any, tuple[Any, ...]]] = {}  # all that lists hold
        self._dicts: dict[int, tuple[Any, tuple[Any, ...], tuple[Any, ...]]] = {}  # all that dicts hold
        self._empty: dict[int, Any] = {}  # dicts that hold nothing
        self._functions: dict[int, tuple[Any, Any, Any, Any]] = {}  # code and defaults
        self._specs: dict[int, tuple[Any, Any, Any]] = {}  # shapes, dtypes and flags of variables

    # What was read.

    def entry(self, held: dict[Any, Any], key: Any, value: Any) -> None:
        """A dict's value for a key, MISSING if there is none."""
        if held is self._top:
            self._own[key] = value
        else:
            self._items[id(held), key] = held, key, value

    def member(self, owner: type, name: str, value: Any) -> None:
        """What a class has under a name."""
        self._members[id(owner), name] = owner, name, value

    def type_of(self, value: Any) -> None:
        """The class of an object."""
        if value.__dict__ is not self._top:  # the class of the layer itself is part of what calls are found by
            self._types[id(value)] = value, value.__class__

    def cell(self, cell: Any, value: Any) -> None:
        """A variable of an enclosing function."""
        self._cells[id(cell)] = cell, value

    def function(self, function: Any) -> None:
        """The code and defaults of a function."""
        self._functions[id(function)] = function, function.__code__, function.__defaults__, function.__kwdefaults__

    def variable(self, var: Any) -> None:
        """What is known of a variable without its numbers."""
        self._specs[id(var)] = var, var._spec, var._stop_gradient

    def listed(self, value: list[Any]) -> None:
        """The elements of a list."""
        self._lists[id(value)] = value, tuple(value)

    def mapped(self, value: dict[Any, Any]) -> None:
        """The entries of a dict."""
        if not value:
            self._empty[id(value)] = value
            return
        self._dicts[id(value)] = value, tuple(value), tuple(value.values())

    # Comparing.

    def done(self) -> Callable[[dict[str, Any]], bool]:
        """The comparison, given the attributes of the layer."""
        self._top = None
        return _Comparison(self).holds


class _Comparison:
    def __init__(self, guards: Guards) -> None:
        self._own = list(guards._own.items())
        self._items = list(guards._items.values())
        self._members = list(guards._members.values())
        self._types = list(guards._types.values())
        self._empty = list(guards._empty.values())
        self._cells = list(guards._cells.values())
        self._functions = list(guards._functions.values())
        self._specs = list(guards._specs.values())
        self._lists = [(value, held, _marks(held)) for value, held in guards._lists.values()]
        self._dicts = [
            (value, (keys, held), _marks(keys), _marks(held)) for value, keys, held in guards._dicts.values()
        ]

    def holds(self, own: dict[str, Any]) -> bool:
        """Whether everything is as it was."""
        for name, value in self._own:
            if own.get(name, MISSING) is not value:
                return False
        for held, key, value in self._items:
            if held.get(key, MISSING) is not value:
                return False
        for instance, kind in self._types:
            if instance.__class__ is not kind:
                return False
        for owner, name, value in self._members:
            if getattr(owner, name, MISSING) is not value:
                return False
        return not any(self._empty) and self._others_hold()

    def _others_hold(self) -> bool:
        for function, code, defaults, named in self._functions:
            if function.__code__ is not code or function.__defaults__ is not defaults:
                return False
            if function.__kwdefaults__ is not named:
                return False
        for value, _, marks in self._lists:
            if [*map(id, value)] != marks:
                return False
        for value, _, keys, marks in self._dicts:
            if [*map(id, value)] != keys or [*map(id, value.values())] != marks:
                return False
        for var, spec, stop_gradient in self._specs:
            if var._spec is not spec or var._stop_gradient is not stop_gradient:
                return False
        return all(_content(cell) is value for cell, value in self._cells)


def _marks(values: Sequence[Any]) -> list[int]:
    """Identities; the values are kept beside them, so that these are not given to others."""
    return [*map(id, values)]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is assigned any more
        return MISSING
