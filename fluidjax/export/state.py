"""State that has no value before a program's first run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fluidjax.base.scope import Scope
from fluidjax.execution.scopes.state import gather_values
from lowering.program import OpView, ProgramView
from lowering.registry import get_op
from lowering.registry.definition import Slot


def first_values(view: ProgramView, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Those of `names` that begin with a number that is an op's attribute, as counters of random ops do: [1] int64."""
    begun: dict[str, np.ndarray] = {}
    for name, op, slot in _read(view):
        definition = get_op(op.type)
        if name in names and slot.name in definition.begins:
            attribute = definition.attrs[definition.begins[slot.name]]
            number = op.attrs.get(attribute.name, attribute.default)
            begun.setdefault(name, np.array([number], np.int64))
    return begun


def unbegun(view: ProgramView, reads: Sequence[str], scope: Scope) -> frozenset[str]:
    """State that begins with the first run, as evaluators' sums do: no op needs its value. It can only be left out,
    since the structure of a function's parameters is fixed; fetches must not depend on it."""
    block = view.blocks[0]
    demanded = {name for name, op, slot in _read(view) if slot.param not in get_op(op.type).absent}
    demanded |= first_values(view, reads).keys()
    spared = [n for n in reads if n not in demanded and n in block.vars and block.vars[n].persistable]
    return frozenset(spared) - set(gather_values(scope, spared, exact=True))


def _read(view: ProgramView) -> Iterator[tuple[str, OpView, Slot]]:
    """(variable, op, slot) of all that ops of the first block read."""
    for op in view.blocks[0].ops:
        for slot in get_op(op.type).inputs:
            for name in op.inputs.get(slot.name) or ():
                yield name, op, slot
