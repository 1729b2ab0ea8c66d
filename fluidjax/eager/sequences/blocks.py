"""Blocks: recorded ops that have occurred before, compiled as one.

At first, ops run one by one, through kernels of their own. When the same ops recur, the more often the longer the
sequence, a thread compiles them as one block while they still run one by one; from then on they are a single call.
Sequences that differ only in numbers (learning rates, inputs) are the same block; reading a value in between starts
another. A long sequence runs in chunks, which other sequences may have as well (see ``chunks``); these are compiled
first, and all as one block once its repetitions have taken as long as compiling may. Blocks are compiled quickly at
first (see ``tiers``). Sequences that differ only in shapes and numbers learn from each other: a length of sentences
that comes a second time is compiled if other lengths have shown that the net recurs.
"""

from __future__ import annotations

import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any
from weakref import WeakValueDictionary

import jax
import numpy as np

from fluidjax.base.flags import FLAGS
from fluidjax.base.garbage import wait_for
from fluidjax.eager.sequences.chunks import Chunked, Chunks
from fluidjax.eager.sequences.jobs import BETTER, Jobs, one_processor
from fluidjax.eager.sequences.order import Record, one_by_one, output_specs
from fluidjax.eager.sequences.packs import Piece, donatable, packs_of, replaced, taken, within_room
from fluidjax.eager.sequences.points import Point
from fluidjax.eager.sequences.tiers import Tiered, light
from fluidjax.eager.values import Spec
from fluidjax.execution.steps.buffers import joined
from lowering.engine.interrupts import uninterrupted
from lowering.engine.x64 import in_x64, with_x64

_KEPT, _OPS = 1024, 200_000  # sequences that are remembered, and their ops
_VARIANTS = 4  # blocks of one sequence, for different sets of outputs
_SMALL = 300  # sequences of up to this many ops are compiled as one when they recur
_QUICK = 3  # times as many if they are compiled quickly at first
_LENGTH, _PATIENCE = 64, 4  # a sequence comes twice, and once more for so many ops, but not more often, to be compiled
_OFTEN = 0.0002  # per op: in long ones that took this long, parts without repetitions are compiled too
_SECONDS = 0.004  # per op: longer ones, once repeating them has taken this long, which is half of what compiling takes


