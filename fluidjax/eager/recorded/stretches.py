"""Records that follow a point, stored so that they can be recorded again at once.

What is recorded follows from the point where it begins and from the values it reads: which of them are pending, and
which become leaves. If these are the same, the records are, and a batch continues at the point that they lead to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fluidjax.eager.recorded.pending import Recorder
from fluidjax.eager.sequences.points import Point
from fluidjax.eager.values import Spec, Value, is_constant

Source = int | Value  # a value that is read, by its number; or a constant


class Stretch(NamedTuple):
    """Records that follow a point.

    Attributes:
        codes: of the values that are read; None for one that no op used.
        leaves: what becomes a leaf, in order, with its spec.
        ops, end: the number of records, and the point that they lead to.
    """

    codes: list[int | None]
    leaves: list[tuple[Source, Spec]]
    ops: int
    end: Point

    def register(self, recorder: Recorder, reads: Sequence[Any]) -> bool:
        """Whether the values match those read before; values that are not pending become leaves."""
        if not all(reads):  # a tenth of what ``None in reads`` takes
            return False
        if not recorder.become_leaves(self.leaves, reads):
            return False
        serial = recorder.serial
        return [v.index if v.serial == serial else None for v in reads] == self.codes


class Mark:
    """The state of a batch before recording something that is to be stored."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder, self.serial, self.point = recorder, recorder.serial, recorder.point
        self.first = self.point.end  # the number of the first output after it

    def stretch(self, reads: Sequence[Any]) -> Stretch | None:
        """What has been recorded since, which read these values; None if it cannot be repeated."""
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
        """Whether a value is an output of what has been recorded since."""
        return value.serial == self.serial and value.index >= self.first


def value_at(source: Source, reads: Sequence[Any]) -> Any:
    """The value at a source."""
    return reads[source] if source.__class__ is int else source


def source_of(value: Value, reads: Sequence[Any]) -> Source | None:
    """Where a value can be found again; None if nowhere."""
    for k, read in enumerate(reads):
        if read is value:
            return k
    return value if is_constant(value) else None
