"""Which feeds say a size that an op needs."""

from __future__ import annotations

from lowering.errors import Need
from lowering.program import ProgramView
from lowering.registry import get_op


def read_for(program: ProgramView, needed: Need) -> set[str]:
    """The names that the op with a need reads, and those that these follow by sums and constant multiples."""
    if needed.asker is None or needed.op_index < 0:
        return set()
    found = set(needed.asker.input_names())
    for op in reversed(program.blocks[0].ops[: needed.op_index]):
        if get_op(op.type).linear and not found.isdisjoint(op.output_names()):
            found.update(op.input_names())
    return found
