"""Errors for names that a module does not have."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from fluidjax.base.borrowed import borrowed
from fluidjax.base.older import older
from lowering.errors import near


class UnknownName(AttributeError):
    """A module has no such name; the text, computed only when shown, suggests a similar one."""

    def __init__(self, module: str, name: str):
        super().__init__(module, name)
        self.module, self.missing = module, name

    def __str__(self) -> str:
        shown = self.module.replace("fluidjax", "fluid", 1)
        module = sys.modules[self.module]
        others = [n for n in dir(module) if not n.startswith("_")]  # Fluid's too, beside what the module imports
        close = near(self.missing, getattr(module, "__all__", ()), 3) or near(self.missing, others, 3)
        advice = f"did you mean {' or '.join(close)}?" if close else "docs/coverage.md lists what is there"
        return f"{shown} has no {self.missing!r}; {advice}"


def unknown_name(module: str) -> Callable[[str], Any]:
    """A ``__getattr__`` for a module, by its ``__name__``: borrowed names, names of older releases, or UnknownName."""

    def __getattr__(name: str) -> Any:
        for found in (borrowed(module, name), older(module, name)):
            if found is not None:
                return found
        raise UnknownName(module, name)

    return __getattr__
