"""Variables that an update alone reads and writes, such as moments: they enter a batch, and leave it, all at once.

Each holds a member of the group in place of a value. As soon as anybody else wants the value of one, all members stand
for values of their own, until an update forms another group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.sequences.points import Point
from fluidjax.eager.values import Spec, Value


class Group:
    """The values of such variables.

    Attributes:
        intact: whether no variable has been asked for its value, or been given one.
        values: of each variable: the one before the batch while it is pending, and the one after it from then on.
        serial: of the batch in which an update replaces them; of an earlier one if none does.
        codes: the numbers of the outputs that they become there.
        left: the values that entered that batch, whose arrays nothing needs after it.
    """

    __slots__ = ("_outputs", "codes", "intact", "left", "serial", "values")

    def __init__(self, values: Sequence[Value]) -> None:
        self.values, self.intact, self.serial = [*values], True, recorder.serial
        self.codes: Sequence[int] = [value.index for value in values]
        self.left: list[Value] = []
        self._outputs: dict[Any, dict[int, Value]] = {}  # by the codes

    def enter(self, codes: tuple[int, ...], end: Point) -> None:
        """They are the next leaves of the batch, and the outputs with these numbers at the point that it goes on to."""
        outputs = self._outputs.get(codes)
        if outputs is None:
            outputs = self._outputs[codes] = dict(zip(codes, self.values, strict=True))
        # An interrupt, which arrives at calls, comes before all of this or after it.
        recorder.leaves += self.values
        recorder.outputs |= outputs
        recorder.groups += (self,)
        recorder.point = end
        self.codes, self.serial, self.left = codes, recorder.serial, self.values

    def now(self, number: int) -> Value:
        """The value of a variable; the group parts."""
        if self.intact:
            self.part()
        return self.values[number]

    def part(self) -> None:
        """Give each variable a value of its own."""
        values = self.values
        made: dict[int, Value] = {}
        if self.serial == recorder.serial:  # as leaves the old ones have the numbers that the batch needs
            made = {code: Value.pending(v.spec, self.serial, code) for v, code in zip(values, self.codes, strict=True)}
            values = [*made.values()]
        recorder.outputs |= made
        self.values, self.intact = values, False


class Member:
    """What a variable of a group holds: a ``Group``'s, or a whole step's (see ``together``).

    Attributes:
        group: the group.
        number: of the variable.
        spec: of the value.
    """

    __slots__ = ("group", "number", "spec")

    def __init__(self, group: Any, number: int, spec: Spec) -> None:
        self.group, self.number, self.spec = group, number, spec

    def now(self) -> Value:
        """The value; the group parts."""
        return self.group.now(self.number)

    def stopping(self, stop: bool) -> None:
        """The variable is about to be stopped, or the contrary; the group parts."""
        self.now()

    def becomes(self, value: Value | None) -> Value | None:
        """What the variable holds once a value is assigned to it; the group parts."""
        self.now()
        return value
