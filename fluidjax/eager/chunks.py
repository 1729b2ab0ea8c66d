"""A long sequence of ops as many small compiled blocks, which are shared between its own repetitions.

XLA takes some 8 ms per op to compile, and a recurrent net of 35 steps has thousands of ops. But its steps are alike. So
the sequence is cut at positions determined by its content, between the most frequent pairs of ops, as content-defined
chunking cuts files. Equal parts of a sequence then give equal chunks, and each is compiled once. Anything that
does not occur twice runs op by op.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain, pairwise
from typing import Any

import jax

from fluidjax.eager.order import Order, Record, output_specs, run_steps
from fluidjax.eager.values import Spec
from fluidjax.execution import background
from lowering.engine.interrupts import uninterrupted
from lowering.engine.x64 import in_x64

_MEAN, _LEAST, _MOST = 32, 6, 96  # ops per chunk
_PERIOD = 4  # chunks that recur in the same order

Step = tuple[Record, int, list[int]]


def cut(steps: Sequence[Step]) -> list[Sequence[Step]]:
    """The parts of a sequence in order; an op that occurs once is kept apart from what may recur."""
    kernels = [record[0] for record, _, _ in steps]
    times, marks = Counter(kernels), _marks(kernels)
    chunks, begin = [], 0
    for at, pair in enumerate(pairwise(kernels), 1):
        apart = (times[pair[0]] == 1) != (times[pair[1]] == 1)
        length = at - begin
        if apart or length >= _MOST or (length >= _LEAST and pair in marks):
            chunks.append(steps[begin:at])
            begin = at
    return _joined([*chunks, steps[begin:]])


def _joined(chunks: Sequence[Sequence[Step]]) -> list[Sequence[Step]]:
    """Join repeating chunks into larger ones, up to the maximum length: each call has a cost."""
    kinds = [tuple([record[0] for record, _, _ in chunk]) for chunk in chunks]
    found: list[Sequence[Step]] = []
    at = 0
    while at < len(chunks):
        period, times = max(
            [(p, _times(kinds, at, p)) for p in range(1, _PERIOD + 1)], key=lambda way: way[0] * (way[1] - 1)
        )
        count = _MOST // sum(map(len, kinds[at : at + period]))  # periods in one chunk
        if times == 1 or count < 2:
            found.append(chunks[at])
            at += 1
            continue
        end = at + period * times
        found += [[*chain(*chunks[k : min(k + period * count, end)])] for k in range(at, end, period * count)]
        at = end
    return found


def _times(kinds: Sequence[Any], at: int, period: int) -> int:
    """How often the next chunks are repeated in a row; 1 if they are not."""
    first, times = kinds[at : at + period], 1
    while kinds[at + times * period : at + (times + 1) * period] == first:
        times += 1
    return times


def _marks(kernels: Sequence[Any]) -> set[Any]:
    """The pairs of successive ops at which a sequence is cut, so that its parts are short and often equal.

    A long part is cut at the pair that occurs about as often as it has chunks: once per period, if it is periodic.
    """
    marks: set[Any] = set()
    parts = [list(pairwise(kernels))]
    while parts:
        part = parts.pop()
        wanted = len(part) / _MEAN
        often = {pair: times for pair, times in Counter(part).items() if times > 1 and pair not in marks}
        if len(part) <= _MOST or not often:
            continue
        mark = min(often, key=lambda pair: abs(often[pair] - wanted))
        marks.add(mark)
        places = [at for at, pair in enumerate(part) if pair == mark]
        parts += [part[begin + 1 : end] for begin, end in pairwise([-1, *places, len(part)])]
    return marks


class Chunk:
    """One part of a sequence: its ops with local numbering, its inputs and its results.

    Attributes:
        reads: codes of the values it takes.
        gives: codes of its results.
        content: the records, reading ``~k`` for inputs; with the numbers of its results.
    """

    def __init__(self, steps: Sequence[Step], alive: frozenset[int], read_later: frozenset[int]) -> None:
        places: dict[int, int] = {}
        reads: dict[int, int] = {}
        records: list[Record] = []
        count = 0
        for (kernel, *codes), begin, _ in steps:
            records.append((kernel, *[places[c] if c in places else ~reads.setdefault(c, len(reads)) for c in codes]))
            for k in range(kernel.width):
                places[begin + k] = count + k
            count += kernel.width
        self.reads = tuple(reads)
        self.gives = tuple([code for code in places if code in alive or code in read_later])
        self.content = tuple(records), tuple([places[code] for code in self.gives])
        self.steps = Order(records, self.content[1]).steps

    def run(self, *arrays: Any) -> list[Any]:
        """Its results for its inputs, op by op."""
        return run_steps(self.steps, arrays, self.content[1])

    @in_x64
    def compile(self, leaves: Sequence[Spec]) -> Any:
        """The compiled function."""
        return jax.jit(self.run).lower(*[spec.aval for spec in leaves]).compile()


class Chunked:
    """A sequence as compiled chunks, for the outputs `alive`.

    Args:
        compiled: chunks compiled so far, by content and inputs; it is extended.
    """

    def __init__(
        self, records: Sequence[Record], leaves: Sequence[Spec], alive: Sequence[int], compiled: dict[Any, Any]
    ) -> None:
        self.alive = tuple(alive)
        specs: list[Any] = output_specs(records, leaves)
        held = frozenset(alive)
        later: set[int] = set()
        chunks: list[Chunk] = []
        for part in reversed(cut(Order(records, alive).steps)):
            chunks.append(Chunk(part, held, frozenset(later)))
            later.update(chunks[-1].reads)
        self.compilations, self._compiled = 0, compiled
        self.rest: list[tuple[Chunk, tuple[Spec, ...]]] | None = []  # parts that run op by op, and their inputs
        self.parts: list[tuple[Any, tuple[int, ...], tuple[int, ...], list[int]]] = []
        seen = set(alive)
        known = Counter([chunk.content for chunk in chunks])
        for chunk in chunks:
            ended = [code for code in chunk.reads if code >= 0 and code not in seen]
            seen.update(chunk.reads)
            given = tuple([specs[c] if c >= 0 else leaves[~c] for c in chunk.reads])
            key = chunk.content, given
            if known[chunk.content] > 1:
                self._compile(chunk, given)
            function = compiled.get(key) or chunk.run
            if key not in compiled:
                self.rest.append((chunk, given))
            self.parts.append((function, chunk.reads, chunk.gives, ended))
        self.parts.reverse()

    def compile_rest(self, rest: Sequence[tuple[Chunk, tuple[Spec, ...]]]) -> None:
        """Compile parts that occur once in the sequence, which pays off if the sequence itself is frequent.

        Sequences of other shapes share those without such shapes, as updates of parameters are.
        """
        made = {chunk.run: self._compile(chunk, given) for chunk, given in rest if len(chunk.steps) > 1}
        self.parts = [(made.get(function) or function, *others) for function, *others in self.parts]

    def _compile(self, chunk: Chunk, given: tuple[Spec, ...]) -> Any:
        """A chunk as a compiled function; None if that is not known, and the process ends."""
        key = chunk.content, given
        if key not in self._compiled and not background.ending():
            self._compiled[key] = uninterrupted(partial(chunk.compile, given))
            self.compilations += 1
        return self._compiled.get(key)

    @in_x64
    def run(self, arrays: Sequence[Any], alive: Sequence[int]) -> list[Any]:
        """The outputs `alive` for the leaves."""
        values: dict[int, Any] = {}
        for function, reads, gives, ended in self.parts:
            results = function(*[values[c] if c >= 0 else arrays[~c] for c in reads])
            for code, result in zip(gives, results, strict=True):
                values[code] = result
            for code in ended:
                del values[code]
        return [values[code] for code in alive]
