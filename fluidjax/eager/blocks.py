"""Blocks: recorded ops that were seen before, compiled as one.

The first time ops run one by one, through compiled kernels of their own. When the same ops come again, a thread
compiles them as one block while they still run one by one; from then on they are one call. What depends on numbers
alone (learning rates, inputs) is the same block; what is looked at in between begins another.
"""

from __future__ import annotations

import atexit
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax

from fluidjax.eager.kernels import Kernel
from fluidjax.eager.values import Spec

Record = tuple[Any, ...]  # (kernel, code of each input)
_KEPT = 256  # sequences that are remembered
_VARIANTS = 4  # blocks of one sequence, for different outputs held
_SMALL = 256  # sequences of up to so many ops are compiled when they repeat
_SECONDS = 0.00016  # longer ones, when their repetition took so long per op: a fiftieth of what compiling takes


class Variant:
    """One compiled block of a sequence.

    Attributes:
        alive: the outputs it gives.
        donated: the leaves whose memory it takes.
    """

    def __init__(self, alive: tuple[int, ...], donated: tuple[int, ...]) -> None:
        self.alive, self.donated = alive, donated
        self.places = {code: k for k, code in enumerate(alive)}
        self.compiled: Any = None
        self.failed = False

    def run(self, arrays: list[Any], alive: tuple[int, ...]) -> list[Any]:
        """The outputs `alive`; nobody but the list holds the leaves that may be donated."""
        for k in self.donated:
            if sys.getrefcount(arrays[k]) > 2:  # the list, and the call
                arrays[k] = jax.numpy.array(arrays[k], copy=True)
        results = self.compiled(*arrays)
        return results if alive == self.alive else [results[self.places[code]] for code in alive]


class Entry:
    """What is known of one sequence of records."""

    def __init__(self) -> None:
        self.seen = 0
        self.seconds = 0.0  # that repetitions took, op by op
        self.variants: list[Variant] = []

    def fitting(self, alive: tuple[int, ...]) -> Variant | None:
        """A variant that gives all these outputs."""
        for variant in self.variants:
            if variant.alive == alive or variant.places.keys() >= set(alive):
                return variant
        return None


class Blocks:
    """The sequences seen so far, and their blocks.

    Attributes:
        compilations: how many blocks were compiled.
    """

    def __init__(self) -> None:
        self.compilations = 0
        self._entries: OrderedDict[Any, Entry] = OrderedDict()
        self._pool: ThreadPoolExecutor | None = None
        self._jobs: list[Future[None]] = []

    def run(
        self, records: list[Record], arrays: list[Any], specs: tuple[Spec, ...], alive: tuple[int, ...]
    ) -> Sequence[Any]:
        """The values of the outputs `alive`. Takes the list `arrays` over: the values of the leaves."""
        if len(records) == 1:
            return _one_by_one(records, arrays, alive)
        key = tuple(records), specs
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Entry()
            if len(self._entries) > _KEPT:
                self._entries.popitem(last=False)
        else:
            self._entries.move_to_end(key)
            variant = entry.fitting(alive)
            if variant is None and self._is_worth_it(entry, len(records)):
                self._start(entry, records, arrays, specs, alive)
            elif variant is not None and variant.compiled is not None:
                with jax.enable_x64(True):
                    return variant.run(arrays, alive)
        entry.seen += 1
        begin = time.perf_counter()
        results = _one_by_one(records, arrays, alive)
        if entry.seen > 1:
            entry.seconds += time.perf_counter() - begin
        return results

    def _is_worth_it(self, entry: Entry, ops: int) -> bool:
        if len(entry.variants) >= _VARIANTS:
            return False
        return ops <= _SMALL or entry.seconds >= ops * _SECONDS

    def _start(
        self, entry: Entry, records: list[Record], arrays: list[Any], specs: tuple[Spec, ...], alive: tuple[int, ...]
    ) -> None:
        for variant in entry.variants:
            alive = tuple(sorted({*alive, *variant.alive}))
        variant = Variant(alive, _donatable(records, arrays, specs, alive))
        entry.variants.insert(0, variant)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "fluidjax-blocks")
            atexit.register(self._pool.shutdown, wait=True, cancel_futures=True)
        self._jobs = [job for job in self._jobs if not job.done()]
        self._jobs.append(self._pool.submit(self._compile, variant, list(records), specs))

    def _compile(self, variant: Variant, records: list[Record], specs: tuple[Spec, ...]) -> None:
        def block(*leaves: Any) -> list[Any]:
            return _one_by_one(records, list(leaves), variant.alive)

        with jax.enable_x64(True):
            jitted = jax.jit(block, donate_argnums=variant.donated)
            variant.compiled = jitted.lower(*[spec.aval for spec in specs]).compile()
        self.compilations += 1

    def wait(self) -> None:
        """Wait for the blocks that are being compiled."""
        for job in self._jobs:
            job.result()
        self._jobs = []


def _donatable(
    records: list[Record], arrays: list[Any], specs: tuple[Spec, ...], alive: tuple[int, ...]
) -> tuple[int, ...]:
    """The leaves that nobody holds any more, as far as there are outputs to take their memory."""
    room = Counter(_output_specs(records, specs, alive))
    found = []
    for k, spec in enumerate(specs):
        if room[spec] > 0 and isinstance(arrays[k], jax.Array) and sys.getrefcount(arrays[k]) <= 2:
            room[spec] -= 1
            found.append(k)
    return tuple(found)


def _output_specs(records: list[Record], specs: tuple[Spec, ...], alive: tuple[int, ...]) -> list[Spec]:
    outputs: list[Any] = []
    for kernel, *codes in records:
        ins = tuple([outputs[c] if c >= 0 else specs[~c] for c in codes[kernel.takes_key :]])
        outputs += kernel.known[ins]
    return [outputs[i] for i in alive]


def _one_by_one(records: list[Record], arrays: list[Any], alive: Sequence[int]) -> list[Any]:
    """Run records in order, those whose results are needed; each value goes when it was used for the last time."""
    counts = [r[0].width for r in records]
    begin = sum(counts)
    needed, last = bytearray(begin), {}
    for code in alive:
        needed[code] = 1
        last[code] = len(records)
    todo = []
    for at in range(len(records) - 1, -1, -1):
        record = records[at]
        begin -= counts[at]
        if 1 not in needed[begin : begin + counts[at]]:
            continue
        todo.append((at, begin))
        for code in record[1:]:
            if code >= 0 and not needed[code]:
                needed[code] = 1
                last[code] = at
    return _run_all(records, arrays, alive, reversed(todo), last)


def _run_all(records: list[Record], arrays: list[Any], alive: Sequence[int], todo: Any, last: dict[int, int]) -> Any:
    values: dict[int, Any] = {}
    with jax.enable_x64(True):
        for at, begin in todo:
            record = records[at]
            kernel: Kernel = record[0]
            ins = [values[c] if c >= 0 else arrays[~c] for c in record[1:]]
            for k, result in enumerate(kernel.run(ins)):
                values[begin + k] = result
            for code in record[1:]:
                if code >= 0 and last[code] == at:
                    values.pop(code, None)
    return [values[code] for code in alive]
