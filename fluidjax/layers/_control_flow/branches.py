"""Branches: Switch over conditions, IfElse over rows, and the conditional block both build on."""

from __future__ import annotations

from collections.abc import Sequence

from fluidjax import unique_name
from fluidjax.backward.branch import append_branch_gradient
from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Block, Operator, Variable
from fluidjax.framework.around import block_reads_and_writes
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._control_flow.blocks import BlockGuard, known_to
from fluidjax.layers._control_flow.checks import VarType, require_condition, require_variable
from fluidjax.layers._control_flow.ragged import merge_lod_tensor
from fluidjax.layers.nn import logical_and, logical_not
from fluidjax.layers.tensor import assign


class ConditionalBlockGuard(BlockGuard):
    """Context manager for the block of a ConditionalBlock."""

    def __init__(self, block: ConditionalBlock):
        if not isinstance(block, ConditionalBlock):
            raise TypeError(
                f"ConditionalBlockGuard takes a ConditionalBlock; received {type(block).__name__}. "
                "Use ConditionalBlock(...).block()."
            )
        super().__init__(block.helper.main_program)
        self.block = block

    def __exit__(self, exc_type, exc_val, exc_tb) -> bool:
        if exc_type is None:
            self.block.complete()
        return super().__exit__(exc_type, exc_val, exc_tb)


class ConditionalBlock:
    """A block that runs only when its condition holds.

    Args:
        inputs: the condition Variables.
        is_scalar_condition: the condition is a boolean scalar; otherwise the block runs if no input is empty.
        name: prefix for the names of the variables created.
    """

    def __init__(self, inputs: Sequence[Variable], is_scalar_condition: bool = False, name: str | None = None):
        for value in inputs:
            require_variable(value, "inputs", "ConditionalBlock")
        self.inputs = list(inputs)
        self.is_scalar_condition = is_scalar_condition
        self.helper = LayerHelper("conditional_block", name=name)

    def block(self) -> ConditionalBlockGuard:
        """Context manager; layers written inside it belong to the conditional block."""
        return ConditionalBlockGuard(self)

    def complete(self) -> None:
        """Write the conditional_block op, and its gradient if a backward pass was built inside the block."""
        inside = self.helper.main_program.current_block()
        parent = self.helper.main_program.block(inside.parent_idx)
        reads, writes = block_reads_and_writes(inside)
        scope = parent.create_var(type=VarType.STEP_SCOPES)
        op = parent.append_op(
            type="conditional_block",
            inputs={"Cond": self.inputs, "Input": [parent._var_recursive(name) for name in reads]},
            outputs={"Out": known_to(parent, writes), "Scope": [scope]},
            attrs={"sub_block": inside, "is_scalar_condition": self.is_scalar_condition},
        )
        if self.need_append_conditional_block_grad(inside):
            self.append_conditional_block_grad(parent, inside, op)

    def need_append_conditional_block_grad(self, inside_block: Block) -> bool:
        """Whether ``inside_block`` has a gradient block of its own."""
        grad_idx = inside_block.backward_block_idx
        return grad_idx not in (-1, inside_block.idx)

    def append_conditional_block_grad(
        self, parent_block: Block, inside_block: Block, conditional_block_op: Operator
    ) -> None:
        """Write conditional_block_grad for the gradient block of ``inside_block``.

        A backward pass inside the branch created that block, so it may also contain optimizer updates.
        """
        grad_block = inside_block.program.block(inside_block.backward_block_idx)
        reads, _ = block_reads_and_writes(grad_block)
        names = [name for name in reads if parent_block._find_var_recursive(name) is not None]
        append_branch_gradient(parent_block, conditional_block_op, grad_block, names)


class Switch:
    """Run the first case whose condition holds, or ``default`` if none does.

    ::

        with layers.Switch() as switch:
            with switch.case(step < warmup):
                layers.assign(input=small, output=lr)
            with switch.default():
                layers.assign(input=large, output=lr)
    """

    def __init__(self, name: str | None = None):
        self.helper = LayerHelper("switch", name=name)
        self.inside_scope = False
        self.pre_not_conditions: list[Variable] = []

    def case(self, condition: Variable) -> ConditionalBlockGuard:
        """The block that runs when ``condition`` holds and no earlier case did.

        Raises:
            ValueError: called outside ``with switch``.
            TypeError: condition is not a boolean Variable.
        """
        if not self.inside_scope:
            raise ArgumentError("Switch.case was called outside its block. Write it inside `with Switch() as switch:`.")
        require_condition(condition, "Switch.case")
        not_condition = logical_not(x=condition)
        if self.pre_not_conditions:
            none_before = self.pre_not_conditions[-1]
            self.pre_not_conditions.append(logical_and(x=none_before, y=not_condition))
            condition = logical_and(x=none_before, y=condition)
        else:
            self.pre_not_conditions.append(not_condition)
        return ConditionalBlockGuard(ConditionalBlock([condition], is_scalar_condition=True))

    def default(self) -> ConditionalBlockGuard:
        """The block that runs when no case did.

        Raises:
            ValueError: no case precedes it.
        """
        if not self.pre_not_conditions:
            raise ArgumentError("Switch.default came before any case: there should be at least one switch.case.")
        return ConditionalBlockGuard(ConditionalBlock([self.pre_not_conditions[-1]], is_scalar_condition=True))

    def __enter__(self) -> Switch:
        self.inside_scope = True
        return self

    def __exit__(self, exc_type, exc_val, exc_tb) -> bool:
        self.inside_scope = False
        return exc_type is None


