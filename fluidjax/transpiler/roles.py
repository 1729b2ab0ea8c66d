"""The roles of a program's ops, according to their attributes: updates, gradient clipping, learning rates."""

from __future__ import annotations

from collections.abc import Iterable

from fluidjax.base.enums import OpRole
from fluidjax.framework import Operator, Program, Variable
from fluidjax.framework.names import OP_NAMESCOPE, OP_ROLE, OP_ROLE_VAR

CLIP_SCOPE = "@CLIP"
_SCHEDULE = (int(OpRole.LRSched), int(OpRole.LRSched | OpRole.Optimize))


def role_of(op: Operator) -> int:
    """The role of an op: bits of OpRole."""
    return int(op.attr(OP_ROLE)) if op.has_attr(OP_ROLE) else int(OpRole.Forward)


def role_vars(op: Operator) -> list[str]:
    """The names of the parameters and gradients that an op concerns, alternately."""
    return op.attr(OP_ROLE_VAR) if op.has_attr(OP_ROLE_VAR) else []


def is_update(op: Operator) -> bool:
    """Whether an op updates a parameter."""
    return "Param" in op.input_names and "LearningRate" in op.input_names


def schedule_ops(program: Program) -> list[Operator]:
    """The ops that compute learning rates."""
    return [op for op in program.global_block().ops if role_of(op) in _SCHEDULE]


def optimizing_ops(program: Program) -> list[Operator]:
    """The ops that regularize and update.

    Those of ``set_gradient_clip`` become part of the backward pass: each trainer clips its own gradients.
    """
    found = []
    for op in program.global_block().ops:
        if role_of(op) != OpRole.Optimize:
            continue
        if op.has_attr(OP_NAMESCOPE) and CLIP_SCOPE in op.attr(OP_NAMESCOPE):
            op._set_attr(OP_ROLE, int(OpRole.Backward))
        else:
            found.append(op)
    return found


def params_and_grads(program: Program, optimizing: Iterable[Operator]) -> list[tuple[Variable, Variable]]:
    """Each parameter with the gradient that updates it, in the order of the updates.

    Parameters that ops update in their backward pass (attribute ``distribute_update_vars``) follow, each with itself.
    """
    variables = program.global_block().vars
    pairs: dict[str, str] = {}
    for op in optimizing:
        if named := role_vars(op):
            pairs.setdefault(named[0], named[1])
    found = [(variables[param], variables[grad]) for param, grad in pairs.items()]
    return found + [(variables[name], variables[name]) for name in _updated_by_backward(program)]


def _updated_by_backward(program: Program) -> list[str]:
    key = "distribute_update_vars"
    lists = [op.attr(key) for op in program.global_block().ops if op.has_attr(key)]
    return list(dict.fromkeys(name for text in lists if text for name in text.split(",")))
