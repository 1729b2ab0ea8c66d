"""What a block needs and leaves: the names it reads before writing, writes, and where host ops cut it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from lowering.program import EMPTY, OpView, ProgramView
from lowering.registry import get_op

# Ops that only mark where values enter and leave; the executor does their work.
_MARKERS = frozenset({"feed", "fetch", "read", "create_py_reader", "create_double_buffer_reader"})

# Ops that go on from what the variable of an output slot holds: op type -> slot.
_CONTINUED = {"fake_quantize_range_abs_max": "OutScales"}


@dataclass(frozen=True)
class Segment:
    """A maximal run of ops that go into one jit, or one host op.

    ``reads`` are names taken from outside, ``writes`` those that are live afterwards: later segments, fetches or the
    scope need them.
    """

    ops: tuple[OpView, ...]
    host: bool
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """How to run one block.

    Attributes:
        segments: in order.
        reads: names that the block reads before it writes them (from feeds or the scope).
        keeps: names to write back to the scope.
        random: whether some op draws random numbers.
        ranks: whether some op ranks sequences by length.
        constant: whether no op reads any variable, as in startup programs.
    """

    segments: tuple[Segment, ...]
    reads: tuple[str, ...]
    keeps: tuple[str, ...]
    random: bool
    ranks: bool
    constant: bool


def sub_blocks(op: OpView) -> list[int]:
    """Indices of the blocks that an op runs."""
    found: list[int] = []
    for name, spec in get_op(op.type).attrs.items():
        value = op.attrs.get(name)
        if value is None:
            continue
        if spec.type == "BLOCK":
            found.append(int(value))
        elif spec.type == "BLOCKS":
            found += [int(v) for v in value]
    return found


def reads_of(program: ProgramView, op: OpView) -> list[str]:
    """Names that an op reads, those that its sub-blocks read from outside included.

    What a sub-block writes outside counts as read: where the block does not run, the old value stays.
    """
    names = [n for names in op.inputs.values() for n in names if n != EMPTY]
    if op.type in _CONTINUED:
        names += [n for n in op.outputs.get(_CONTINUED[op.type]) or () if n != EMPTY]
    inner = sub_blocks(op)
    for idx in inner:
        names += _outer_reads(program, idx)
    return names + writes_of(program, op) if inner else names


def writes_of(program: ProgramView, op: OpView) -> list[str]:
    """Names that an op writes, updated inputs and outer variables written inside its sub-blocks included."""
    names = op.output_names() + [op.inputs[slot][0] for slot in get_op(op.type).updates]
    for idx in sub_blocks(op):
        own = program.blocks[idx].vars
        for inner in program.blocks[idx].ops:
            names += [n for n in writes_of(program, inner) if n not in own]
    return names


def _outer_reads(program: ProgramView, idx: int) -> list[str]:
    block = program.blocks[idx]
    written: set[str] = set()
    reads: list[str] = []
    for op in block.ops:
        reads += [n for n in reads_of(program, op) if n not in written and n not in block.vars]
        written.update(writes_of(program, op))
    return reads


def make_plan(
    program: ProgramView,
    fetches: Collection[str],
    *,
    block_idx: int = 0,
    held: Collection[str] = (),
    outside: Collection[int] = (),
) -> Plan:
    """Plan a run of a block.

    Args:
        fetches: names wanted afterwards.
        held: names the scope already holds; undeclared variables among them are written back.
        outside: indices of ops that must run outside jit, besides the host ops.
    """
    block = program.blocks[block_idx]
    ops = [op for op in block.ops if op.type not in _MARKERS]
    reads, writes = _flow(program, ops)
    keeps = tuple(n for n in writes if _kept(program, block_idx, n, held))
    needed = [*fetches, *keeps]
    types = {op.type for b in program.blocks for op in b.ops}
    return Plan(
        segments=tuple(_segments(program, ops, needed, set(outside))),
        reads=(*reads, *(n for n in dict.fromkeys(fetches) if n not in reads and n not in writes)),
        keeps=keeps,
        random=any("key" in get_op(t).special for t in types - _MARKERS),
        ranks="lod_rank_table" in types,
        constant=bool(ops) and not reads and all(not op.input_names() for op in ops),
    )


def _kept(program: ProgramView, block_idx: int, name: str, held: Collection[str]) -> bool:
    var = program.find_var(block_idx, name)
    return name in held if var is None else var.persistable


def _flow(program: ProgramView, ops: list[OpView]) -> tuple[dict[str, None], dict[str, None]]:
    """(names read before written, names written), each in order of first appearance."""
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    for op in ops:
        reads.update((n, None) for n in reads_of(program, op) if n not in writes)
        writes.update((n, None) for n in writes_of(program, op))
    return reads, writes


def _runs(ops: list[OpView], outside: set[int]) -> Iterator[tuple[bool, list[OpView]]]:
    run: list[OpView] = []
    for op in ops:
        if op.index in outside or get_op(op.type).kind == "host":
            if run:
                yield False, run
            yield True, [op]
            run = []
        else:
            run.append(op)
    if run:
        yield False, run


def _segments(program: ProgramView, ops: list[OpView], needed: list[str], outside: set[int]) -> list[Segment]:
    later = set(needed)  # names that are live after the run: from the last run to the first
    found = []
    for host, run in reversed(list(_runs(ops, outside))):
        reads, writes = _flow(program, run)
        found.append(Segment(tuple(run), host, tuple(reads), tuple(n for n in writes if n in later)))
        later |= set(reads)
    return found[::-1]
