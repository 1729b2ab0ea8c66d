"""The table of cases: one module for each family of ops, each with a list ``CASES``."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from fluidjax.testing.case import Case


@cache
def table() -> tuple[Case, ...]:
    """All cases, in a fixed order."""
    modules = sorted(m.name for m in iter_modules(__path__))
    return tuple(c for name in modules for c in import_module(f"{__name__}.{name}").CASES)


def cases_of(op: str) -> tuple[Case, ...]:
    """The cases of one op."""
    return tuple(c for c in table() if c.op == op)
