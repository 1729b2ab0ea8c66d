"""Pruning of descs: ``core.prune`` and ``core.prune_backward``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fluidjax.framework.descs import ProgramDescView
from fluidjax.framework.program import Program
from fluidjax.framework.prune import pruned, without_backward
from fluidjax.proto import framework_pb2 as pb


def prune_desc(
    desc: ProgramDescView, feeds: Iterable[str], targets: Iterable[Sequence[int]]
) -> tuple[ProgramDescView, dict[int, int]]:
    """The part of a program needed by some ops if variables are fed.

    Args:
        desc: the program.
        feeds: names of variables.
        targets: (block, index of the op in it) for each.

    Returns:
        (the pruned program, mapping from its blocks to the original ones).
    """
    program = _program_of(desc)
    ops = [program.blocks[block].ops[index] for block, index in targets]
    return _with_origin(pruned(program, list(feeds), ops))


def prune_backward_desc(desc: ProgramDescView) -> tuple[ProgramDescView, dict[int, int]]:
    """A program without its backward pass; results as for ``prune_desc``."""
    return _with_origin(without_backward(_program_of(desc)))


def _program_of(desc: ProgramDescView) -> Program:
    message = pb.ProgramDesc()
    message.CopyFrom(desc.proto)
    return Program._construct_from_desc(message)


def _with_origin(program: Program) -> tuple[ProgramDescView, dict[int, int]]:
    return program.desc, program._origin_blocks
