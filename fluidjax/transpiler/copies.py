"""Ops of the main program written into a server's blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fluidjax.framework import Block, Operator, Variable

Lookup = Callable[[str], Variable]


def copy_op(op: Operator, block: Block, here: Lookup) -> Operator:
    """Append an op like ``op`` to a block; ``here`` maps the variables it names."""
    return block.append_op(
        type=op.type,
        inputs={slot: [here(name) for name in op.input(slot)] for slot in op.input_names},
        outputs={slot: [here(name) for name in op.output(slot)] for slot in op.output_names},
        attrs=op.all_attrs(),
    )


def copy_schedule(ops: Iterable[Operator], block: Block, here: Lookup) -> None:
    """Write the ops that compute a learning rate into a block, including the blocks that they run."""
    for op in ops:
        _copy_sub_block(op, copy_op(op, block, here), block)


def _copy_sub_block(origin: Operator, copy: Operator, parent: Block) -> None:
    if not origin.has_attr("sub_block"):
        return
    source = origin._block_attr("sub_block")
    block = parent.program._create_block(parent.idx)
    for var in source.vars.values():
        block._clone_variable(var, force_persistable=False)
    for op in source.ops:
        _copy_sub_block(op, _copy_inner(op, block), block)
    copy._set_attr("sub_block", block)


def _copy_inner(op: Operator, block: Block) -> Operator:
    """Like Fluid, give an inner block its own variables for everything that its ops name."""
    for name in (*op.input_arg_names, *op.output_arg_names):
        if not block.has_var(name):
            block._clone_variable(op.block._var_recursive(name))
    return copy_op(op, block, block.var)
