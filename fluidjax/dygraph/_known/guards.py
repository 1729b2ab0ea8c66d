"""What a call found outside its arguments, to be compared before it is repeated."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from fluidjax.dygraph.registered import Held

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
        """The comparison, given the attributes of the layer: one function that is written for it."""
        self._top = None
        writing = _Comparison()
        for name, value in self._own.items():
            writing.entry("own", name, value)
        counted = [each for each in self._items.values() if each[0].__class__ is Held]
        writing.unless_changed([writing.of_entry(writing.named(held), key, value) for held, key, value in counted])
        for held, key, value in self._items.values():
            if held.__class__ is not Held:
                writing.entry(writing.named(held), key, value)
        for each, kind in self._types.values():
            writing.same(f"{writing.named(each)}.__class__", kind)
        for owner, name, value in self._members.values():
            if value is not MISSING:
                writing.same(f"{writing.named(owner)}.{name}", value)
        self._absent(writing)
        for each in self._empty.values():
            writing.conditions.append(f"not {writing.named(each)}")
        for function, *parts in self._functions.values():
            for part, value in zip(("__code__", "__defaults__", "__kwdefaults__"), parts, strict=True):
                writing.same(f"{writing.named(function)}.{part}", value)
        for held_list, elements in self._lists.values():
            writing.elements(writing.named(held_list), elements)
        for mapped, keys, values in self._dicts.values():
            writing.same_keys(writing.named(mapped), keys)
            for key, value in zip(keys, values, strict=True):
                writing.entry(writing.named(mapped), key, value)
        for var, spec, stop_gradient in self._specs.values():
            writing.same(f"{writing.named(var)}._spec", spec)
            writing.same(f"{writing.named(var)}._stop_gradient", stop_gradient)
        for cell, value in self._cells.values():
            writing.same(f"{writing.named(cell)}.cell_contents", value)
        return writing.function()

    def _absent(self, writing: _Comparison) -> None:
        """What classes lack is looked for among the names of each of their bases: asking for it takes an exception."""
        lacks = [(owner, name) for owner, name, value in self._members.values() if value is MISSING]
        for owner in dict.fromkeys([owner for owner, _ in lacks]):
            writing.same(f"{writing.named(owner)}.__mro__", owner.__mro__)
        bases = [(each, name) for owner, name in lacks for each in owner.__mro__ if each is not object]
        names = {each: vars(each).keys() for each, _ in bases}  # ``object`` cannot be given any
        for each, name in dict.fromkeys(bases):
            writing.conditions.append(f"{name!r} not in {writing.named(names[each])}")


class _Comparison:
    """Writes a function that compares by identity: what it names are defaults of its parameters, the quickest to read.

    Attributes:
        conditions: what has to hold.
    """

    def __init__(self) -> None:
        self.conditions: list[str] = []
        self._named: dict[str, Any] = {}
        self._names: dict[int, str] = {}

    def named(self, value: Any) -> str:
        """A name for a value, which is kept."""
        if id(value) not in self._names:
            name = self._names[id(value)] = f"_{len(self._names)}"
            self._named[name] = value
        return self._names[id(value)]

    def same(self, text: str, value: Any) -> None:
        """An expression gives the very same object."""
        self.conditions.append(f"{text} is {self.named(value)}")

    def entry(self, held: str, key: Any, value: Any) -> None:
        """A dict has a value for a key, or lacks it."""
        self.conditions.append(self.of_entry(held, key, value))

    def of_entry(self, held: str, key: Any, value: Any) -> str:
        """The condition that it does."""
        text = repr(key) if key.__class__ is str else self.named(key)
        return f"{text} not in {held}" if value is MISSING else f"{held}[{text}] is {self.named(value)}"

    def unless_changed(self, conditions: list[str]) -> None:
        """Conditions on what layers hold are looked at when something has changed in any layer (see ``Held``)."""
        if conditions:
            kind, seen = self.named(Held), self.named([Held.changes])
            noted = f"not {seen}.__setitem__(0, {kind}.changes)"
            self.conditions.append(f"({kind}.changes == {seen}[0] or ({' and '.join([*conditions, noted])}))")

    def elements(self, text: str, values: tuple[Any, ...]) -> None:
        """A list holds these very objects."""
        self.conditions.append(f"len({text}) == {len(values)}")
        for k, value in enumerate(values):
            self.same(f"{text}[{k}]", value)

    def same_keys(self, text: str, keys: tuple[Any, ...]) -> None:
        """A dict has these keys, in this order."""
        plain = all(key.__class__ is str for key in keys)
        self.named(keys)  # so that their identities are not given to others
        found, known = (f"[*{text}]", [*keys]) if plain else (f"[*map(id, {text})]", [*map(id, keys)])
        self.conditions.append(f"{found} == {self.named(known)}")

    def function(self) -> Callable[[dict[str, Any]], bool]:
        """It is False where something is missing."""
        found: dict[str, Any] = {}
        exec(_compiled(" and ".join(self.conditions) or "True", tuple(self._named)), self._named, found)
        self._named.clear()  # the function's globals
        return found["holds"]


@lru_cache(256)
def _compiled(condition: str, names: tuple[str, ...]) -> Any:
    missing = "except (AttributeError, LookupError, ValueError): return False"
    parameters = ", ".join(["own", *[f"{name}={name}" for name in names]])
    return compile(f"def holds({parameters}):\n try: return {condition}\n {missing}", "<comparison>", "exec")
