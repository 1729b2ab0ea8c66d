"""The program under test: a copy without its backward pass, if any, and with a new one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fluidjax.backward import append_backward
from fluidjax.framework import Program, Variable, default_main_program
from lowering.program import GRAD

_BACKWARD, _OPTIMIZE, _LOSS = 0x1, 0x2, 0x100


def program_and_loss(loss: Variable | str | Program) -> tuple[Program, str]:
    """The program, and the name of its loss; for a program, its last forward output."""
    if isinstance(loss, Variable):
        return loss.block.program, loss.name
    if isinstance(loss, Program):
        forward = [op for op in loss.global_block().ops if not _role(op) & (_BACKWARD | _OPTIMIZE)]
        outputs = [n for op in forward[-1:] for n in op.output_arg_names]
        if not outputs:
            raise ValueError("check_grad: the program has no forward ops; pass the loss variable of one that has")
        return loss, outputs[0]
    return default_main_program(), str(loss)


def forward_copy(program: Program, loss: str) -> Program:
    """The program without its optimizer ops, and without gradients except those that the loss depends on.

    Raises ValueError if ``loss`` is not a variable of the program.
    """
    if not program.global_block().has_var(loss):
        raise ValueError(f"check_grad: the loss {loss!r} is no variable of the program; pass the loss variable itself")
    copy = program.clone()
    block = copy.global_block()
    needed = {loss}
    for index in reversed(range(len(block.ops))):
        op = block.ops[index]
        if _role(op) & _OPTIMIZE or (_role(op) & _BACKWARD and needed.isdisjoint(op.output_arg_names)):
            block._remove_op(index)
        elif not needed.isdisjoint(op.output_arg_names):
            needed.update(op.input_arg_names)
    again = any(_role(op) & _BACKWARD for op in block.ops)
    _drop_gradient_blocks(copy)
    for each in copy.blocks:
        used = {n for op in each.ops for n in (*op.input_arg_names, *op.output_arg_names)}
        for name in [n for n in each.vars if GRAD in n and n not in used]:
            each._remove_var(name)
    if not again:
        copy._appending_grad_times = 0
    copy._descs_changed()
    return copy


def _role(op: Any) -> int:
    return int(op.attr("op_role")) if op.has_attr("op_role") else 0


def _drop_gradient_blocks(program: Program) -> None:
    """Remove gradient blocks that no op runs; they come after the blocks that they belong to."""
    while program.blocks[-1].forward_block_idx >= 0 and not _runs(program, program.blocks[-1].idx):
        program.blocks.pop()
        del program.proto.blocks[-1]


def _runs(program: Program, index: int) -> bool:
    ops = (op for block in program.blocks for op in block.ops if op.has_attr("sub_block"))
    return any(op._block_attr_id("sub_block") == index for op in ops)


def append_gradients(
    program: Program, loss: str, parameters: list[Any] | None, feeds: Iterable[str], no_grad_set: Any
) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Append the backward pass for parameters and fed data; returns both sets of gradients by name.

    Feeds usually stop gradients to save work; here they get one, unless ``no_grad_set`` names them.
    """
    block = program.global_block()
    stopped = {v if isinstance(v, str) else v.name for v in no_grad_set or ()}
    wanted = [n for n in feeds if n not in stopped and block.has_var(n)]
    for name in wanted:
        block.var(name).stop_gradient = False
    if parameters is None:
        names = [v.name for v in program.all_parameters() if v.trainable]
    else:
        names = [p if isinstance(p, str) else p.name for p in parameters]
    listed = list(dict.fromkeys([*names, *wanted]))
    pairs = append_backward(block.var(loss), parameter_list=listed, no_grad_set=no_grad_set)
    found = {p.name: g.name for p, g in pairs if g is not None}
    return {n: found[n] for n in names if n in found}, {n: found.get(n) for n in wanted if n not in names}


def first_of_backward(program: Program) -> int:
    """The index of the op that fills in the gradient of the loss, where the backward pass begins."""
    ops = list(enumerate(program.global_block().ops))
    return next(i for i, op in reversed(ops) if _role(op) & _BACKWARD and _role(op) & _LOSS)
