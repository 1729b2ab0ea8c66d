"""Blocks: recorded ops that have occurred before, compiled as one.

At first, ops run one by one, through kernels of their own. When the same ops recur, the more often the longer the
sequence, a thread compiles them as one block while they still run one by one; from then on they are a single call.
Sequences that differ only in numbers (learning rates, inputs) are the same block; reading a value in between starts
another. A long sequence runs in chunks, which other sequences may have as well (see ``chunks``); these are compiled
first, and all as one block once its repetitions have taken as long as compiling may. Blocks are compiled quickly at
first (see ``tiers``). Sequences that differ only in shapes and numbers learn from each other: a length of sentences
that comes a second time is compiled if other lengths have shown that the net recurs; where ops and attributes are the
same, one block with room serves all lengths (see ``roomy``).
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any
from weakref import WeakValueDictionary

from fluidjax.base.flags import FLAGS
from fluidjax.base.garbage import wait_for
from fluidjax.eager.sequences.chunks import Chunked, Chunks
from fluidjax.eager.sequences.guests import PRICE, Guest
from fluidjax.eager.sequences.jobs import BETTER, Jobs, one_processor
from fluidjax.eager.sequences.kinds import Kind, leaves_of
from fluidjax.eager.sequences.order import Record, one_by_one
from fluidjax.eager.sequences.packs import donatable, replaced, taken
from fluidjax.eager.sequences.points import Point
from fluidjax.eager.sequences.roomy import Roomy
from fluidjax.eager.sequences.tiers import light
from fluidjax.eager.sequences.whole import Whole
from fluidjax.execution.executables.executable import default_device
from lowering.errors import LoweringError, Need

_KEPT, _OPS = 1024, 200_000  # sequences that are remembered, and their ops
_VARIANTS = 4  # blocks of one sequence, for different sets of outputs
_SMALL = 300  # sequences of up to this many ops are compiled as one when they recur
_QUICK = 3  # times as many if they are compiled quickly at first
_WELL = 3  # times as long as compiling quickly takes compiling well
_LENGTH, _PATIENCE = 64, 4  # a sequence comes twice, and once more for so many ops, but not more often, to be compiled
_OFTEN = 0.0002  # per op: in long ones that took this long, parts without repetitions are compiled too
_SECONDS = 0.004  # per op: longer ones, once repeating them has taken this long, which is half of what compiling takes


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
        guest: it as one of those that differ in sizes alone, which can share a block (see ``roomy``).
    """

    def __init__(self, family: Family, guest: Guest, last: int, quick: bool) -> None:
        self.family, self.guest, self.last, self.quick = family, guest, last, quick
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
        whole = self.short(ops) or self.seconds >= ops * _SECONDS
        alike = [(held, as_one) for held, as_one, kept in self.asked if kept >= keeps]
        if sum(as_one == whole for _, as_one in alike) >= _VARIANTS:
            return None
        return None if any(as_one >= whole and held >= set(alive) for held, as_one in alike) else whole

    def short(self, ops: int) -> bool:
        """Whether so many ops are compiled as one when they recur."""
        return ops <= (_SMALL * _QUICK if self.quick else _SMALL)


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
        self._kinds: WeakValueDictionary[Any, Kind] = WeakValueDictionary()
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
        first = entry.last == self._runs  # it has never occurred before
        block = None
        if not first:
            self._entries.move_to_end(point)
            entry.last = self._runs
            block = entry.fitting(alive, keeps)
            if block.__class__ is Whole and block.keeps >= keeps:
                return block.run(arrays, alive)
        if block.__class__ is not Whole and (served := self._served(entry, point, arrays, alive, first, keeps)):
            return served[0].run_sizes(arrays, alive, served[1])
        if first:
            entry.family.see(alive)
            begin = time.process_time()  # XLA compiles in threads of its own
            results = self._by_parts(point, list(map(taken, arrays)), alive)
            entry.guest.kind.pay(time.process_time() - begin)
            return results
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

    def _served(
        self, entry: Entry, point: Point, arrays: list[Any], alive: tuple[int, ...], first: bool, keeps: bool
    ) -> tuple[Roomy, Any] | None:
        """A block with room that serves the sequence, and the sizes to tell it.

        Where there is none yet, it is compiled at once if sequences of new sizes have taken as long op by op, and
        otherwise when a block of the sequence's own would be.
        """
        guest, kind = entry.guest, entry.guest.kind
        found = guest.room(alive) if kind.blocks else None
        if found is None and kind.open and entry.short(point.depth) and default_device().platform == "cpu":
            dear = first and kind.dear(PRICE * point.depth * (1 if entry.quick else _WELL))
            if dear or (not first and entry.wants(alive, point.depth)):
                self._ask_room(entry, point, arrays, alive, wait=dear)
                found = guest.room(alive)
        if found is not None:
            entry.family.see(alive)
            if guest.pays(*found, point.depth) and entry.wants(alive, point.depth, keeps):
                self._ask(entry, True, point, arrays, alive, keeps)
        return found

    def _ask_room(self, entry: Entry, point: Point, arrays: list[Any], alive: tuple[int, ...], *, wait: bool) -> None:
        """Let the thread compile a block with room for a sequence and those that differ from it in sizes."""
        kind, way = entry.guest.kind, point.way()
        layout = kind.layout(entry.guest.leaves)
        if layout is None:
            kind.refused = True
            return
        kind.asked, kind.pending, kind.last = kind.asked + 1, True, self._runs
        alive = tuple(sorted(entry.family.often.union(alive)))
        records = [each.record for each in way]
        donated = donatable(records, arrays, layout.leaves, alive)
        done = self._jobs.add(kind, "room", partial(self._compile_room, kind, records, layout, alive, donated))
        if wait or one_processor():
            done.exception()

    def _compile_room(self, kind: Kind, *args: Any) -> None:
        try:
            made = Roomy(*args)
        except (Need, LoweringError):
            kind.refused = True
            return
        finally:
            kind.pending = False
        made.better = partial(self._jobs.add, made, BETTER, partial(self._compile, made.improve))
        kind.blocks.insert(0, made)
        self.compilations += made.compilations

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
            guest = self._guest(point)
            entry = self._contents[content] = Entry(family, guest, self._runs, _light(point))
        self._entries[point] = entry
        self._ops += point.depth
        while len(self._entries) > _KEPT or (self._ops > _OPS and len(self._entries) > 1):
            self._ops -= self._entries.popitem(last=False)[0].depth
        return entry

    def _guest(self, point: Point) -> Guest:
        """A sequence as one of its kind; one that is never compiled as one block is alone."""
        if point.depth > _SMALL * _QUICK:
            return Guest(Kind(), ())
        way = point.way()
        kind = self._kinds.setdefault(tuple([*chain.from_iterable([(p.kernel, *p.codes) for p in way])]), Kind())
        kind.see(way)
        return Guest(kind, leaves_of(way))

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
