"""Moving host ops together, so that they cut a program into fewer parts.

Ops that request values from other processes may run as early as possible, ops that only notify them as late as
possible. An op passes others that neither read nor write what it writes, nor write what it reads; no host op, and no
op with blocks, passes another.
"""

from __future__ import annotations

from collections.abc import Sequence

from lowering.engine.dataflow import definitions, sub_blocks, uses
from lowering.program import OpView, ProgramView
from lowering.registry import get_op


def gathered(program: ProgramView, ops: Sequence[OpView]) -> list[OpView]:
    """The ops in an equivalent order, with those selected by ``moves`` as early or as late as possible."""
    moves = {get_op(op.type).moves for op in ops}
    found = list(ops)
    if "late" in moves:
        found = _delayed(program, found, "late")
    if "early" in moves:
        found = _delayed(program, found[::-1], "early")[::-1]
    return found


def _delayed(program: ProgramView, ops: Sequence[OpView], kind: str) -> list[OpView]:
    """Move ops in one direction past all they can pass; their own order is preserved."""
    found: list[OpView] = []
    waiting: list[OpView] = []
    read: set[str] = set()
    written: set[str] = set()
    for op in ops:
        own = set(uses(program, op)), set(definitions(program, op))
        if get_op(op.type).moves == kind:
            waiting.append(op)
            read |= own[0]
            written |= own[1]
            continue
        if waiting and (_stays(op) or own[0] & written or own[1] & (read | written)):
            found += waiting
            waiting, read, written = [], set(), set()
        found.append(op)
    return found + waiting


def _stays(op: OpView) -> bool:
    return get_op(op.type).kind == "host" or bool(sub_blocks(op))
