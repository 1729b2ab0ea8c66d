"""The operators, one package per family and one file per idea. A file is imported when one of its ops is asked for.

``homes`` lists the file of each op (``python -m tools.homes`` writes it). An op that it lacks is found all the same,
after all files have been imported.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import walk_packages

from lowering.collection import uncollected
from lowering.engine.interrupts import uninterrupted
from lowering.ops.homes import HOMES
from lowering.registry import table


def _imported(type: str | None) -> None:
    """Import the file of an op, or all files."""
    if type is None:
        _all()
    elif type in HOMES:
        _one(HOMES[type])


@cache
def _one(home: str) -> None:
    _read([f"{__name__}.{home}"])


@cache
def _all() -> None:
    _read(sorted(module.name for module in walk_packages(__path__, f"{__name__}.")))


def _read(names: list[str]) -> None:
    with uncollected(), table.arriving():
        uninterrupted(lambda: [import_module(name) for name in names])


table.IMPORT.append(_imported)
