"""The block of a promised step, run before all of the step has come, because somebody looks (see ``looks``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidjax.eager.sequences.packs import taken
from fluidjax.eager.values import Spec, Value

_MISSES, _WORTH = 8, 3  # a step that was run ahead in vain so often, and a third as often as with success, no more is


class Ahead:
    """What the block gave.

    Attributes:
        frame: the block, which kept its arguments.
        found: its results.
    """

    def __init__(self, frame: Any, found: Sequence[Any], expected: Sequence[Value]) -> None:
        self.frame, self.found, self._expected = frame, found, expected
        self._shown: dict[int, Value] = {}

    def value(self, code: int, spec: Spec) -> Value:
        """An output."""
        value = self._shown.get(code)
        if value is None:
            value = self._shown[code] = Value(self.found[self.frame.places[code]], spec)
        return value

    def took(self, leaves: Sequence[Value]) -> bool:
        """Whether these are the leaves that were foreseen for the pass and the update."""
        return all(map(_alike, leaves, self._expected))


def run_ahead(step: Any, state: Sequence[Any], leaves: list[Any]) -> Ahead | None:
    """Run the block of a step, given the leaves that have come; None if it cannot be run."""
    frame, expected = step.ahead, step.expects()
    if expected is None:
        return None
    leaves = [*leaves, *expected]
    outer = [taken(leaves[k].array) for k in frame.outer]
    try:
        frame.put(outer)
        found = frame.call(frame.arguments((*outer, *state)))
    except Exception:  # too little memory for both: it is run as ever, and raises what there is to raise
        step.ahead, step.in_vain = None, True
        return None
    return Ahead(frame, found, expected)


def missed(step: Any) -> None:
    """A step was run ahead in vain."""
    step.missed += 1
    if step.missed >= _MISSES and step.missed * _WORTH > step.ran_ahead:
        step.ahead, step.in_vain = None, True


def _alike(one: Value, other: Value) -> bool:
    """Whether two values of one spec have the same bits."""
    return one is other or np.asarray(taken(one.array)).tobytes() == np.asarray(taken(other.array)).tobytes()