class Whole(Tiered):
    """A sequence as one compiled block.

    Attributes:
        alive: the outputs it returns.
        packs: leaves and outputs that share a buffer.
        singles, given: the other leaves, and the positions of the other outputs in ``alive``.
        donated: which of the singles donate their memory; all buffers of packs do.
        keeps: whether none does, though everything is laid out as if it did.
    """

    def __init__(
        self,
        records: Sequence[Record],
        leaves: Sequence[Spec],
        alive: Sequence[int],
        donated: Sequence[int],
        keeps: bool = False,
    ) -> None:
        super().__init__()
        self.alive, self.keeps = tuple(alive), keeps
        self.places = {code: k for k, code in enumerate(alive)}
        self.compilations = 1
        self.packs = packs_of(records, leaves, alive)
        packed = {leaf for pack in self.packs for leaf in pack.leaves}
        given = {code for pack in self.packs for code in pack.outputs}
        self.singles = [k for k in range(len(leaves)) if k not in packed]
        self.given = [k for k, code in enumerate(alive) if code not in given]
        free = [k for k in self.singles if k in donated]
        taken_over = {*within_room(records, leaves, [alive[k] for k in self.given], free)}
        self.donated = [n for n, k in enumerate(self.singles) if k in taken_over]
        self._order = self._order_of_results()
        uninterrupted(partial(self._compile, records, leaves))

    def _order_of_results(self) -> list[int]:
        """For each output, its number among the single results and the pieces."""
        given = [self.alive[k] for k in self.given] + [code for pack in self.packs for code in pack.outputs]
        numbers = {code: n for n, code in enumerate(given)}
        return [numbers[code] for code in self.alive]

    @in_x64
    def _compile(self, records: Sequence[Record], leaves: Sequence[Spec]) -> None:
        def block(*given: Any) -> list[Any]:
            arrays: list[Any] = [None] * len(leaves)
            for k, array in zip(self.singles, given, strict=False):
                arrays[k] = array
            for pack, buffer in zip(self.packs, given[len(self.singles) :], strict=True):
                for k, array in zip(pack.leaves, pack.split(buffer), strict=True):
                    arrays[k] = array
            results = one_by_one(records, arrays, self.alive)
            buffers = [joined([results[self.places[c]] for c in pack.outputs]) for pack in self.packs]
            return [results[k] for k in self.given] + buffers

        avals = [leaves[k].aval for k in self.singles]
        avals += [jax.ShapeDtypeStruct((p.size,), leaves[p.leaves[0]].aval.dtype) for p in self.packs]
        taken_over = [] if self.keeps else [*self.donated, *range(len(self.singles), len(avals))]
        types, specs = [kernel.type for kernel, *_ in records], output_specs(records, leaves)
        traced, quick = jax.jit(block, donate_argnums=taken_over).trace(*avals), light(types, specs, len(records))
        self._compile_first(traced, len(records), quick=quick, content=(types, specs, self.alive, taken_over))

    def run(self, arrays: list[Any], alive: tuple[int, ...]) -> list[Any]:
        """The outputs `alive`; the list must hold the only references to leaves that may be donated."""
        results = with_x64(self._run, arrays)
        return results if alive == self.alive else [results[self.places[code]] for code in alive]

    def _run(self, arrays: list[Any]) -> list[Any]:
        joins = [pack.join(arrays) for pack in self.packs]
        used = [pieces for _, pieces in joins]
        buffers = [buffer for buffer, _ in joins]
        singles = [*map(arrays.__getitem__, self.singles)]
        arrays.clear()
        for k in () if self.keeps else self.donated:
            if singles[k].__class__ is np.ndarray:  # of ops that ran one by one
                singles[k] = jax.device_put(singles[k], may_alias=False)
            elif sys.getrefcount(singles[k]) > 2:  # the list, and the call
                singles[k] = jax.numpy.array(taken(singles[k]), copy=True)
        if Piece in map(type, singles):
            singles = [*map(taken, singles)]
        found = self.call([*singles, *buffers])
        if not self.packs:
            return found
        results = found[: len(self.given)]
        for pack, buffer, pieces in zip(self.packs, found[len(self.given) :], used, strict=True):
            results += pack.pieces(buffer, pieces)
        return [*map(results.__getitem__, self._order)]


class Family:
    """What is known of the sequences that differ only in shapes and numbers.

    Attributes:
        seen: how often one of them has occurred.
        seconds: of CPU time, taken by repetitions.
        often: the outputs that were needed more than once.
    """

    def __init__(self) -> None:
        self.seen, self.seconds = 0, 0.0
        self.often: set[int] = set()
        self._once: set[int] = set()

    def see(self, alive: Sequence[int]) -> None:
        """One of them occurred, and these of its outputs were needed."""
        self.seen += 1
        self.often |= self._once.intersection(alive)
        self._once.update(alive)


