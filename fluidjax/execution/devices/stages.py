"""What a program's sections hand on to each other, and which of them belong together.

``PipelineOptimizer`` makes ``2 k - 1`` sections of a program: ``k`` of the forward pass and the backward passes of all
but the last of them, backwards. So sections ``i`` and ``2 k - 2 - i`` use the same parameters: they are a stage.
Stages that share a variable which one of them writes, and all between them, are one stage here: it takes their sections
one after another, so that runs repeat bit for bit. (A clip by the global norm makes one stage of all.)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from lowering.engine.dataflow import MARKERS, flow
from lowering.program import EMPTY, ProgramView


class Section(NamedTuple):
    """A section's program, and what it has to do with the others.

    Attributes:
        program: the program's view.
        held: the variables it uses that persist between batches.
        kept: the part of ``held`` that it writes.
        reads: other variables that it reads before it writes them.
        writes: other variables that it writes.
    """

    program: ProgramView
    held: frozenset[str]
    kept: frozenset[str]
    reads: frozenset[str]
    writes: frozenset[str]

    @staticmethod
    def of(program: ProgramView) -> Section:
        """The section of a program."""
        block = program.blocks[0]
        needed, written = flow(program, [op for op in block.ops if op.type not in MARKERS])
        reads, writes = frozenset(needed) - {EMPTY}, frozenset(written) - {EMPTY}
        held = frozenset(n for n, var in block.vars.items() if var.persistable) & (reads | writes)
        return Section(program, held, held & writes, reads - held, writes - held)


class Passed(NamedTuple):
    """What goes into a section with a batch, and what goes on from it.

    Attributes:
        section: the section.
        feeds: names that are fed.
        fetches: names that later sections read, or the user asks for.
    """

    section: Section
    feeds: tuple[str, ...]
    fetches: tuple[str, ...]


def passed(sections: Sequence[Section], fed: Collection[str], fetches: Collection[str]) -> list[Passed]:
    """What each section, in order, is fed and fetches.

    Args:
        sections: in the order in which a batch goes through them.
        fed: what the first of them is given for all.
        fetches: what the user asks for.
    """
    given = set(fed)
    feeds = []
    for section in sections:
        feeds.append(tuple(sorted(section.reads & given)))
        given |= section.writes
    wanted, found = _asked_of(sections, fed, fetches), []
    later: set[str] = set()
    for at, section in reversed(list(enumerate(sections))):
        own = [name for name, where in wanted.items() if where == at]
        found.append(Passed(section, feeds[at], tuple(dict.fromkeys([*own, *sorted(section.writes & later)]))))
        later |= section.reads
    return found[::-1]


def _asked_of(sections: Sequence[Section], fed: Collection[str], fetches: Collection[str]) -> dict[str, int]:
    """For each name the section that a fetch comes from: the last one that writes it, or else one that holds it."""
    found = {}
    for name in fetches:
        writers = [i for i, s in enumerate(sections) if name in s.writes or name in s.kept]
        holders = [i for i, s in enumerate(sections) if name in s.held]
        if writers or name not in fed:
            found[name] = (writers or holders or [len(sections) - 1])[-1]
    return found


def stages(sections: Sequence[Section]) -> list[range]:
    """The stages, as ranges of sections of the forward pass."""
    last = len(sections) - 1
    users: dict[str, set[int]] = {}
    for at, section in enumerate(sections):
        for name in section.held:
            users.setdefault(name, set()).add(min(at, last - at))
    changing = {name for section in sections for name in section.kept}
    starts = set(range(last // 2 + 1))
    for name in changing & users.keys():
        starts -= set(range(min(users[name]) + 1, max(users[name]) + 1))
    ordered = sorted(starts)
    return [range(a, b) for a, b in zip(ordered, [*ordered[1:], last // 2 + 1], strict=True)]
