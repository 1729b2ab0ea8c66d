"""Names of gradient variables, and small helpers on the ops that are about to be written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lowering.program import EMPTY as EMPTY
from lowering.program import GRAD as GRAD
from lowering.program import PASS as PASS
from lowering.program import ROLE_BACKWARD as ROLE_BACKWARD
from lowering.program import ROLE_FORWARD as ROLE_FORWARD
from lowering.program import ROLE_LOSS as ROLE_LOSS
from lowering.program import ROLE_OPTIMIZE as ROLE_OPTIMIZE
from lowering.program import OpSpec, OpView
from lowering.program import forward_name as forward_name

# Grad ops that add to the elements which a gradient array holds.
ADDING = ("write_to_array", "while_grad", "conditional_block_grad", "recurrent_grad")


def grad_name(name: str) -> str:
    """The name of the gradient of ``name``."""
    return name + GRAD


def plain_name(name: str) -> str:
    """The name before the first ``@GRAD``; the name itself if there is none."""
    return name.partition(GRAD)[0]


def as_list(x: Any) -> list[Any]:
    """A list of one or many: nothing for None, the items of a list or tuple."""
    if x is None:
        return []
    return list(x) if isinstance(x, (list, tuple)) else [x]


def is_grad(name: str) -> bool:
    """Whether ``@GRAD`` occurs in the name: renamed gradients and gradients of gradients count too."""
    return GRAD in name


def args(slots: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The variable names of all slots, in the order of an OpDesc (slots sorted by name)."""
    for slot in sorted(slots):
        yield from slots[slot]


def in_args(op: OpSpec | OpView) -> list[str]:
    """The variables that ``op`` reads, in the order of an OpDesc (slots sorted by name)."""
    return list(args(op.inputs))


def out_args(op: OpSpec | OpView) -> list[str]:
    """The variables that ``op`` writes, in the order of an OpDesc (slots sorted by name)."""
    return list(args(op.outputs))


def rename(slots: dict[str, list[str]], old: str, new: str) -> None:
    """Put ``new`` in place of ``old`` in every slot, in place."""
    for slot, names in slots.items():
        if old in names:
            slots[slot] = [new if name == old else name for name in names]


def rename_all(ops: Iterable[OpSpec], old: str, new: str) -> None:
    """Call the variable ``old`` ``new`` wherever ``ops`` read or write it."""
    for op in ops:
        rename(op.inputs, old, new)
        rename(op.outputs, old, new)
