"""Hypothesis strategies for whole random programs, to be fed to ``fluid.check_grad``.

    from hypothesis import given
    from fluidjax.testing.programs import programs

    @given(programs())
    def test_gradients(sample):
        sample.check_grad()

All values that steps are drawn over are matrices of WIDTH columns, so that runs share compiled ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

import fluidjax as fluid
from fluidjax.gradcheck import GradientReport, check_grad
from fluidjax.testing import dense_blocks, flow_blocks, ragged_blocks
from fluidjax.testing.backward import check_backward
from fluidjax.testing.builder import BATCH, WIDTH, Block, Builder, Integer
from fluidjax.testing.table_blocks import block_cases, case_block

__all__ = ["BATCH", "WIDTH", "Sample", "blocks", "case_programs", "grow", "programs"]

Draw = Callable[[st.SearchStrategy], Any]


class Sample:
    """A random program with everything a run needs.

    Attributes:
        program: forward ops only.
        loss: its scalar result, of shape [1].
        feed: values of its data variables.
        scope: values of its parameters.
        parameters: their names.
        constants: names of the persistable values in the scope that nothing trains.
    """

    def __init__(self, program: Any, loss: Any, builder: Builder):
        self.program = program
        self.loss = loss
        self.scope = builder.scope
        self.parameters = [p.name for p in program.all_parameters()]
        self.constants = builder.constants
        self.feed = builder.feed(builder.rng)
        self._builder = builder

    def batch(self, rng: np.random.Generator, lengths: Sequence[int] | None = None) -> dict[str, Any]:
        """Another feed; with sequences of these lengths where the program takes sequences."""
        return self._builder.feed(rng, lengths)

    def check_grad(self, **options: Any) -> GradientReport:
        """``fluid.check_grad`` of this program."""
        return check_grad(self.loss, self.feed, scope=self.scope, parameter_list=self.parameters, **options)

    def check_backward(self) -> set[str]:
        """Fluid's backward pass as a whole, in one compilation; the types of the gradient ops that ran."""
        names = [*self.parameters, *self.constants]
        held = {name: np.array(self.scope.var(name).get_tensor()) for name in names}
        return check_backward(self.loss, self.feed | held, self.parameters, np.random.default_rng(0))

    def __repr__(self) -> str:
        ops = [f"{op.type}({', '.join(op.input_arg_names)})" for op in self.program.global_block().ops]
        return f"Sample({'; '.join(ops)})"


def _loss(pool: list[Any]) -> Any:
    """The mean of the squares of every value that nothing else used, and of the last one."""
    ops = fluid.default_main_program().global_block().ops
    used = {n for op in ops for n in op.input_arg_names}
    ends = [v for v in pool if v.name not in used] or [pool[-1]]
    total = fluid.layers.sums([fluid.layers.square(v) for v in ends]) if len(ends) > 1 else ends[0]
    return fluid.layers.mean(fluid.layers.square(total))


def grow(integer: Integer, steps: Iterable[Block], ragged: bool = False) -> Sample:
    """A program of some blocks, each applied to one of the values before it; ``integer`` makes the choices."""
    program, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(program, startup), fluid.unique_name.guard():
        builder = Builder(integer, ragged)
        builder.pool.append(dense_blocks.weight(builder, builder.pool[0]))
        for block in steps:
            builder.apply(block)
        loss = _loss(builder.pool)
        builder.fill_parameters()
        return Sample(program, loss, builder)


def blocks(ragged: bool = False, control_flow: bool = False, sequences: bool = False) -> dict[str, Block]:
    """The blocks that ``programs`` draws from, by name."""
    found = dict(dense_blocks.BLOCKS)
    if sequences:
        found |= ragged_blocks.BLOCKS
    if control_flow:
        found |= flow_blocks.BLOCKS if ragged else flow_blocks.BLOCKS | flow_blocks.DENSE_BLOCKS
    return found


def _integer(draw: Draw) -> Integer:
    return lambda low, high: draw(st.integers(low, high))


@st.composite
def programs(
    draw: Draw,
    max_ops: int = 6,
    ragged: bool = False,
    control_flow: bool = False,
    sequences: bool = False,
    leave_out: Sequence[str] = (),
) -> Sample:
    """A random program of at most ``max_ops`` steps, starting from one data variable.

    Args:
        max_ops: upper bound of the number of random steps (a step is one to a dozen ops).
        ragged: feed sequences (LoD), empty ones among them.
        control_flow: draw branches, loops and, where rows are fixed in number, recurrences too.
        sequences: draw ops that know of sequences too; for ragged programs.
        leave_out: names of blocks that are not drawn.
    """
    drawn = [block for name, block in blocks(ragged, control_flow, sequences).items() if name not in leave_out]
    return grow(_integer(draw), draw(st.lists(st.sampled_from(drawn), min_size=1, max_size=max_ops)), ragged)


@st.composite
def case_programs(draw: Draw, max_ops: int = 3) -> Sample:
    """A chain of at most ``max_ops`` cases of the op table: most ops that have gradients."""
    chain = draw(st.lists(st.sampled_from(block_cases()), min_size=1, max_size=max_ops))
    return grow(_integer(draw), map(case_block, chain))
