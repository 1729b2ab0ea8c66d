"""Writing the grad ops of a block, from its last op to its first, and those of its sub-blocks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import lowering
from fluidjax.backward.accumulate import sum_repeated_gradients
from fluidjax.backward.descs import Pending, append_pending
from fluidjax.backward.lives import carried_by, ended_by, is_array, taken_by
from fluidjax.backward.names import PASS, forward_name, grad_name, in_args, is_grad, out_args, rename
from fluidjax.backward.paths import check_unchanged, forward_of, operands, sub_block_of
from fluidjax.backward.prune import drop_clearing, drop_disconnected, drop_stopped
from fluidjax.backward.versions import keep_values
from fluidjax.framework import Parameter
from fluidjax.framework.view import op_view
from lowering.program import OpSpec, OpView

Block = Any
Operator = Any
Callback = Callable[..., None]


@dataclass
class GradBlock:
    """What the gradient maker of a block op may ask about the gradient sub-block written for it.

    Attributes:
        carried: gradients of the outer variables that a loop or branch overwrites.
    """

    index: int
    ops: list[OpView]
    forward_block: Block
    parent_block: Block
    carried: set[str] = field(default_factory=set)

    def declared_outside(self, name: str) -> bool:
        """Whether ``name`` is a variable of the forward sub-block, of the parent block, or above them.

        A gradient declared there by an earlier pass does not count: inside a gradient block ``x@GRAD`` is the
        gradient of this pass, whatever its name outside.
        """
        if is_grad(name):
            return bool(self.forward_block.has_var(name))
        return any(b._find_var_recursive(name) is not None for b in (self.forward_block, self.parent_block))


@dataclass
class Walk:
    """One backward pass over a program.

    Attributes:
        stopped: block index -> gradients that must not exist.
        of_block: sub-block index -> the ops of it to differentiate.
        callbacks: called after each appended op with ``block`` and ``context``.
        grad_to_var: filled in: gradient name -> forward variable name.
        order: the number of backward passes over the program, including this one.
        renamed: filled in: gradients with another name in this pass, because an earlier pass took theirs.
        written: filled in: the appended ops, each with its forward op.
        passes: filled in: (forward block, block of its grad ops, these grad ops), innermost blocks first.
    """

    stopped: dict[int, set[str]]
    of_block: dict[int, list[Operator]] = field(default_factory=dict)
    callbacks: list[Callback] = field(default_factory=list)
    grad_to_var: dict[str, Any] = field(default_factory=dict)
    order: int = 1
    renamed: dict[str, str] = field(default_factory=dict)
    written: list[tuple[Operator, Operator | None]] = field(default_factory=list)
    passes: list[tuple[Block, Block, list[tuple[Operator, Operator | None]]]] = field(default_factory=list)

    def append(
        self,
        block: Block,
        ops: Iterable[Operator],
        target: Block,
        starts: set[str] | None = None,
        carried: Iterable[str] = (),
    ) -> None:
        """Append the grad ops of ``ops`` (of ``block``) to ``target``.

        Args:
            carried: gradients that flow from step to step, or past the branch, whose body ``block`` is.
            starts: existing gradients; if given, only grad ops that depend on them are kept (a program that already
                contains gradients has ops whose gradients were not requested).
        """
        ops = list(ops)
        pending = self.grad_ops(block, ops, target, starts)
        arrays = _arrays_around(block, pending)
        pending = sum_repeated_gradients(pending, block.idx, _ends(block, pending), carried, arrays)
        pending = drop_stopped(pending, self.stopped[block.idx])
        pending = drop_clearing(drop_disconnected(pending, _known_names(ops), carried), carried, block.has_var)
        written = append_pending(target, pending, self.callbacks, self.grad_to_var)
        self.written += written
        self.passes.append((block, target, written))

    def keep_values(self) -> None:
        """Make every remaining grad op read the values that its forward op read."""
        keep_values(self.passes)

    def grad_ops(self, block: Block, ops: list[Operator], target: Block, starts: set[str] | None) -> list[OpSpec]:
        """The grad ops of ``ops`` in the order they run, before gradients are summed and pruned."""
        pending: list[OpSpec] = []
        for op in reversed(ops):
            inner = self._grad_block(op, target)
            forward = forward_of(op)
            check_unchanged(op, forward)
            specs, grad_to_var = lowering.grad_ops(
                op_view(op),
                self.stopped[block.idx],
                grad_block=None if inner is None else inner.index,
                extra=inner,
                forward=None if forward is None else op_view(forward),
                shape_of=partial(_shape_in, block),
            )
            specs = taken_by(op, specs)
            if self.order > 1:
                self._rename_taken(block, op, specs, grad_to_var)
            if starts is not None and inner is not None:
                self._leave_alone(block, specs, starts)
            if starts is not None and specs:
                specs = _hanging_on(starts, specs)
                if not specs:
                    continue
            self.grad_to_var.update(grad_to_var)
            carried = frozenset() if inner is None else frozenset(inner.carried)
            pending += [replace(Pending.of(spec, op), overwrites=carried) for spec in specs if not _is_copy(spec)]
        return pending

    def _rename_taken(self, block: Block, op: Operator, specs: list[OpSpec], grad_to_var: dict[str, str]) -> None:
        """Name gradients whose name an earlier pass took ``grad/grad/x@GRAD``, with one ``grad/`` per pass."""
        own = set(operands(op))
        for spec in specs:
            for name in in_args(spec):
                if name in self.renamed and name not in own:
                    rename(spec.inputs, name, self.renamed[name])
            for name in out_args(spec):
                if is_grad(name) and block.has_var(name):
                    self.renamed[name] = PASS * self.order + name
                    rename(spec.outputs, name, self.renamed[name])
                    if name in grad_to_var:
                        grad_to_var[self.renamed[name]] = grad_to_var.pop(name)

    def _leave_alone(self, block: Block, specs: list[OpSpec], starts: set[str]) -> None:
        """A block op reads no gradient of an earlier pass: what this pass does not compute is absent."""
        for spec in specs:
            for slot in (s for s in spec.inputs if is_grad(s)):
                for name in spec.inputs[slot]:
                    if is_grad(name) and name not in starts and block.has_var(name):
                        rename(spec.inputs, name, PASS * self.order + name)

    def _grad_block(self, op: Operator, target: Block) -> GradBlock | None:
        index = sub_block_of(op)
        if index is None or not lowering.get_op(op.type).differentiable:
            return None
        program = target.program
        forward_block = program.block(index)
        block = program._create_block(target.idx)
        block._set_forward_block_idx(index)
        path = self.of_block.get(index)
        # Inside, gradients have their plain names in every pass: the op around the block maps them to those outside.
        within = replace(self, order=1, renamed={}, written=[])
        carried = carried_by(op, forward_block)
        within.append(forward_block, forward_block.ops if path is None else path, block, carried=carried)
        program._rollback()
        return GradBlock(block.idx, [op_view(op) for op in block.ops], forward_block, target, carried)


def _shape_in(block: Block, name: str) -> tuple[int, ...] | None:
    var = block._find_var_recursive(name)
    return None if var is None else tuple(var.shape)


def _ends(block: Block, pending: list[OpSpec]) -> dict[int, list[str]]:
    """The gradients that end before each of the ``pending`` ops: those of values after the first of their name."""
    position = {id(op): number for number, op in enumerate(block.ops)}
    made = [op for op in pending if isinstance(op, Pending)]
    after = [-position[id(op.origin)] for op in made]  # increases as the walk goes back
    given: dict[int, set[str]] = {}
    for op in made:
        given.setdefault(id(op.origin), set()).update(out_args(op))
    ends: dict[int, list[str]] = {}
    used: set[str] = set()
    for number, op in enumerate(block.ops):
        used.update(op.input_arg_names)
        names = ended_by(op, given.get(id(op), ()))
        found = [grad_name(name) for name in names if name in used or _there_before(block, name)]
        if found:
            ends.setdefault(bisect_right(after, -number), []).extend(found)
        used.update(op.output_arg_names)
    return ends


def _there_before(block: Block, name: str) -> bool:
    """Whether a variable has a value before the block: an outer variable, data, a parameter."""
    var = block.vars.get(name)
    return var is None or (block.idx == 0 and (bool(var.is_data) or isinstance(var, Parameter)))


def _arrays_around(block: Block, pending: list[OpSpec]) -> set[str]:
    """The gradients of arrays outside ``block`` that its grad ops write."""
    names = {name for op in pending for name in out_args(op) if is_grad(name)} if block.idx else set()
    return {n for n in names if not block.has_var(forward_name(n)) and is_array(block, forward_name(n))}


def _is_copy(spec: OpSpec) -> bool:
    """Whether the op assigns a gradient to itself."""
    return spec.type == "assign" and spec.inputs["X"] == spec.outputs["Out"]


def _hanging_on(starts: set[str], specs: list[OpSpec]) -> list[OpSpec]:
    kept = []
    for spec in specs:
        if not starts.isdisjoint(in_args(spec)):
            starts.update(out_args(spec))
            kept.append(spec)
    return kept


def _known_names(ops: list[Operator]) -> set[str]:
    """The variables that ``ops`` read and write, except this pass's gradients and its start: they exist without it."""
    known = set()
    for op in ops:
        known.update(op.input_arg_names)
        known.update(op.output_arg_names)
    return known
