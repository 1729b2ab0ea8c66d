"""Outer variables used by a block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fluidjax.base.enums import VarType
from lowering.engine.dataflow import GUARDED

if TYPE_CHECKING:
    from fluidjax.framework.block import Block


def block_reads_and_writes(block: Block, written: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """The names that a block reads before writing them, and those it writes, each in order of appearance.

    Arrays local to the block are not reads, as they start empty. A nested block may not run: a variable from outside
    may keep its previous value then, so using it afterwards counts as reading it.

    Args:
        block: the sub-block.
        written: names to count as written from the start.
    """
    reads: dict[str, None] = {}
    writes: dict[str, None] = dict.fromkeys(written)
    anew: set[str] = set(written)
    for op in block.ops:
        for name in op.input_arg_names:
            if name not in anew:
                reads[name] = None
        writes.update(dict.fromkeys(op.output_arg_names))
        may_not_run = op.type in GUARDED
        anew.update(n for n in op.output_arg_names if not may_not_run or block.has_var(n))
    parent = block.program.block(block.parent_idx)
    outer = [name for name in reads if not _is_own_array(block, parent, name)]
    return outer, list(writes)


def _is_own_array(block: Block, parent: Block, name: str) -> bool:
    if parent._find_var_recursive(name) is not None or not block.has_var(name):
        return False
    return block.var(name).type == VarType.LOD_TENSOR_ARRAY
