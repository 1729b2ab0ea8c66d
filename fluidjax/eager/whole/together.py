"""The variables of a training step: parameters, their moments and gradients, which a known step replaces at once."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from fluidjax.eager.recorded.groups import Member
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.sequences.packs import is_whole, taken
from fluidjax.eager.values import Spec, Value, cleared
from fluidjax.eager.whole.frames import Layout, Slot


class Together:
    """The values of the variables, in the form in which the step's block takes them (see ``frames``).

    Each variable holds a member (see ``groups``) in place of a value. As soon as anybody wants the value of one, all of
    them stand for values of their own.

    Args:
        layout: how the state holds the updated variables.
        updated: the variables that the step replaces; all hold values that were computed.
        gradients: the variables of gradients.
        empty: whether these have all been cleared; else they hold values that were computed.

    Attributes:
        intact: whether no variable has been asked for its value, or been given one.
        state: the arrays of the updated variables.
        there: whether these are known to be there: they are what a run gave that is done.
        gradients: the arrays of the gradients; None if they have all been cleared.
        values: of each variable, the updated ones first, once they have parted.
        mark: an object of its own; who keeps it can tell these variables from others, and keeps no arrays.
    """

    def __init__(self, layout: Layout, updated: Sequence[Any], gradients: Sequence[Any], empty: bool) -> None:
        self.layout, self._count, self.mark = layout, len(updated), object()
        variables = [*updated, *gradients]
        values: list[Any] = [var._value for var in variables]
        self._specs: list[Spec] = [var._spec for var in variables]
        self.gradients = None if empty else [value.array for value in values[self._count :]]
        self.values: list[Any] = []
        for k, (var, spec) in enumerate(zip(variables, self._specs, strict=True)):
            var._held = Member(self, k, spec)
        self.state: Sequence[Any] = [_owned(values, slot) for slot in layout]
        self.intact, self.there = True, False

    def holds_all(self, variables: Sequence[Any]) -> bool:
        """Whether these are its variables, in their order."""
        if len(variables) != len(self._specs):
            return False
        for n, var in enumerate(variables):
            held = var._held
            if held.__class__ is not Member or held.group is not self or held.number != n:
                return False
        return True

    def now(self, number: int) -> Value | None:
        """The value of a variable; the variables part."""
        step = recorder.promised
        if step is not None and step.together is self:
            step.settle()
        if self.intact:
            self.part()
        return self.values[number]

    def part(self) -> None:
        """Give each variable a value of its own."""
        values: list[Any] = [None] * self._count
        for slot, array in zip(self.layout, self.state, strict=True):
            for n, each in zip(slot.members, slot.arrays(array), strict=True):
                values[n] = Value(each, self._specs[n])
        specs = self._specs[self._count :]
        if self.gradients is None:
            values += [cleared(spec) for spec in specs]
        else:
            values += [Value(array, spec) for array, spec in zip(self.gradients, specs, strict=True)]
        self.values, self.intact, self.state, self.gradients = values, False, [], None

    def clear(self, gradients: Sequence[Any]) -> bool:
        """Zero the gradients, if these are all of them and no step is promised; returns whether they are."""
        held = [getattr(var, "_held", None) for var in gradients]
        if not self.intact or len(held) != len(self._specs) - self._count:
            return False
        if not all([each.__class__ is Member and each.group is self for each in held]):
            return False
        self.gradients = None
        return True

    def lose(self) -> None:
        """The block failed after it had taken over the state: the variables have no values any more."""
        self.values, self.intact = [Value.pending(spec, -1, 0) for spec in self._specs], False
        self.state, self.gradients = [], None


def clear_gradients(parameters: Iterable[Any]) -> None:
    """Zero the gradients of those parameters that are trained: at once, if a known step replaces all of them."""
    if parameters.__class__ is not list:
        parameters = [*parameters]
    promised = recorder.promised
    if promised is not None and promised.clear(parameters):
        return
    gradients = [grad for p in parameters if p.trainable and (grad := p._grad) is not None]
    held = getattr(gradients[0], "_held", None) if gradients and promised is None else None
    if held.__class__ is Member and held.group.__class__ is Together and held.group.clear(gradients):
        return
    for p in parameters:
        if p.trainable:
            p.clear_gradient()


def _owned(values: list[Any], slot: Slot) -> Any:
    """The array of a slot, to which nothing else refers; it is copied otherwise."""
    arrays = [values[n].array for n in slot.members]
    alone = all([sys.getrefcount(values[n]) <= _VALUE for n in slot.members])
    if slot.bounds is None:
        own = alone and isinstance(arrays[0], jax.Array) and sys.getrefcount(arrays[0]) <= _ARRAY
        return arrays[0] if own else jax.device_put(np.array(taken(arrays[0])), may_alias=False)
    if alone and is_whole(arrays, slot.bounds):
        return arrays[0].buffer
    return jax.device_put(np.concatenate([np.asarray(taken(array)).reshape(-1) for array in arrays]), may_alias=False)


_VALUE = 2  # references to a value that a list alone refers to: the list, and the call
_ARRAY = 3  # to an array that a value alone refers to: the value, another list, and the call
