"""One op outside of a program: what tells it from others, and the little of a program that its rule may ask about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lowering.program import BOOKKEEPING, EMPTY, OpView, VarView


def freeze(value: Any) -> Any:
    """A hashable stand-in for an attribute value."""
    if isinstance(value, (list, tuple)):
        return tuple(freeze(v) for v in value)
    return value


def static_attrs(op: OpView) -> tuple[tuple[str, Any], ...]:
    """The attributes that decide what an op computes, hashable and in a fixed order."""
    return tuple(sorted((k, freeze(v)) for k, v in op.attrs.items() if k not in BOOKKEEPING))


def stand_in_names(outs: Any, declared: Any) -> dict[str, list[str]]:
    """Names for the outputs ``outs`` (slot, which of it are empty): those of its declared variables, or made up."""
    known = iter([n for n, _ in declared or ()])
    return {
        slot: [EMPTY if empty else next(known, f"{slot}.{i}") for i, empty in enumerate(empties)]
        for slot, empties in outs
    }


class SingleOp:
    """Just enough of a program for a Context outside of one."""

    def __init__(self, variables: Mapping[str, VarView | None], version: int = 0):
        self._variables = variables
        self.version = version

    def find_var(self, block_idx: int, name: str) -> VarView | None:
        """The variable of that name; blocks there are none."""
        return self._variables.get(name)
