"""Which gradient ops the random programs reach."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import fluidjax as fluid
import lowering
from fluidjax.testing.builder import Block, Integer
from fluidjax.testing.programs import blocks, grow
from fluidjax.testing.run import bind, no_grad
from fluidjax.testing.table_blocks import block_cases, case_block


def reached() -> set[str]:
    """The types of the gradient ops in the backward passes of all blocks of ``programs`` and ``case_programs``."""
    return {op for types in (*_of_cases(), *_of_blocks(False), *_of_blocks(True)) for op in types}


def _of_cases() -> Iterator[set[str]]:
    """The gradient ops of each case; one program stands for what brings matrices to them and back."""
    yield backward_ops(case_block(block_cases()[0]))
    for case in block_cases():
        bound = bind(case, np.random.default_rng(0))
        yield {spec.type for spec in lowering.grad_ops(bound.op, no_grad(bound))[0]}


def _of_blocks(ragged: bool) -> Iterator[set[str]]:
    for block in blocks(ragged, control_flow=True, sequences=ragged).values():
        for integer in (_first, _last):
            yield backward_ops(block, integer, ragged)


def _first(low: int, high: int) -> int:
    return low


def _last(low: int, high: int) -> int:
    return high


def backward_ops(block: Block, integer: Integer = _first, ragged: bool = False) -> set[str]:
    """The types of the gradient ops of a program of one block, those of its sub-blocks among them."""
    sample = grow(integer, [block], ragged)
    with fluid.program_guard(sample.program, fluid.Program()):
        fluid.backward.append_backward(sample.loss)
    whole = sample.program
    ops = [op for b in whole.blocks for op in b.ops if b.forward_block_idx >= 0 or op.attr("op_role") & 1]
    return {op.type for op in ops}
