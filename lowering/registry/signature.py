"""A rule's signature. ``inspect.signature`` gives the same, but takes a fifth of the time of importing all
rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import unwrap
from typing import Any, NamedTuple

EMPTY = object()  # placeholder for a missing default or annotation

_BUILTIN: dict[str, Any] = {
    **{"int": int, "float": float, "str": str, "bool": bool},
    **{"list[int]": list[int], "list[float]": list[float], "list[str]": list[str], "list[bool]": list[bool]},
}


class Param(NamedTuple):
    """One parameter: its name, default and (evaluated) annotation, or ``EMPTY``."""

    name: str
    default: Any
    annotation: Any


def params(fn: Callable[..., Any]) -> tuple[list[Param], list[Param]]:
    """The positional and the keyword-only parameters of a function, without ``*`` and ``**`` ones."""
    found: Any = unwrap(fn)
    code, names = found.__code__, found.__code__.co_varnames
    last = code.co_argcount + code.co_kwonlyargcount
    positional, keyword = names[: code.co_argcount], names[code.co_argcount : last]
    given = found.__defaults__ or ()
    defaults = dict(zip(positional[len(positional) - len(given) :], given, strict=True))
    return list(_params(found, positional, defaults)), list(_params(found, keyword, found.__kwdefaults__ or {}))


def _params(fn: Any, names: tuple[str, ...], defaults: dict[str, Any]) -> Iterator[Param]:
    for name in names:
        annotation = fn.__annotations__.get(name, EMPTY)
        if isinstance(annotation, str):
            annotation = fn.__globals__.get(annotation, _BUILTIN.get(annotation, EMPTY))
            if annotation is EMPTY:
                annotation = eval(fn.__annotations__[name], fn.__globals__)
        yield Param(name, defaults.get(name, EMPTY), annotation)
