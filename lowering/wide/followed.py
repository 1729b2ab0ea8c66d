"""Numbers that a program computes from sizes of wide dims, and from nothing else.

While a dim has its true size, such numbers are known during tracing: ops read them as shapes, bounds and conditions.
With room they are counts (see ``counts``), and where an op makes others of them than counts, values of the run. So an
op that fails on them, or a loop or a host op that reads them, gets the true sizes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from lowering.errors import NeedsSizes
from lowering.program import OpView
from lowering.registry import OpDef
from lowering.sizes.counts import SlotValues, each, plain
from lowering.sizes.labels import roots
from lowering.values import RowCounts, is_concrete
from lowering.wide.windows import INTERPOLATIONS

Labels = frozenset[Hashable]

# Ops that make dims of the sizes that they are given, and tell which; others get them as numbers.
_SIZED = INTERPOLATIONS | frozenset(
    "expand fill_constant range linspace sequence_mask slice gaussian_random randint uniform_random".split()
)
# Those whose rules for wide inputs look for the axes of these sizes.
_RESHAPING = frozenset(["reshape", "reshape2", "tile"])


class Followed:
    """Which variables follow sizes of wide dims.

    Attributes:
        labels: name -> the labels of the dims, for variables that are no counts.
    """

    def __init__(self) -> None:
        self.labels: dict[str, Labels] = {}

    def of(self, names: Iterable[str], env: Mapping[str, Any]) -> Labels:
        """The labels of the dims that any of these variables follows."""
        found: Labels = frozenset()
        for name in names:
            value = env.get(name)
            found |= value.labels if type(value) is RowCounts else self.labels.get(name, frozenset())
        return found

    def note(self, op: OpView, labels: Labels, results: Iterable[str], env: Mapping[str, Any]) -> None:
        """Note what ``op`` wrote, whose inputs, still in ``env``, follow dims with these labels."""
        names = [*op.input_names()]
        alone = labels and all(n in self.labels or _known(env.get(n)) for n in names)
        for name in results:
            if alone:
                self.labels[name] = labels
            else:
                self.labels.pop(name, None)


def _known(value: Any) -> bool:
    return value is None or is_concrete(value) or (type(value) is RowCounts and bool(value.labels))


def unsized(definition: OpDef, values: SlotValues, *, wide: bool) -> SlotValues:
    """``values``, some ``wide`` or none; counts of wide dims are numbers if the op cannot say which dims follow."""
    name = (definition.forward or definition).type
    if name in _SIZED or (wide and name in _RESHAPING):
        return values
    return each(values, lambda v: plain(v) if type(v) is RowCounts and v.labels else v)


def refused_numbers(op: OpView, labels: Labels, why: str) -> NeedsSizes:
    """The error for an op that cannot take numbers that follow dims with these labels."""
    needed = NeedsSizes(f"op {op.type} {why}")
    needed.labels = roots(labels)
    return needed.asked_by(op)
