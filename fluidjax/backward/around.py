"""What loops and branches read from surrounding blocks, in programs written elsewhere.

Paddle treats whatever a nested block writes as written, although the block may not run: variables that the outer block
reads after it are then missing from the inputs of its op, and no gradient would reach their previous values. Programs
built here name these inputs; loaded programs have them added before they are differentiated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluidjax.backward.names import ROLE_BACKWARD
from fluidjax.backward.paths import sub_block_of
from fluidjax.framework.around import block_reads_and_writes
from lowering.engine.dataflow import GUARDED

if TYPE_CHECKING:
    from fluidjax.framework import Block, Operator, Program

_READ = {"while": "X", "conditional_block": "Input"}


def name_what_blocks_read(program: Program) -> None:
    """Complete the inputs of the loops and branches of ``program``, innermost blocks first."""
    _complete(program.global_block())


def _complete(block: Block) -> None:
    for op in block.ops:
        index = sub_block_of(op)
        if index is None or (op.has_attr("op_role") and int(op.attr("op_role")) & ROLE_BACKWARD):
            continue
        inner = block.program.block(index)
        _complete(inner)
        if op.type in GUARDED:
            _name_reads(block, op, inner)


def _name_reads(block: Block, op: Operator, inner: Block) -> None:
    """Only what a block inside ``inner`` may have written is added: Paddle omits other names on purpose."""
    maybe = {n for o in inner.ops if o.type in GUARDED for n in o.output_arg_names}
    slot, known = _READ[op.type], set(op.input_arg_names)
    written = op.input("Condition") if op.type == "while" else ()
    reads, _ = block_reads_and_writes(inner, written)
    missing = [n for n in reads if n in maybe and n not in known and block._find_var_recursive(n) is not None]
    if missing:
        op.desc.set_input(slot, [*op.input(slot), *missing])
