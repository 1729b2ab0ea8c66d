"""Settings: objects with named values, each of a type, as Fluid's strategies are."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from fluidjax.base.errors import explain

_INTS, _COUNTS = range(-(2**31), 2**31), range(2**63)


class Count(int):
    """How many: a whole number that is not negative."""


class _Wrong(Exception):
    """The value is of no type that the setting takes."""


def _truth(value: Any) -> bool:
    """Fluid takes what says of itself whether it is true (numbers, not texts, lists or names), and None for false."""
    named = isinstance(value, enum.Enum) or value is not None and not hasattr(type(value), "__bool__")
    if named or np.size(value) != 1:
        raise _Wrong
    return bool(value)


def _whole(value: Any, among: range = _INTS) -> int:
    """Fluid takes numbers of NumPy, but no fractions of Python's."""
    if isinstance(value, (str, bytes, float)) and not isinstance(value, np.generic):
        raise _Wrong
    try:
        found = int(value.item() if isinstance(value, np.ndarray) else value)
    except (TypeError, ValueError) as error:
        raise _Wrong from error
    if found not in among:
        raise _Wrong
    return found


def _text(value: Any) -> str:
    if not isinstance(value, (str, bytes)):
        raise _Wrong
    return value if isinstance(value, str) else value.decode()


def _texts(value: Any) -> list[str]:
    if not isinstance(value, (str, list, tuple)):
        raise _Wrong
    return [_text(one) for one in value]


def _set_of_texts(value: Any) -> set[str]:
    if not isinstance(value, set):
        raise _Wrong
    return {_text(one) for one in value}


_TAKES: dict[type, tuple[str, Callable[[Any], Any]]] = {
    bool: ("a bool", _truth),
    int: ("a whole number", _whole),
    Count: ("a number, 0 or more", lambda value: _whole(value, _COUNTS)),
    str: ("a string", _text),
    list: ("a list of strings", _texts),
    set: ("a set of strings", _set_of_texts),
}


def _converted(owner: str, name: str, value: Any, like: Any) -> Any:
    """``value`` as a setting whose default is ``like``. Raises TypeError where it is none."""
    kind = type(like)
    if isinstance(like, enum.Enum):
        if isinstance(value, kind):
            return value
        wanted, todo = f"a {kind.__name__}", f"Write {owner}.{kind.__name__}.{like.name}"
    else:
        wanted, convert = _TAKES[kind]
        try:
            return convert(value)
        except _Wrong:
            todo = "Convert it"
    received = f"{value!r} of type {type(value).__name__}"
    raise TypeError(explain(f"{owner}.{name} has a value of the wrong type", wanted, received, todo))


class Settings:
    """Attributes with defaults; setting an unknown one is an error, so that misspellings do not go unnoticed.

    Those in ``_typed`` take values of their default's type alone, those in ``_counts`` no negative ones either.
    """

    _defaults: Mapping[str, Any] = {}
    _typed: Mapping[str, Any] = {}
    _counts: Collection[str] = ()

    def __init__(self) -> None:
        self.__dict__.update(self._defaults)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._defaults:
            raise AttributeError(
                f"{type(self).__name__} has no setting {name!r}; expected one of {', '.join(self._defaults)}"
            )
        if name in self._typed:
            like = Count() if name in self._counts else self._typed[name]
            value = _converted(type(self).__name__, name, value, like)
        self.__dict__[name] = value
