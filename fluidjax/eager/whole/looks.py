"""Looking at what a step computes before all of it has come, as scripts do that print a loss before ``minimize``.

While such a step is being learned, what is looked at is computed from the pending ops, and the batch goes on: so the
step is one batch, and becomes one block. That block keeps its arguments. Once the step is promised, a look runs it
ahead (see ``ahead``): with the learning rate of the step before, and on the variables as they are. If all comes as
foreseen, they become what was computed; otherwise the result is dropped, and nothing has happened.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fluidjax.base.flags import FLAGS
from fluidjax.eager.recorded.alive import referenced
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.repeated.passes import Known
from fluidjax.eager.sequences.packs import taken
from fluidjax.eager.sequences.points import Point
from fluidjax.eager.values import Value, array_of
from fluidjax.eager.whole.steps import MISSES, Repeated
from lowering.engine.interrupts import uninterrupted

_ALL = 3  # parts of a step
_LEAST = 2  # so often, a step goes on after a look before its batch does
_MOST = 128  # ops that are run once more at a look while a step is learned


def look(value: Value) -> None:
    """Compute an output of the batch, and the others that are referenced, and let the batch go on if it is to."""
    call, *passed = recorder.parts
    if not isinstance(call, Repeated) or call.looks < _LEAST or call.misses >= MISSES:
        return
    if call.step is not None and call.step.in_vain:
        return
    if len(passed) > 1 or (passed and passed[0].__class__ is not Known):
        return
    end = _end_before(recorder.point, passed)
    if end.depth > _MOST or FLAGS["FLAGS_cpu_deterministic"]:
        return
    if value.serial == recorder.serial and 0 <= value.index < end.end:
        uninterrupted(partial(_compute, end))


def _end_before(point: Point, passed: Sequence[Known]) -> Point:
    """Where the backward pass began, if there is one."""
    for _ in range(passed[0].stretch.ops if passed else 0):
        point = point.before  # type: ignore[assignment]
    return point


def _compute(end: Point) -> None:
    """Compute what is referenced up to a point."""
    outputs = recorder.outputs
    alive = tuple([code for code in referenced(outputs, end.end) if code not in recorder.looked])
    arrays = [*map(array_of, recorder.leaves[: end.leaves])]
    try:
        results = recorder.blocks.run(end, arrays, alive)
    except Exception:  # raised again, and the batch ends with it, when it runs
        return
    for code, array in zip(alive, results, strict=True):
        outputs[code].array = taken(array)
    recorder.looked |= dict.fromkeys(alive, end.depth)


class Seen:
    """Tells which calls are looked at before the rest of their step comes, in a batch of its own."""

    def __init__(self) -> None:
        self._call: Callable[[], Repeated | None] = lambda: None
        self._came = 0  # of the call, the pass and the update

    def batch(self, parts: Sequence[Any]) -> None:
        """A batch ran, and consisted of these parts."""
        call, came = self._call(), self._came
        begins = bool(parts) and isinstance(parts[0], Repeated)
        if begins:
            call, came, parts = parts[0], 1, parts[1:]
        for part in parts:
            came = came + 1 if call is not None and _follows(part, call, came) else 0
        if came == _ALL and not begins and call is not None:
            call.looks += 1
        self._came = came
        self._call = weakref.ref(call) if call is not None and 0 < came < _ALL else lambda: None


def _follows(part: Any, call: Repeated, came: int) -> bool:
    if came == 1:
        return part.__class__ is Known and any(visit.plan is call.body for visit in part.visits)
    return came == 2 and part.__class__ is tuple
