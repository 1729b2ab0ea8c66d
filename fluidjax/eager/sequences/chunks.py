"""A long sequence of ops as many small parts, which are shared between its own repetitions and with other sequences.

XLA takes some 8 ms per op to compile, and a recurrent net of 35 steps has thousands of ops. But its steps are alike,
and they are those of longer and shorter sentences. So the sequence is cut (see ``cutting``), and a part is compiled
once for all places where it occurs: if its sequence comes again, or if it alone has come often. Anything else runs op
by op.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any

import jax

from fluidjax.base.garbage import no_collections
from fluidjax.eager.sequences.cutting import Cutting
from fluidjax.eager.sequences.order import Order, Record, run_steps
from fluidjax.eager.sequences.points import Point
from fluidjax.eager.values import Spec
from fluidjax.execution.executables import background
from fluidjax.execution.executables.executable import Executable
from lowering.engine.interrupts import uninterrupted
from lowering.engine.x64 import in_x64

_KEPT = 4096  # chunks that are remembered
_SHORT = 3  # fewer ops are no chunk
_TIMES = 200  # a chunk that has come so often is compiled, wherever it came: then its ops have taken about as long
_ALIVE = 1 << 60  # the step that reads what is needed after the last one


class Chunk:
    """One part of sequences: its ops with local numbering.

    Args:
        records: the ops, which read ``~k`` for input ``k``.
        gives: the numbers of its results.
        given: the specs of its inputs.

    Attributes:
        count: how often it has run.
        last: when it did so last, counted in runs of sequences.
        executable: its compiled function; None until there is one.
    """

    def __init__(self, records: Sequence[Record], gives: Sequence[int], given: Sequence[Spec]) -> None:
        self.steps = Order(records, gives).steps
        self._gives, self._given = gives, given
        self.count = self.last = 0
        self._settled = False
        self.executable: Executable | None = None

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Its results for its inputs, with 64-bit types enabled."""
        self.count += 1
        executable = self.executable
        if executable is None:
            return self._run(*arrays)
        found = executable.call(*arrays)
        if not self._settled:
            executable.settle()
            self._settled = True
        return found

    def _run(self, *arrays: Any) -> list[Any]:
        return run_steps(self.steps, arrays, self._gives)

    def compile(self) -> int:
        """Compile it; returns how many compilations that took: none if it is compiled, or the process ends."""
        if self.executable is not None or background.ending():
            return 0
        self.executable = uninterrupted(self._compile)
        return 1

    @in_x64
    def _compile(self) -> Executable:
        return Executable.of(jax.jit(self._run).trace(*[spec.aval for spec in self._given]))


class Chunks:
    """The chunks of all sequences, by content."""

    def __init__(self) -> None:
        self._cutting = Cutting()
        self._known: OrderedDict[Any, Chunk] = OrderedDict()

    def cut(self, point: Point, alive: Sequence[int]) -> Chunked:
        """The sequence that ends at a point in chunks, for the outputs `alive`."""
        with no_collections():
            return self._cut(point.way(), alive)

    def _cut(self, way: Sequence[Point], alive: Sequence[int]) -> Chunked:
        specs: list[Any] = []
        leaves: list[Spec] = []
        for each in way:
            specs += each.outs
            leaves += each.fresh
        leaves.reverse()
        specs += leaves  # leaf k is at ~k
        steps, ends = _needed(way, alive)
        kinds = [(each.kernel, *[specs[code] for code in each.codes]) for each in steps]
        parts: list[Part] = []
        for begin, end in self._cutting.cut([each.kernel for each in steps], kinds):
            if end - begin < _SHORT:
                parts += [_alone(steps[k], ends, k) for k in range(begin, end)]
            else:
                parts.append(self._part(steps[begin:end], specs, ends, begin, end))
        return Chunked(parts, alive)

    def _part(self, steps: Sequence[Point], specs: Sequence[Any], ends: dict[int, int], begin: int, end: int) -> Part:
        base = steps[0].first
        reads: dict[int, int] = {}
        content: list[tuple[Any, ...]] = []
        made: list[int] = []
        for each in steps:
            codes = [c - base if c >= base else ~reads.setdefault(c, len(reads)) for c in each.codes]
            content.append((each.kernel, each.first - base, *codes))
            made += range(each.first, each.end)
        gives = tuple([code for code in made if ends.get(code, -1) >= end])
        given = tuple([specs[code] for code in reads])
        key = tuple(content), tuple([code - base for code in gives]), given
        chunk = self._known.get(key)
        if chunk is None:
            chunk = self._known[key] = _chunk(*key)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        ended = [code for code in reads if code >= 0 and ends[code] < end]
        return chunk.run, (*reads,), gives, ended, chunk


