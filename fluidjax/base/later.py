"""Lazy import of parts of a package."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from fluidjax.base.unknown import unknown_name


def later(module: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for a module, by its ``__name__``.

    Args:
        homes: maps names to the modules that define them, or that they are. Any other name raises UnknownName.
    """
    unknown = unknown_name(module)

    def __getattr__(name: str) -> Any:
        if name not in homes:
            return unknown(name)
        home = import_module(homes[name])
        found = home if home.__name__ == f"{module}.{name}" else getattr(home, name)
        setattr(sys.modules[module], name, found)
        return found

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[module]), *homes})

    return __getattr__, __dir__
