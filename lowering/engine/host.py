"""What host ops do outside the lowering: services that the front end provides by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lowering.errors import OpError

_services: dict[str, Callable[..., Any]] = {}
_later: dict[str, Callable[[], Any]] = {}


def provide(name: str, function: Callable[..., Any]) -> None:
    """Register ``function`` as what host ops call by ``service(name)``."""
    _services[name] = function


def provide_later(names: Iterable[str], provider: Callable[[], Any]) -> None:
    """Register what provides these services: it is called when one of them is first asked for."""
    _later.update(dict.fromkeys(names, provider))


def service(name: str) -> Callable[..., Any]:
    """The function of that name; OpError if no front end provides it."""
    if name not in _services and name in _later:
        _later[name]()
    if name not in _services:
        raise OpError(
            f"the op acts on the host through {name!r}: expected a front end that provides it, found"
            f" {sorted(_services) or 'none'}; import fluidjax, or call lowering.engine.host.provide({name!r}, function)"
        )
    return _services[name]
