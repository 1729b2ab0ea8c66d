"""Sub-blocks as Fluid writes them into a Program, and the While loop built on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax.framework import Block, Program, Variable
from fluidjax.framework.around import block_reads_and_writes
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._control_flow.checks import VarType, require_condition

__all__ = ["While"]


class BlockGuard:
    """Enter a new sub-block of ``main_program``; on exit, return to its parent."""

    def __init__(self, main_program: Program):
        if not isinstance(main_program, Program):
            raise TypeError(
                f"BlockGuard takes a Program; received {type(main_program).__name__}. "
                "Pass fluid.default_main_program()."
            )
        self.main_program = main_program

    def __enter__(self) -> None:
        self.main_program._create_block()

    def __exit__(self, exc_type, exc_val, exc_tb) -> bool:
        self.main_program._rollback()
        return exc_type is None


class BlockGuardWithCompletion(BlockGuard):
    """A BlockGuard that appends the op owning the sub-block to the parent block before leaving."""

    def __init__(self, rnn: Any):
        super().__init__(rnn.helper.main_program)
        self.rnn = rnn

    def __enter__(self) -> None:
        self.rnn.status = type(self.rnn).IN_RNN_BLOCK
        return super().__enter__()

    def __exit__(self, exc_type, exc_val, exc_tb) -> bool:
        if exc_type is not None:
            super().__exit__(exc_type, exc_val, exc_tb)
            return False
        self.rnn.status = type(self.rnn).AFTER_RNN_BLOCK
        self.rnn._complete_op()
        return super().__exit__(exc_type, exc_val, exc_tb)


def known_to(block: Block, names: Sequence[str]) -> list[Variable]:
    """The variables among ``names`` that are visible from ``block``: its own or an enclosing block's."""
    found = (block._find_var_recursive(name) for name in names)
    return [var for var in found if var is not None]


class WhileGuard(BlockGuard):
    """Context manager for the block of a While loop."""

    def __init__(self, while_op: While):
        super().__init__(while_op.helper.main_program)
        self.while_op = while_op

    def __enter__(self) -> None:
        self.while_op.status = While.IN_WHILE_BLOCK
        return super().__enter__()

    def __exit__(self, exc_type, exc_val, exc_tb) -> bool:
        if exc_type is not None:
            super().__exit__(exc_type, exc_val, exc_tb)
            return False
        self.while_op.status = While.AFTER_WHILE_BLOCK
        self.while_op._complete()
        return super().__exit__(exc_type, exc_val, exc_tb)


class While:
    """Repeat a block for as long as a boolean Variable is true.

    The block must update the condition, or the loop never terminates::

        i = layers.fill_constant(shape=[1], dtype="int64", value=0)
        n = layers.fill_constant(shape=[1], dtype="int64", value=10)
        cond = layers.less_than(x=i, y=n)
        loop = layers.While(cond=cond)
        with loop.block():
            i = layers.increment(x=i, value=1, in_place=True)
            layers.less_than(x=i, y=n, cond=cond)

    Args:
        cond: bool Variable with one element.
        is_test: recorded in the op: true if no gradient will be needed.
        name: prefix for the names of the variables created.

    Raises:
        TypeError: cond is not a boolean scalar.
    """

    BEFORE_WHILE_BLOCK = 0
    IN_WHILE_BLOCK = 1
    AFTER_WHILE_BLOCK = 2

    def __init__(self, cond: Variable, is_test: bool = False, name: str | None = None):
        self.helper = LayerHelper("while", name=name)
        self.status = While.BEFORE_WHILE_BLOCK
        self.cond_var = require_condition(cond, "While")
        self.is_test = is_test

    def block(self) -> WhileGuard:
        """Context manager; layers written inside it belong to the loop body."""
        return WhileGuard(self)

    def _complete(self) -> None:
        program = self.helper.main_program
        body = program.current_block()
        parent = program.block(body.parent_idx)
        reads, writes = block_reads_and_writes(body, [self.cond_var.name])
        step_scopes = parent.create_var(type=VarType.STEP_SCOPES)
        parent.append_op(
            type="while",
            inputs={"X": [parent._var_recursive(name) for name in reads], "Condition": [self.cond_var]},
            outputs={"Out": known_to(parent, writes), "StepScopes": [step_scopes]},
            attrs={"sub_block": body, "is_test": self.is_test},
        )
