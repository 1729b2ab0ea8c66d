"""Records that come after a point, noted so that they can be recorded again at once.

What is recorded follows from the point it begins at and from the values that it reads: which of them are pending, and
which become leaves. Where these are the same, the records are, and a batch goes on to the point that they lead to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fluidjax.eager.pending import Recorder
from fluidjax.eager.points import Point
from fluidjax.eager.values import Spec, Value, zeros

Source = int | Value  # a value that is read, by its number; or zeros


class Stretch(NamedTuple):
    """Records that come after a point.

    Attributes:
        codes: of the values that are read; None for one that no op took.
        leaves: what becomes a leaf, in order, and what it is.
        ops, end: how many records there are, and the point that they lead to.
    """

    codes: list[int | None]
    leaves: list[tuple[Source, Spec]]
    ops: int
    end: Point

    def register(self, recorder: Recorder, reads: Sequence[Any]) -> bool:
        """Whether the values are those that were read then; what is not pending becomes a leaf."""
        if None in reads:
            return False
        serial = recorder.serial
        sources = [(reads[s] if s.__class__ is int else s, spec) for s, spec in self.leaves]
        if not recorder.become_leaves(sources):
            return False
        return [v.index if v.serial == serial else None for v in reads] == self.codes


class Mark:
    """Where a batch is before something is recorded that is to be noted."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder, self.serial, self.point = recorder, recorder.serial, recorder.point
        self.first = len(recorder.outputs)  # the number of the first output that comes after

    def stretch(self, reads: Sequence[Any]) -> Stretch | None:
        """What was recorded since, which read these values; None where it cannot be done again."""
        recorder = self.recorder
        ops = recorder.point.way(self.point.depth)
        if recorder.serial != self.serial or None in reads or any(point.special for point in ops):
            return None
        leaves = [(source_of(value, reads), value.spec) for value in recorder.leaves_since(self.point)]
        if any(source is None for source, _ in leaves):
            return None
        codes = [v.index if v.serial == self.serial else None for v in reads]
        return Stretch(codes, leaves, len(ops), recorder.point)  # type: ignore[arg-type]

    def made(self, value: Value) -> bool:
        """Whether a value is an output of what was recorded since."""
        return value.serial == self.serial and value.index >= self.first


def value_at(source: Source, reads: Sequence[Any]) -> Any:
    """The value at a source."""
    return reads[source] if source.__class__ is int else source


def source_of(value: Value, reads: Sequence[Any]) -> Source | None:
    """Where a value is found again; None where nowhere."""
    for k, read in enumerate(reads):
        if read is value:
            return k
    return value if zeros(value.spec) is value else None