class IfElseBlockGuard:
    """One branch of an IfElse."""

    def __init__(self, is_true: bool, ifelse: IfElse):
        if not isinstance(ifelse, IfElse) or ifelse.status != IfElse.OUT_IF_ELSE_BLOCKS:
            raise ArgumentError(
                "An IfElse branch was opened inside another one. Close true_block() before false_block()."
            )
        self.is_true = is_true
        self.ie = ifelse
        block = ifelse.conditional_true_block if is_true else ifelse.conditional_false_block
        self.cond_block = block.block()

    def __enter__(self) -> None:
        ie = self.ie
        ie.status = IfElse.IN_IF_ELSE_TRUE_BLOCKS if self.is_true else IfElse.IN_IF_ELSE_FALSE_BLOCKS
        self.cond_block.__enter__()

    def __exit__(self, exc_type, exc_val, exc_tb) -> bool:
        done = self.cond_block.__exit__(exc_type, exc_val, exc_tb)
        empty = not self.ie.output_table[1 if self.is_true else 0]
        self.ie.status = IfElse.OUT_IF_ELSE_BLOCKS
        if exc_type is None and empty:
            raise ArgumentError("An IfElse branch has no output. Call ie.output(...) inside the block.")
        return done


class IfElse:
    """Run one block on the rows where a condition holds and another on the rest, then merge the results.

    Args:
        cond: bool Variable [rows, 1].
        name: prefix for the names of the variables created.

    Raises:
        TypeError: cond is not a Variable.
    """

    OUT_IF_ELSE_BLOCKS = 0
    IN_IF_ELSE_TRUE_BLOCKS = 1
    IN_IF_ELSE_FALSE_BLOCKS = 2

    def __init__(self, cond: Variable, name: str | None = None):
        self.helper = LayerHelper("ifelse", name=name)
        self.cond = require_variable(cond, "cond", "IfElse")
        self.input_table: dict[int, tuple[Variable, Variable]] = {}
        self.status = IfElse.OUT_IF_ELSE_BLOCKS
        self.conditional_true_block = ConditionalBlock(inputs=[self.cond])
        self.conditional_false_block = ConditionalBlock(inputs=[self.cond])
        self.output_table: tuple[list[Variable], list[Variable]] = ([], [])

    def input(self, x: Variable) -> Variable:
        """The rows of x that belong to the current branch.

        Raises:
            ValueError: called outside a branch.
        """
        if self.status == IfElse.OUT_IF_ELSE_BLOCKS:
            raise ArgumentError("IfElse.input was called outside a branch. It must be in true_block or false_block.")
        if id(x) not in self.input_table:
            self.input_table[id(x)] = self._split(x)
        out_true, out_false = self.input_table[id(x)]
        return out_true if self.status == IfElse.IN_IF_ELSE_TRUE_BLOCKS else out_false

    def _split(self, x: Variable) -> tuple[Variable, Variable]:
        parent = self._parent_block()

        def part() -> Variable:
            name = unique_name.generate_with_ignorable_key("ifelse_input" + self.helper.name)
            return parent.create_var(name=name, dtype=x.dtype)

        out_true, out_false = part(), part()
        parent.append_op(
            type="split_lod_tensor",
            inputs={"X": x, "Mask": self.cond},
            outputs={"OutTrue": out_true, "OutFalse": out_false},
            attrs={"level": 0},
        )
        return out_true, out_false

    def _parent_block(self) -> Block:
        program = self.helper.main_program
        return program.block(program.current_block().parent_idx)

    def true_block(self) -> IfElseBlockGuard:
        """The block for the rows where the condition holds."""
        return IfElseBlockGuard(True, self)

    def false_block(self) -> IfElseBlockGuard:
        """The block for the rows where it does not."""
        return IfElseBlockGuard(False, self)

    def output(self, *outs: Variable) -> None:
        """Declare the outputs of the current branch.

        Raises:
            ValueError: called outside a branch.
            TypeError: an output is not a Variable.
        """
        if self.status == IfElse.OUT_IF_ELSE_BLOCKS:
            raise ArgumentError("IfElse.output was called outside a branch. It must be in true_block or false_block.")
        table = self.output_table[1 if self.status == IfElse.IN_IF_ELSE_TRUE_BLOCKS else 0]
        parent = self._parent_block()
        for out in outs:
            require_variable(out, "outs", "IfElse.output")
            name = unique_name.generate_with_ignorable_key("_".join([self.helper.name, "output"]))
            outside = parent.create_var(name=name, dtype=out.dtype)
            table.append(outside)
            assign(input=out, output=outside)

    def __call__(self) -> list[Variable]:
        """The merged outputs of both branches, with rows in their original order.

        Raises:
            ValueError: no branch was written, or the branches differ in their number of outputs.
        """
        if self.status != IfElse.OUT_IF_ELSE_BLOCKS:
            raise ArgumentError("IfElse was called inside a branch. Call it after both blocks are closed.")
        outs_false, outs_true = self.output_table
        if not outs_false and not outs_true:
            raise ArgumentError("IfElse has no branch. Must invoke true_block/false_block before __call__.")
        if not outs_false or not outs_true:
            return outs_false or outs_true
        if len(outs_false) != len(outs_true):
            raise ArgumentError(
                f"The branches of IfElse have different numbers of outputs: {len(outs_true)} in true_block, "
                f"{len(outs_false)} in false_block. Give ie.output the same number in both."
            )
        return [
            merge_lod_tensor(in_true=true, in_false=false, mask=self.cond, x=self.cond, level=0)
            for false, true in zip(outs_false, outs_true, strict=True)
        ]
