"""One op outside any program: what identifies it, and the few facts about a program that its rule may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lowering.program import BOOKKEEPING, EMPTY, OpView, VarView


def freeze(value: Any) -> Any:
    """A hashable substitute for an attribute value."""
    if isinstance(value, (list, tuple)):
        return tuple(freeze(v) for v in value)
    return value


def static_attrs(op: OpView) -> tuple[tuple[str, Any], ...]:
    """The attributes that decide what an op computes, hashable and in a fixed order."""
    return tuple(sorted((k, freeze(v)) for k, v in op.attrs.items() if k not in BOOKKEEPING))


def stand_in_names(outs: Any, declared: Any) -> dict[str, list[str]]:
    """Names for the outputs ``outs`` (slot, which of its variables are empty): those declared, or invented ones."""
    known = iter([n for n, _ in declared or ()])
    return {
        slot: [EMPTY if empty else next(known, f"{slot}.{i}") for i, empty in enumerate(empties)]
        for slot, empties in outs
    }


class SingleOp:
    """Just enough of a program for a Context outside one."""

    def __init__(self, variables: Mapping[str, VarView | None], version: int = 0):
        self._variables = variables
        self.version = version

    def find_var(self, block_idx: int, name: str) -> VarView | None:
        """The variable of that name; there are no blocks."""
        return self._variables.get(name)