class Entry:
    """What is known of one sequence of records.

    Attributes:
        family: the sequences that are like it.
        blocks: its compiled forms, the best first.
        last: when it occurred last, counted in runs.
        quick: whether a block of it is compiled quickly at first.
        asked: the outputs, whether as one block, and whether as one that keeps its arguments, that the compiling
            thread was given.
    """

    def __init__(self, family: Family, last: int, quick: bool) -> None:
        self.family, self.last, self.quick = family, last, quick
        self.seconds = 0.0  # of CPU time, taken by repetitions
        self.blocks: list[Whole | Chunked] = []
        self.asked: list[tuple[frozenset[int], bool, bool]] = []

    def fitting(self, alive: tuple[int, ...], keeps: bool = False) -> Whole | Chunked | None:
        """A block that returns all these outputs; ``keeps``: and its arguments, if one does."""
        found = None
        for block in self.blocks:
            if block.alive == alive or set(alive) <= set(block.alive):
                if not keeps or (block.__class__ is Whole and block.keeps):
                    return block
                found = found or block
        return found

    def wants(self, alive: tuple[int, ...], ops: int, keeps: bool = False) -> bool | None:
        """Whether to compile it, which occurs again, as one block (True) or in chunks (False); None for neither."""
        if self.family.seen < min(2 + ops // _LENGTH, _PATIENCE):
            return None
        whole = ops <= (_SMALL * _QUICK if self.quick else _SMALL) or self.seconds >= ops * _SECONDS
        alike = [(held, as_one) for held, as_one, kept in self.asked if kept >= keeps]
        if sum(as_one == whole for _, as_one in alike) >= _VARIANTS:
            return None
        return None if any(as_one >= whole and held >= set(alive) for held, as_one in alike) else whole


class Blocks:
    """The sequences seen so far, and their blocks.

    Attributes:
        compilations: the number of blocks and chunks compiled.
    """

    def __init__(self) -> None:
        self.compilations = 0
        self._entries: OrderedDict[Any, Entry] = OrderedDict()
        self._contents: WeakValueDictionary[Any, Entry] = WeakValueDictionary()
        self._families: WeakValueDictionary[Any, Family] = WeakValueDictionary()
        self._chunks = Chunks()
        self._jobs = Jobs()
        self._runs = self._ops = 0

    def run(self, point: Point, arrays: list[Any], alive: tuple[int, ...], *, keeps: bool = False) -> Sequence[Any]:
        """The values of the outputs `alive` of recorded ops. Takes ownership of `arrays`, the values of the leaves.

        Args:
            keeps: whether a block that keeps its arguments is wanted besides (see ``looks``).
        """
        if point.depth == 1 or FLAGS["FLAGS_cpu_deterministic"]:  # the numbers of ops run one by one, bit for bit
            return one_by_one(_records(point), list(map(taken, arrays)), alive)
        self._runs += 1
        entry = self._entries.get(point) or self._entry(point)
        if entry.last == self._runs:  # it has never occurred before
            entry.family.see(alive)
            return self._by_parts(point, list(map(taken, arrays)), alive)
        self._entries.move_to_end(point)
        entry.last = self._runs
        block = entry.fitting(alive, keeps)
        if block.__class__ is Whole and block.keeps >= keeps:
            return block.run(arrays, alive)
        entry.family.see(alive)
        whole = entry.wants(alive, point.depth, keeps)
        if whole is not None:
            self._ask(entry, whole, point, arrays, alive, keeps)
            block = entry.fitting(alive, keeps)
        if block.__class__ is Whole:
            return block.run(arrays, alive)
        begin = time.thread_time()  # what other processes take decides nothing
        results = self._by_parts(point, list(map(taken, arrays)), alive, entry, block)  # type: ignore[arg-type]
        taken_now = time.thread_time() - begin
        entry.seconds += taken_now
        entry.family.seconds += taken_now
        return results

    def _by_parts(
        self,
        point: Point,
        arrays: list[Any],
        alive: tuple[int, ...],
        entry: Entry | None = None,
        block: Chunked | None = None,
    ) -> Sequence[Any]:
        """The outputs `alive` of a sequence that is no block yet: op by op, and in chunks if it is long.

        ``entry, block``: what is known of a sequence that occurs again.
        """
        if block is None:
            if point.depth <= _SMALL:
                return one_by_one(_records(point), arrays, alive)
            wait_for(point.depth)
            block = self._chunks.cut(point, alive)
            if entry is not None:
                entry.blocks.append(block)
        elif block.rest and entry is not None and entry.family.seconds >= point.depth * _OFTEN:
            block.rest = False
            self._jobs.add(entry, "rest", partial(self._compile, block.compile, 1))
        results = block.run(arrays, alive)
        for chunk in block.due(self._runs):
            self._jobs.add(chunk, "chunk", partial(self._compile, chunk.compile))
        return results

    def _entry(self, point: Point) -> Entry:
        """Remember a sequence: as one that is known, if another tree (see ``points``) had one of equal content."""
        content = tuple([*chain.from_iterable([each.key() for each in point.way()])])  # one object, not one for each op
        entry = self._contents.get(content)
        if entry is None:
            alike = tuple([(p.kernel.type, p.codes, *[out is None for out in p.outs]) for p in point.way()])
            family = self._families.setdefault(alike, Family())
            entry = self._contents[content] = Entry(family, self._runs, _light(point))
        self._entries[point] = entry
        self._ops += point.depth
        while len(self._entries) > _KEPT or (self._ops > _OPS and len(self._entries) > 1):
            self._ops -= self._entries.popitem(last=False)[0].depth
        return entry

    def _ask(
        self, entry: Entry, whole: bool, point: Point, arrays: list[Any], alive: tuple[int, ...], keeps: bool
    ) -> None:
        """Let the thread compile a sequence, for all outputs that have been needed so far, of it or of others often."""
        alive = tuple(sorted(entry.family.often.union(alive)))
        for held, as_one, _ in entry.asked:
            alive = tuple(sorted({*alive, *held})) if as_one == whole else alive
        entry.asked.append((frozenset(alive), whole, keeps))
        records, leaves = _records(point), tuple([spec for each in point.way() for spec in each.fresh])
        if keeps:
            donated = tuple(replaced(records, alive))
        else:
            donated = donatable(records, arrays, leaves, alive) if whole else ()
        if whole:
            work = partial(self._compile_whole, entry, records, leaves, alive, donated, keeps)
        else:
            often = entry.family.seconds >= point.depth * _OFTEN
            work = partial(self._compile_chunks, entry, self._chunks.cut(point, alive), often)
        done = self._jobs.add(entry, "whole" if whole else "chunks", work)
        if whole and entry.quick and one_processor():
            done.exception()  # waits: the ops one by one would take what the thread needs, and take it for longer

    def _compile_whole(self, entry: Entry, *args: Any) -> None:
        made = Whole(*args)
        made.better = partial(self._jobs.add, made, BETTER, partial(self._compile, made.improve))
        entry.blocks.insert(0, made)
        self.compilations += made.compilations

    def _compile_chunks(self, entry: Entry, made: Chunked, often: bool) -> None:
        """Compile the chunks that come again within a sequence; if it comes ``often``, all of them."""
        self._compile(made.compile, 2)
        made.rest = not often
        entry.blocks.insert(0, made)
        if often:
            self._compile(made.compile, 1)

    def _compile(self, work: Callable[..., int], *args: int) -> None:
        self.compilations += work(*args)

    def whole(self, point: Point, alive: tuple[int, ...], *, keeps: bool = False) -> Whole | None:
        """The block of the sequence that ends at a point, if it is one block that returns these outputs.

        ``keeps``: and its arguments.
        """
        entry = self._entries.get(point)
        block = None if entry is None else entry.fitting(alive, keeps)
        return block if block.__class__ is Whole and block.keeps >= keeps else None

    def compilations_of(self, point: Point) -> int:
        """How often parts of the sequence that ends at a point were compiled."""
        entry = self._entries.get(point)
        return 0 if entry is None else sum(block.compilations for block in entry.blocks)

    def wait(self, *, well: bool = False) -> None:
        """Wait for the blocks under compilation; ``well``: until each is compiled well, as after a long training."""
        self._jobs.wait()
        for block in [b for e in self._entries.values() for b in e.blocks if well and b.__class__ is Whole]:
            self._compile(block.improve)


def _light(point: Point) -> bool:
    way = point.way()
    return light([each.kernel.type for each in way], chain.from_iterable([each.outs for each in way]), point.depth)


def _records(point: Point) -> list[Record]:
    return [each.record for each in point.way()]