Part = tuple[Any, Sequence[int], Sequence[int], Sequence[int], Chunk | None]


def _needed(way: Sequence[Point], alive: Sequence[int]) -> tuple[list[Point], dict[int, int]]:
    """(the ops that outputs depend on; for each code that is read, the number of the last of them that reads it)."""
    last: dict[int, Point | None] = dict.fromkeys(alive)
    steps: list[Point] = []
    for each in reversed(way):
        first = each.first
        if first in last if each.end - first == 1 else not last.keys().isdisjoint(range(first, each.end)):
            steps.append(each)
            for code in each.codes:
                if code not in last:
                    last[code] = each
    steps.reverse()
    numbers = {each: k for k, each in enumerate(steps)}
    return steps, {code: _ALIVE if each is None else numbers[each] for code, each in last.items()}


def _alone(step: Point, ends: dict[int, int], at: int) -> Part:
    """An op that is no part of a chunk."""
    ended = [code for code in {*step.codes} if code >= 0 and ends[code] == at]
    return step.kernel.run, step.codes, range(step.first, step.end), ended, None


def _chunk(content: Sequence[tuple[Any, ...]], gives: Sequence[int], given: Sequence[Spec]) -> Chunk:
    """The chunk of this content, in which ops that nothing needed have left gaps among the numbers."""
    places: dict[int, int] = {}
    records: list[Record] = []
    for kernel, first, *codes in content:
        records.append((kernel, *[places[code] if code >= 0 else code for code in codes]))
        for k in range(kernel.width):
            places[first + k] = len(places)
    return Chunk(records, tuple([places[code] for code in gives]), given)


class Chunked:
    """A sequence as chunks, for the outputs `alive`.

    Attributes:
        compilations: how many of its chunks were compiled for it.
        rest: whether those that come once in it are left, to be compiled if the sequence comes often.
    """

    def __init__(self, parts: Sequence[Part], alive: Sequence[int]) -> None:
        self.alive, self.parts = tuple(alive), parts
        self.compilations = 0
        self.rest = False
        self._times = Counter([chunk for *_, chunk in parts if chunk is not None])

    def compile(self, times: int) -> int:
        """Compile the chunks that occur so often in it; returns the number of compilations."""
        found = sum([chunk.compile() for chunk, count in self._times.items() if count >= times])
        self.compilations += found
        return found

    def due(self, now: int) -> list[Chunk]:
        """The chunks that have come often enough to be compiled, after a run, the ``now``-th of all sequences."""
        found = []
        for chunk, count in self._times.items():
            chunk.last = now
            if chunk.executable is None and chunk.count >= _TIMES > chunk.count - count:
                found.append(chunk)
        return found

    @in_x64
    def run(self, arrays: Sequence[Any], alive: Sequence[int]) -> list[Any]:
        """The outputs `alive` for the leaves."""
        values: dict[int, Any] = {~k: array for k, array in enumerate(arrays)}
        value_of = values.__getitem__
        for function, reads, gives, ended, _ in self.parts:
            values.update(zip(gives, function([*map(value_of, reads)]), strict=True))
            for code in ended:
                del values[code]
        return [values[code] for code in alive]
