"""Pruning programs: to what some targets need, or to the forward pass.

A program is a list of statements, not a graph: a variable may be written twice, and an op may write what it
reads. Dependencies are therefore found backwards, statement by statement.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fluidjax.base.enums import AttrType, OpRole, VarType
from fluidjax.framework import messages, names
from fluidjax.framework.operator import Operator
from fluidjax.framework.variable import Variable
from fluidjax.framework.view import program_view
from fluidjax.proto import framework_pb2 as pb
from lowering.engine.dataflow import definitions, kills, uses

if TYPE_CHECKING:
    from fluidjax.framework.program import Program

_TRAINING = OpRole.Backward | OpRole.Optimize | OpRole.LRSched


def pruned(program: Program, feeds: Sequence[str], targets: Any) -> Program:
    """A copy of `program` with the ops that `targets` need if `feeds` are fed.

    Raises ValueError for a target that the program neither computes nor holds, and for feeds that are not names.
    """
    feeds = [feeds] if isinstance(feeds, str) else feeds
    for name in feeds:
        if not isinstance(name, str):
            raise ValueError(
                "All feeded_var_names of Program._prune_with_input() can only be str, but received"
                f" {type(name)}. Pass the names of variables."
            )
    wanted_names, wanted_ops = _split_targets(program, targets)
    block = program.global_block()
    kept, remaining = _needed_ops(program, wanted_names, wanted_ops, frozenset(feeds))
    for name in remaining & wanted_names:
        if not block.has_var(name):
            raise ValueError(
                "The target variable used for pruning should have an associated operator that generates it. Expected"
                f" one that the program computes or holds, received {name!r}. Give a variable of this program."
            )
    chosen = {0: kept}
    for op in kept:
        _choose_sub_blocks(program, op, chosen)
    return _extract(program, chosen, keep_vars=wanted_names)


def part(program: Program, ops: Sequence[Operator]) -> Program:
    """A copy of some ops of block 0, in this order, with the blocks that they run and the variables that they name."""
    chosen = {0: list(ops)}
    for op in ops:
        _choose_sub_blocks(program, op, chosen)
    return _extract(program, chosen, keep_vars=())


def _split_targets(program: Program, targets: Any) -> tuple[set[str], list[Operator]]:
    items = list(targets) if isinstance(targets, (list, tuple, set)) else [targets]
    wanted_names: set[str] = set()
    wanted_ops: list[Operator] = []
    for item in items:
        if isinstance(item, Operator):
            wanted_ops.append(item)
        elif isinstance(item, (Variable, str)):
            wanted_names.add(item if isinstance(item, str) else item.name)
        else:
            raise ValueError(
                "All targets of Program._prune_with_input() can only be Variable or Operator, but received"
                f" {type(item)}. Pass variables, their names, or ops."
            )
    return wanted_names, wanted_ops


def _needed_ops(
    program: Program,
    wanted: Collection[str],
    wanted_ops: Sequence[Operator],
    feeds: frozenset[str],
) -> tuple[list[Operator], set[str]]:
    """The ops of block 0 needed for `wanted`, in order, and the names required before the first op.

    What is fed needs no op. In programs of Paddle 2, an op that goes on from a fed value and writes it anew, as loops
    of converted Python do, is needed all the same; Paddle 1.8 drops it.
    """
    view = program_view(program)
    satisfied = frozenset() if view.newer else feeds
    needed = {name for name in wanted if name not in satisfied}
    always = {id(op) for op in wanted_ops}
    kept: list[Operator] = []
    for op, flow in reversed(list(zip(program.global_block().ops, view.blocks[0].ops, strict=True))):
        is_training = bool(op._attr_map.get(names.OP_ROLE, 0) & OpRole.Optimize)
        reads = set(uses(view, flow))
        gives = needed.intersection(definitions(view, flow)) - (feeds - reads)
        if id(op) not in always and (not gives or (is_training and wanted_ops)):
            continue
        kept.append(op)
        needed.difference_update(kills(view, flow))
        needed |= reads - satisfied
    kept.reverse()
    return kept, needed


def _choose_sub_blocks(program: Program, op: Operator, chosen: dict[int, list[Operator]]) -> None:
    for index in op._sub_block_ids():
        if index not in chosen:
            chosen[index] = list(program.blocks[index].ops)
            for inner in chosen[index]:
                _choose_sub_blocks(program, inner, chosen)


def _extract(program: Program, chosen: dict[int, list[Operator]], keep_vars: Collection[str]) -> Program:
    """A program with the chosen ops of the chosen blocks, and the variables they use."""
    for index in sorted(chosen):
        parent = program.blocks[index].parent_idx
        while parent > 0 and parent not in chosen:
            chosen[parent] = []
            parent = program.blocks[parent].parent_idx
    order = sorted(chosen)
    number = {old: new for new, old in enumerate(order)} | {-1: -1}
    used = _used_names(ops for ops in chosen.values()) | set(keep_vars)
    message = pb.ProgramDesc()
    if program.proto.HasField("version"):
        message.version.CopyFrom(program.proto.version)
    if program.proto.HasField("op_compatible_map"):
        message.op_compatible_map.CopyFrom(program.proto.op_compatible_map)
    for old in order:
        source = program.blocks[old].proto
        block = message.blocks.add(idx=number[old], parent_idx=number[source.parent_idx])
        if source.HasField("forward_block_idx"):
            block.forward_block_idx = number.get(source.forward_block_idx, -1)
        block.vars.extend(var for var in source.vars if var.name in used)
        block.ops.extend(op.proto for op in chosen[old])
        for op in block.ops:
            _renumber(op, number)
    return program._derived(message, {new: old for new, old in enumerate(order)})


def _used_names(op_lists: Iterable[Sequence[Operator]]) -> set[str]:
    return {name for ops in op_lists for op in ops for name in (*op.input_arg_names, *op.output_arg_names)}


def _renumber(op: pb.OpDesc, number: dict[int, int]) -> None:
    for attr in op.attrs:
        if attr.type == AttrType.BLOCK:
            attr.block_idx = number[attr.block_idx]
        elif attr.type == AttrType.BLOCKS:
            attr.blocks_idx[:] = [number[index] for index in attr.blocks_idx]


def without_backward(program: Program) -> Program:
    """A copy without the ops of the backward pass, the optimizers and their learning rate.

    A program without a backward pass is copied unchanged.
    """
    loss_grad = OpRole.Backward | OpRole.Loss
    has_backward = any(
        op._attr_map.get(names.OP_ROLE, 0) & loss_grad == loss_grad for block in program.blocks for op in block.ops
    )
    if not has_backward:
        return program.clone()
    chosen: dict[int, list[Operator]] = {}
    for block in program.blocks:
        kept = [op for op in block.ops if not op._attr_map.get(names.OP_ROLE, 0) & _TRAINING]
        if kept or block.idx == 0:
            chosen[block.idx] = kept
    return _extract(program, chosen, keep_vars=())


def for_inference(program: Program, prune_read_op: bool) -> Program:
    """A copy with every ``is_test`` set; with `prune_read_op`, without reader ops and variables."""
    copy = program.clone()
    if prune_read_op:
        _drop_readers(copy)
    for block in copy.blocks:
        for op in block.ops:
            if messages.find_attr(op.proto, "is_test") is not None:
                op._set_attr("is_test", True)
    return copy


def _drop_readers(program: Program) -> None:
    block = program.global_block()
    read = [index for index, op in enumerate(block.ops) if op.type == "read"]
    if read:
        for _ in range(read[-1] + 1):
            block._remove_op(0)
    for name in [name for name, var in block.vars.items() if var.type == VarType.READER]:
        block._remove_var(name)
