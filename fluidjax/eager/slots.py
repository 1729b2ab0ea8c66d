"""Which of an op's variables belong to which of its slots, once they are one sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Layout = tuple[Any, ...]  # per slot its name, for one variable, or (name, number of variables)


def flatten(slots: Mapping[str, Any]) -> tuple[list[Any], Layout]:
    """(the variables of all slots in sequence, their assignment to slots)."""
    flat: list[Any] = []
    layout: list[Any] = []
    for slot, argument in slots.items():
        if argument is None:
            continue
        if argument.__class__ is list or argument.__class__ is tuple:
            flat += argument
            layout.append(slot if len(argument) == 1 else (slot, len(argument)))
        else:
            flat.append(argument)
            layout.append(slot)
    return flat, tuple(layout)


def by_slot(layout: Layout, names: Sequence[Any]) -> dict[str, list[Any]]:
    """Names, or what else each variable has, by slot, taken in sequence."""
    named, begin = {}, 0
    for entry in layout:
        slot, count = (entry, 1) if isinstance(entry, str) else entry
        named[slot] = list(names[begin : begin + count])
        begin += count
    return named


def count_of(layout: Layout) -> int:
    """The number of variables."""
    return sum(1 if isinstance(entry, str) else entry[1] for entry in layout)
