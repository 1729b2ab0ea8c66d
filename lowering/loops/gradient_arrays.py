"""What the gradient block of a loop does to the gradients of arrays, read off its ops before a step is traced.

The gradient of an array that the loop only reads has an element for each step, and only that step writes it: it is set
instead of added to what is there, and its buffer then holds the values of all steps in one place (see ``hoist``). The
gradient of an array that only the ops after the loop read is not written at all, so a read of it may be fused into
its users.

Invariant: as in ``facts``, what is stated is true of every step of every run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from lowering.engine.array_facts import ArrayFacts
from lowering.engine.dataflow import definitions, uses
from lowering.loops.facts import Affine, Follow
from lowering.program import BlockView, OpView, ProgramView


class Written(NamedTuple):
    """Step t writes ``value`` as element ``at`` of an array, and nothing else writes it."""

    value: str
    at: Affine


def find_array_facts(
    program: ProgramView,
    block: BlockView,
    gradients: Collection[str],
    blank: Collection[str],
    unflagged: Collection[str],
    ends: Mapping[str, Any],
) -> tuple[ArrayFacts, dict[str, Written]]:
    """The facts about the stacked gradient arrays ``gradients`` of a gradient block, and what is written once.

    Args:
        blank: those that are zeros before the loop.
        unflagged: those whose elements are taken at most once.
        ends: counters at the end of the forward step, where they are known (``Affine``).
    """
    touched: dict[str, list[OpView]] = {n: [] for n in gradients}
    for op in block.ops:
        for name in {*definitions(program, op), *uses(program, op), *op.input_names()}.intersection(touched):
            touched[name].append(op)
    fixed = {n for n, ops in touched.items() if all(o.type == "read_from_array" for o in ops)}
    written = _written_once(program, block, {n: touched[n] for n in blank if n in touched}, ends)
    return ArrayFacts(
        fixed=frozenset(fixed.intersection(unflagged)), unflagged=frozenset(unflagged), once=frozenset(written)
    ), written


def _written_once(
    program: ProgramView, block: BlockView, touched: Mapping[str, list[OpView]], ends: Mapping[str, Any]
) -> dict[str, Written]:
    once = {n: ops[0] for n, ops in touched.items() if len(ops) == 1 and ops[0].type == "write_to_array"}
    follow = Follow(program, block, {}, {n: v for n, v in ends.items() if isinstance(v, Affine)})
    found = {}
    for op in block.ops:
        name = next((n for n, write in once.items() if write is op), None)
        index = None if name is None else follow.value(op.inputs["I"][0])
        if name is not None and index is not None and index.stride:
            found[name] = Written(op.inputs["X"][0], index)
        follow.run(op)
    return found
