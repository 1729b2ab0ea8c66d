"""Repeating ops: what an optimizer traces in one step runs in the next without its Python.

If the ops are recorded after the same ones as before, they are a known stretch (see ``stretches``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from fluidjax.eager.kernels import Kernel
from fluidjax.eager.pending import recorder
from fluidjax.eager.stretches import Mark, Stretch
from fluidjax.eager.values import Spec, Value

Call = tuple[Kernel, Sequence[Any], Sequence[Any]]  # a kernel, its input and output variables


class Update(NamedTuple):
    """A replay after one point.

    Attributes:
        stretch: what it records.
        results: for each variable that it writes, the number of the output and its spec.
    """

    stretch: Stretch
    results: list[tuple[int, Spec]]

    def run(self, reads: Sequence[Any], variables: Sequence[Any]) -> bool:
        """Repeat it; returns False, without effect, if anything differs."""
        stretch = self.stretch
        if not recorder.takes(stretch.ops) or not stretch.register(recorder, reads):
            return False
        recorder.extend(stretch.end)
        for var, value in zip(variables, recorder.outputs_of(self.results), strict=True):
            if var._held.__class__ is Value:
                var._held = value
            else:
                var._value = value  # into the array that it shares memory with
            var._place = None
        return True


class Replay:
    """Ops on persistable variables, whose values they replace, and on given ones, which change each time.

    Args:
        calls: the traced ops.
        given: the variables that change each time.
    """

    def __init__(self, calls: Sequence[Call], given: Sequence[Any]) -> None:
        numbers = {id(var): k for k, var in enumerate(given)}
        self._steps: list[tuple[Kernel, list[Any], list[Any]]] = []
        read: dict[int, Any] = {}
        written: dict[int, Any] = {}
        for kernel, ins, outs in calls:
            reads = [numbers.get(id(var), var) for var in ins]
            read.update({id(x): x for x in reads if x.__class__ is not int and id(x) not in written})
            for var in outs:
                if not var.persistable:
                    numbers.setdefault(id(var), len(numbers))
            writes = [numbers.get(id(var), var) for var in outs]
            written.update({id(x): x for x in writes if x.__class__ is not int})
            self._steps.append((kernel, reads, writes))
        self._temporaries = len(numbers) - len(given)
        self._read, self._written = list(read.values()), list(written.values())

    def run(self, tracer: Any, given: Sequence[Any]) -> None:
        """Run the ops with other given variables."""
        values = _values(given)
        reads = values + _values(self._read)
        point = recorder.point
        if point.updates is None:
            point.updates = WeakKeyDictionary()  # a step that recurs will recur again
            return self._run(tracer, values)
        updates = point.updates.setdefault(self, [])
        if any(update.run(reads, self._written) for update in updates):
            return None
        mark = Mark(recorder)
        self._run(tracer, values)
        if len(updates) < _UPDATES:
            updates += self._known(mark, reads)
        return None

    def _run(self, tracer: Any, given: list[Any]) -> None:
        values: list[Any] = [*given, *[None] * self._temporaries]
        for kernel, reads, writes in self._steps:
            ins = [values[x] if x.__class__ is int else x._value for x in reads]
            for x, result in zip(writes, tracer.run(kernel, ins), strict=False):
                if x.__class__ is int:
                    values[x] = result
                else:
                    x._value, x._place = result, None

    def _known(self, mark: Mark, reads: list[Any]) -> list[Update]:
        """What has been recorded since; nothing if it cannot be repeated."""
        stretch = mark.stretch(reads)
        results: list[Value] = [var._value for var in self._written]
        if stretch is None or not all(map(mark.made, results)) or len(set(map(id, results))) < len(results):
            return []
        return [Update(stretch, [(value.index, value.spec) for value in results])]


def _values(variables: Sequence[Any]) -> list[Any]:
    held = [var._held for var in variables]
    return [h if h.__class__ is Value else var._value for h, var in zip(held, variables, strict=True)]


_UPDATES = 8  # known updates of a replay for one point
