"""Looking at what a step computes before all of it has come, as scripts do that print a loss before ``backward``.

While such a step is being learned, what is looked at is computed from the pending ops, and the batch goes on: so the
step is one batch, and becomes one block. That block keeps its arguments. Once the step is promised, a look runs it
ahead (see ``ahead``): with the learning rate of the step before, and on the variables as they are. If all comes as
foreseen, they become what was computed; otherwise the result is dropped, and nothing has happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax.base.flags import FLAGS
from fluidjax.eager.alive import array_of, referenced
from fluidjax.eager.packs import taken
from fluidjax.eager.passes import Known
from fluidjax.eager.pending import recorder
from fluidjax.eager.values import Value
from fluidjax.eager.whole.steps import MISSES, Repeated
from lowering.engine.interrupts import uninterrupted

_LEAST = 2  # so often, a step goes on after a look before its batch does
_MOST = 128  # ops that are run once more at a look while a step is learned


def look(value: Value) -> None:
    """Compute an output of the batch, and all others that are referenced, and let the batch go on if it is to."""
    call, point = recorder.parts[0], recorder.point
    if len(recorder.parts) != 1 or not isinstance(call, Repeated) or call.looks < _LEAST or point.depth > _MOST:
        return
    if call.step is not None and call.step.in_vain:
        return
    if FLAGS["FLAGS_cpu_deterministic"] or call.misses >= MISSES or value.serial != recorder.serial:
        return
    uninterrupted(_compute)


def _compute() -> None:
    point, outputs = recorder.point, recorder.outputs
    alive = tuple([code for code in referenced(outputs, point.end) if code not in recorder.looked])
    arrays = [*map(array_of, recorder.leaves[: point.leaves])]
    try:
        results = recorder.blocks.run(point, arrays, alive)
    except Exception:  # raised again, and the batch ends with it, when it runs
        return
    for code, array in zip(alive, results, strict=True):
        outputs[code].array = taken(array)
    recorder.looked |= dict.fromkeys(alive, point.depth)


class Seen:
    """Tells which calls are looked at before the rest of their step comes."""

    def __init__(self) -> None:
        self._before: Repeated | None = None

    def batch(self, parts: Sequence[Any]) -> None:
        """A batch ran, and consisted of these parts."""
        before, self._before = self._before, None
        if len(parts) == 1 and isinstance(parts[0], Repeated):
            self._before = parts[0]
        elif len(parts) == 2 and before is not None and parts[0].__class__ is Known and parts[1].__class__ is tuple:
            if any(visit.plan is before.body for visit in parts[0].visits):
                before.looks += 1
