"""The ops and variables that a gradient passes through."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import lowering
from fluidjax.backward.names import EMPTY, GRAD, grad_name
from fluidjax.framework import user_line
from fluidjax.framework.view import op_view
from lowering.engine.dataflow import GUARDED

Block = Any
Operator = Any

# Their blocks may not run, and are searched starting from the outputs that matter.


@dataclass
class OpPaths:
    """The ops to differentiate in one block, and in each sub-block reached on the way (by block index)."""

    ops: list[Operator] = field(default_factory=list)
    of_block: dict[int, list[Operator]] = field(default_factory=dict)


def names_in(op: Operator) -> list[str]:
    """The variables that ``op`` reads, without ``@EMPTY@``."""
    return [name for name in op.input_arg_names if name != EMPTY]


def names_out(op: Operator) -> list[str]:
    """The variables that ``op`` writes, without ``@EMPTY@``."""
    return [name for name in op.output_arg_names if name != EMPTY]


def operands(op: Operator) -> list[str]:
    """The variables to which ``op`` passes a gradient on.

    These are its inputs and, for a gradient op that reads results saved by its forward op, the forward op's inputs.
    """
    forward = forward_of(op)
    return names_in(op) + (names_in(forward) if forward is not None else [])


def forward_of(op: Operator) -> Operator | None:
    """The forward op of gradient op ``op``, if ``op`` reads results saved by it; otherwise None."""
    definition = lowering.get_op(op.type)
    saved = {n for slot in lowering.saved_slots(definition) if slot in op.input_names for n in op.input(slot)}
    if definition.forward is None or not saved - {EMPTY}:
        return None
    before, wanted = op.block.ops[: _position(op)], definition.forward.type
    makers = (o for o in reversed(before) if o.type == wanted and not saved.isdisjoint(o.output_arg_names))
    return next(makers, None)


def check_unchanged(op: Operator, forward: Operator | None) -> None:
    """Raise ValueError if what ``forward`` read has changed before its gradient op, which is to be differentiated."""
    if forward is None:
        return
    definition = lowering.get_op(forward.type)
    slots = [s.name for s in definition.inputs if s.param in definition.diff and s.name in forward.input_names]
    read = {n for slot in slots for n in forward.input(slot)}
    for later in op.block.ops[_position(forward) : _position(op)]:
        changed = sorted(read.intersection(names_out(later)))
        if changed:
            raise ValueError(
                f"op {op.type} cannot be differentiated, because op {later.type} ({user_line(later)}) overwrites"
                f" {changed}, which {forward.type} ({user_line(forward)}) has read.\n"
                f"  expected: {changed} as {forward.type} read it; received: another value of the same name.\n"
                f"  to do: write the result of {later.type} to a variable of its own"
            )


def _position(op: Operator) -> int:
    return next(index for index, other in enumerate(op.block.ops) if other is op)


def sub_block_of(op: Operator) -> int | None:
    """The index of the op's ``sub_block``, or None."""
    return op._block_attr_id("sub_block") if op.has_attr("sub_block") else None


def stopped_gradients(program: Any) -> dict[int, set[str]]:
    """Per block: the gradients that must not exist, those of variables with ``stop_gradient``."""
    return {
        block.idx: {grad_name(var.name) for var in list(block.vars.values()) if var.stop_gradient}
        for block in program.blocks
    }


def stopped_names(stopped: set[str]) -> set[str]:
    """The variables whose gradients are ``stopped``; a stopped gradient of a gradient stops the gradient alone."""
    return {name.removesuffix(GRAD) for name in stopped}


def find_path(
    block: Block, targets: Iterable[str], sources: Iterable[str], no_grad: set[str], *, loop: bool = False
) -> OpPaths:
    """The ops of ``block`` between ``sources`` (all inputs, if empty) and ``targets``, in order.

    Args:
        block: a block of the program.
        targets: names of the variables to differentiate.
        sources: names of the variables to differentiate by.
        no_grad: variables that no gradient passes; extended by the inputs of the path that do not come from
            ``sources`` and have ``stop_gradient``.
        loop: the block is the body of a loop, so a target may also be written in the previous iteration.

    Raises:
        ValueError: the path leads through a gradient op without a gradient (such as that of a loop or branch).
    """
    sources = set(sources)
    wanted = set(targets)
    reachable = _reachable(block, sources, no_grad) if sources else [True] * len(block.ops)
    paths = OpPaths()
    on_path: set[int] = set()
    while True:
        before = len(wanted)
        _walk_back(block, wanted, no_grad, reachable, on_path, paths)
        if not loop or len(wanted) == before:
            break
    paths.ops = [op for index, op in enumerate(block.ops) if index in on_path]
    if sources:
        _stop_other_inputs(block, paths.ops, sources, no_grad)
    return paths


