"""Tentative construction of ops: the programs are restored afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fluidjax import unique_name
from fluidjax.framework import Program, default_main_program, default_startup_program

_depth = 0


def on_trial() -> bool:
    """Whether ops created now will be discarded."""
    return _depth > 0


@contextlib.contextmanager
def trial(block: bool = True) -> Iterator[None]:
    """Discard everything written to the default programs inside; it goes to a new block unless `block` is False."""
    global _depth
    marks = [_Mark(default_main_program()), _Mark(default_startup_program())]
    counts = dict(unique_name.generator.ids)
    _depth += 1
    if block:
        default_main_program()._create_block()
    try:
        yield
    finally:
        _depth -= 1
        for mark in marks:
            mark.restore()
        unique_name.generator.ids.clear()
        unique_name.generator.ids.update(counts)


class _Mark:
    """A snapshot of a program's contents."""

    def __init__(self, program: Program):
        self.program = program
        self.current = program.current_block_idx
        self.sizes = [(len(block.ops), len(block.vars)) for block in program.blocks]

    def restore(self) -> None:
        """Remove everything added later."""
        program = self.program
        program.current_block_idx = self.current
        del program.proto.blocks[len(self.sizes) :]
        del program.blocks[len(self.sizes) :]
        for block, (ops, variables) in zip(program.blocks, self.sizes, strict=True):
            for name in list(block.vars)[variables:]:
                del block.vars[name]
            del block.proto.vars[variables:]
            del block.proto.ops[ops:]
            del block.ops[ops:]
            block._op_changed()
