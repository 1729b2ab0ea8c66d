"""One op outside any program: what identifies it, and the few facts about a program that its rule may ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from lowering.errors import Need
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


class CompiledOp:
    """One op compiled alone, and what it was found to need for which kinds of inputs.

    jax.jit keeps no trace that failed, and tracing again until the rule raises takes many times as long as the op.
    """

    def __init__(self, run: Callable[..., Any]):
        self.run = jax.jit(run)
        self._needs: dict[Any, type[Need]] = {}

    def need(self, values: Any) -> type[Need] | None:
        """Why these inputs cannot be compiled, as found earlier; None if nothing is known against it."""
        return self._needs.get(_kind_of(values)) if self._needs else None

    def note(self, values: Any, need: Need) -> type[Need]:
        """Remembers what a trace of these inputs raised."""
        return self._needs.setdefault(_kind_of(values), type(need))


def _kind_of(values: Any) -> Any:
    """What a trace may depend on: structure, shapes and types, not the values."""
    leaves, structure = jax.tree_util.tree_flatten(values)
    return structure, tuple((np.shape(leaf), getattr(leaf, "dtype", type(leaf))) for leaf in leaves)