def _walk_back(
    block: Block, wanted: set[str], no_grad: set[str], reachable: list[bool], on_path: set[int], paths: OpPaths
) -> None:
    for index in range(len(block.ops) - 1, -1, -1):
        op = block.ops[index]
        hit = wanted.intersection(op.output_arg_names)
        inner = sub_block_of(op)
        if inner is not None:
            paths.of_block.update(_sub_paths(block.program, op, inner, hit))
        if hit and _has_gradient(op.type):
            wanted.update(name for name in operands(op) if name not in no_grad)
            if reachable[index]:
                on_path.add(index)
        elif hit and _obstacle(op) is not None and reachable[index]:
            raise ValueError(_no_second_derivative(op, hit))


def _no_second_derivative(op: Operator, hit: set[str]) -> str:
    names = ", ".join(sorted(hit))
    return (
        f"the target depends on {names}, which op {op.type} computes ({user_line(op)}), and that op has no gradient:"
        f" {_obstacle(op)}.\n"
        "  expected: gradients of gradients through ops that can be differentiated twice; received: one that passes"
        f" {op.type}.\n"
        f"  to do: set stop_gradient = True on {names} if it is meant as a constant, or write the part to be"
        " differentiated twice with other ops (without While, StaticRNN, DynamicRNN or cond: a loop of fixed length can"
        " be unrolled)"
    )


def _obstacle(op: Operator) -> str | None:
    """Why a gradient op cannot be differentiated; None for others, which have a gradient or are constant."""
    definition = lowering.get_op(op.type)
    if definition.differentiable:
        return None
    outside = definition.forward is None and definition.kind in ("block", "host") and op_view(op).is_backward
    return "it runs other code" if outside else definition.obstacle


def _has_gradient(op_type: str) -> bool:
    return lowering.get_op(op_type).differentiable


def _passes(op: Operator) -> bool:
    """Whether a path may lead through the op: it has a gradient, or one is requested that it cannot have."""
    return _has_gradient(op.type) or _obstacle(op) is not None


def _reachable(block: Block, sources: set[str], no_grad: set[str]) -> list[bool]:
    """For each op, whether a value of ``sources`` flows into it and a gradient may flow back out of it."""
    reached = set(sources)
    flags = []
    for op in block.ops:
        flags.append(not reached.isdisjoint(_taken_in(op)) and _passes(op))
        if flags[-1]:
            reached.update(name for name in op.output_arg_names if name not in no_grad)
    return flags


def _taken_in(op: Operator) -> list[str]:
    """The variables whose values may affect what ``op`` writes, including those that it may leave unchanged."""
    return [*operands(op), *(op.output_arg_names if op.type in (*GUARDED, "write_to_array") else ())]


def _stop_other_inputs(block: Block, ops: list[Operator], sources: set[str], no_grad: set[str]) -> None:
    reached = set(sources)
    for op in block.ops:
        if not reached.isdisjoint(_taken_in(op)) and _passes(op):
            reached.update(name for name in op.output_arg_names if name not in no_grad)
    for op in ops:
        for name in operands(op):
            if name not in reached and name in block.vars and block.vars[name].stop_gradient:
                no_grad.add(name)


def _sub_paths(program: Any, op: Operator, index: int, hit: set[str]) -> dict[int, list[Operator]]:
    """The ops to differentiate in sub-block ``index`` of ``op``, and in the blocks below it."""
    block = program.block(index)
    if op.type not in GUARDED:
        return {index: list(block.ops)}
    targets = set(hit)
    for inner in block.ops:
        if not hit.isdisjoint(inner.output_arg_names):
            targets.update(names_in(inner))
    paths = find_path(block, targets, (), set(), loop=op.type == "while")
    return {**paths.of_block, index: paths.ops}


def unused_outputs(block: Block, ops: list[Operator], targets: Iterable[str], no_grad: set[str]) -> set[str]:
    """Variables that ops of the path write and no later op of the path reads: they get no gradient."""
    used = set(targets)
    unused: set[str] = set()
    for op in reversed(ops):
        if sub_block_of(op) is None:
            for name in names_out(op):
                var = block._find_var_recursive(name)
                read_back = name in used or name in op.input_arg_names
                if not read_back and not (var is not None and var.stop_gradient):
                    unused.add(name)
        used.update(name for name in operands(op) if name not in no_grad)
    return unused


def no_grad_names(no_grad_set: Iterable[Any] | None) -> set[str]:
    """The names in a user's ``no_grad_set`` of Variables or names."""
    if no_grad_set is None:
        return set()
    if isinstance(no_grad_set, str):
        raise TypeError(
            f"The type of no_grad_set should be set or list or tuple, but received {no_grad_set!r}, a text. Put the"
            " name into a set"
        )
    names = set()
    for item in no_grad_set:
        name = item if isinstance(item, str) else getattr(item, "name", None)
        if not isinstance(name, str):
            raise TypeError(
                f"no_grad_set holds {item!r} of type {type(item).__name__}; expected Variables or their names. "
                "Pass for example {'fc_0.w_0'}"
            )
        names.add(name)
    return names
