"""How to run a block: what it reads from outside and leaves there, and where host ops cut it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from lowering.engine.dataflow import MARKERS, Use, Uses, flow
from lowering.engine.gather import gathered
from lowering.engine.remote import with_remote_rows
from lowering.program import OpView, ProgramView
from lowering.registry import get_op


class Segment(NamedTuple):
    """A maximal run of ops that go into one jit, or of host ops.

    ``reads`` are names taken from outside, ``writes`` those that are live afterwards: needed by later segments, fetches
    or the scope. ``forms`` are the reads of which only shape and dtype are used.
    """

    ops: tuple[OpView, ...]
    host: bool
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    forms: frozenset[str] = frozenset()


class Plan(NamedTuple):
    """How to run one block.

    Attributes:
        segments: in order.
        reads: names that the block reads before it writes them (from feeds or the scope).
        keeps: names to write back to the scope.
        random: whether some op draws random numbers.
        ranks: whether any op ranks sequences by length.
        constant: whether no op reads any variable, as in startup programs.
    """

    segments: tuple[Segment, ...]
    reads: tuple[str, ...]
    keeps: tuple[str, ...]
    random: bool
    ranks: bool
    constant: bool


def make_plan(
    program: ProgramView,
    fetches: Collection[str],
    *,
    block_idx: int = 0,
    held: Collection[str] = (),
    outside: Collection[int] = (),
    ample: bool = False,
) -> Plan:
    """Plan a run of a block.

    Args:
        fetches: names needed afterwards.
        held: names the scope already holds; undeclared variables among them are written back.
        outside: indices of ops that must run outside jit, besides the host ops.
        ample: whether host ops that have a form with room for all results belong into jit (see ``Rule.with_room``).
    """
    block = program.blocks[block_idx]
    ops = gathered(program, with_remote_rows(runnable(block.ops)))
    runs = list(_runs(ops, set(outside), ample))
    flows = [flow(program, run) for _, run in runs]
    reads, writes = flows[0] if len(runs) == 1 else flow(program, ops)
    keeps = tuple(n for n in writes if _kept(program, block_idx, n, held))
    needed = [*fetches, *keeps]
    types = {op.type for b in program.blocks for op in b.ops}
    return Plan(
        segments=tuple(_segments(runs, flows, needed)),
        reads=(*reads, *(n for n in dict.fromkeys(fetches) if n not in reads and n not in writes)),
        keeps=keeps,
        random=any("key" in get_op(t).special for t in types - MARKERS),
        ranks="lod_rank_table" in types,
        constant=bool(ops) and not reads and all(not op.input_names() for op in ops),
    )


def _kept(program: ProgramView, block_idx: int, name: str, held: Collection[str]) -> bool:
    var = program.find_var(block_idx, name)
    return name in held if var is None else var.persistable


def _runs(ops: list[OpView], outside: set[int], ample: bool = False) -> Iterator[tuple[bool, list[OpView]]]:
    """(whether they run on the host, the ops) of each segment."""

    def host(op: OpView) -> bool:
        definition = get_op(op.type)
        return op.index in outside or (definition.on_host if ample else definition.kind == "host")

    for on_host, run in groupby(ops, host):
        yield on_host, list(run)


def runnable(ops: Iterable[OpView]) -> list[OpView]:
    """The ops without those that only mark where values enter and leave, and without those that are switched off."""
    return [op for op in ops if op.type not in MARKERS and not op.attrs.get("do_not_run")]


def cut(program: ProgramView, ops: list[OpView], needed: list[str], outside: set[int]) -> list[Segment]:
    """Divide ops into segments at host ops and those with an index in `outside`; `needed`: names needed at the end."""
    runs = list(_runs(ops, outside))
    return _segments(runs, [flow(program, run) for _, run in runs], needed)


def _segments(
    runs: list[tuple[bool, list[OpView]]], flows: list[tuple[Uses, list[str]]], needed: list[str]
) -> list[Segment]:
    later = set(needed)  # names that are live after each run, from the last run to the first
    found = []
    for (host, run), (reads, writes) in zip(reversed(runs), reversed(flows), strict=True):
        live = tuple(n for n in writes if n in later)
        forms = frozenset(n for n, use in reads.items() if use == Use.SHAPE and n not in live)
        found.append(Segment(tuple(run), host, tuple(reads), live, forms))
        later |= set(reads)
    return found[::-1]
