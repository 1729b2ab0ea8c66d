"""How a program is cut into sections, each a program that runs on a device of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from fluidjax.base.enums import OpRole
from fluidjax.framework import Operator, Program, Variable
from fluidjax.framework.names import OP_ROLE, grad_var_name
from fluidjax.framework.prune import part

Names = set[str]


def sections(program: Program, cuts: Sequence[Sequence[Variable]]) -> list[dict[str, Any]]:
    """The sections of a program with its backward pass and updates, in the order in which a batch goes through them.

    Of ``k`` cuts there are ``2 k - 1``: the forward pass up to each cut but the last; all that is left of it, with the
    gradients of the last cut but one; then the gradients of each cut before, backwards. What updates the parameters of
    a part of the forward pass stands with the gradients of that part, what schedules rates in the first section.

    Args:
        program: is left unchanged.
        cuts: the variables that go over each cut; those of the last one are what is minimized.

    Returns:
        Of each section its ``program``, what it is given (``input_set``) and what later ones need (``output_set``).
    """
    if len(cuts) < 2:
        return [{"program": program, "input_set": set(), "output_set": set()}]
    found = _Cutter(program, cuts).sections()
    needed: Names = set()
    for section in reversed(found):
        section["output_set"] &= needed
        needed |= section["input_set"]
    return found


class _Cutter:
    """Deals the ops of a program out to sections; ``_left`` are those that none has yet."""

    def __init__(self, program: Program, cuts: Sequence[Sequence[Variable]]):
        self._program = program
        self._cuts = cuts
        self._left: list[Operator] = list(program.global_block().ops)
        self._known = {p.name for p in program.all_parameters()}
        self._parameters: list[Names] = []  # of each part of the forward pass

    def sections(self) -> list[dict[str, Any]]:
        """The sections, with all that they write in their output sets."""
        found = [self._section(index, names) for index, names in enumerate(self._targets())]
        gradients = {grad_var_name(var.name) for var in self._cuts[0]}
        return [*found, self._made(self._left, {*_given(self._left), *gradients, *self._parameters[0]})]

    def _targets(self) -> list[Names]:
        """What each section but the last one is to compute."""
        before = [{var.name for var in cut} for cut in self._cuts[:-1]]
        back = [set(map(grad_var_name, names)) for names in reversed(before)]
        back[-1] |= {var.name for var in self._cuts[-1]}
        return [*before, *back]

    def _section(self, index: int, targets: Names) -> dict[str, Any]:
        last = len(self._cuts) - 1
        ops = self._take(needed(self._left, targets, _computes))
        if index == 0:
            ops += self._take([op for op in self._left if _role(op) == OpRole.LRSched])
        inputs = _given(ops)
        if index <= last:
            self._parameters.append({n for op in ops for n in op.input_arg_names} & self._known)
        parameters = self._parameters[min(index, 2 * last - index)]
        if index >= last:
            ops += self._take(needed(self._left, parameters, lambda op: True))
        return self._made(ops, {*inputs, *_given(ops), *parameters})

    def _take(self, ops: list[Operator]) -> list[Operator]:
        taken = set(map(id, ops))
        self._left = [op for op in self._left if id(op) not in taken]
        return ops

    def _made(self, ops: Sequence[Operator], inputs: Names) -> dict[str, Any]:
        read = {n for op in ops for n in op.input_arg_names}
        outputs = {n for op in ops for n in op.output_arg_names} - read
        return {"program": part(self._program, ops), "input_set": inputs, "output_set": outputs}


def needed(ops: Sequence[Operator], targets: Collection[str], admits: Callable[[Operator], bool]) -> list[Operator]:
    """The ops that ``targets`` follow from, those that are not admitted left out; what prints one of them as well."""
    names, found = set(targets), []
    for op in reversed(ops):
        if admits(op) and names.intersection(op.output_arg_names):
            names.update(op.input_arg_names)
            found.append(op)
        elif op.type == "print" and names.intersection(op.input_arg_names[:1]):
            found.append(op)
    return found[::-1]


def _given(ops: Iterable[Operator]) -> Names:
    """What ops read that none of them writes."""
    ops = list(ops)
    return {n for op in ops for n in op.input_arg_names} - {n for op in ops for n in op.output_arg_names}


def _role(op: Operator) -> int:
    return int(op._attr_map.get(OP_ROLE, 0))


def _computes(op: Operator) -> bool:
    return not _role(op) & OpRole.Optimize
