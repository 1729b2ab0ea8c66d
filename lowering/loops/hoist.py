"""Parameter gradients hoisted out of a gradient loop: one product of all rows after it instead of one per step.

Where a step would add left^T right to a parameter's gradient (see ``contractions``), the loop keeps left and right, as

    sum_t left_t^T right_t = [left_0; left_1; ...]^T [right_0; right_1; ...],

one large product of [steps * R, K] and [steps * R, N] instead of many small ones, and no sum to carry. Operands that
are already in a buffer (residuals, elements of arrays) are not stored again.

Invariant: the gradient is used only in the sum. One op writes it, no op of the block reads it, and no input of that op
is written twice, so that its value at the end of the step is the one that the op would have read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp

from lowering.engine.run import Run
from lowering.loops.carried import known_int
from lowering.loops.contractions import Contraction, contractions, over_rows
from lowering.loops.facts import Affine, Again
from lowering.loops.gradient_arrays import Written
from lowering.loops.saves import Reread
from lowering.program import EMPTY, GRAD, BlockView, OpView
from lowering.values import LoDArray, SelectedRows, StepScopes, TensorArray, Wide, data_of

# Rows of one product when the number of steps is only known at run time.
_ROWS = 512


@dataclass(frozen=True)
class Stack:
    """Values of all steps: that of step t is ``buffer[first + t]``.

    Attributes:
        buffer: an array, or the name of one that the loop leaves.
        ends: whether what follows those of the steps that were taken is zeros.
        loose: whether rows that a step's value has as padding may be any others: their factors have to be zeros.
    """

    buffer: Any
    first: int = 0
    ends: bool = False
    loose: bool = False


@dataclass
class Hoisted:
    """One gradient that is computed after the loop.

    Attributes:
        name: the gradient inside the block.
        op: the op that computes it, and only it.
        rule: its declaration.
        operands: once a step is traced, left and right: names of stored values, or existing stacks; None if the step
            computes the gradient itself after all.
    """

    name: str
    op: OpView
    rule: Contraction
    operands: tuple[str | Stack, str | Stack] | None = None


@dataclass
class Hoist:
    """The ops that remain in the loop, and what is computed after it."""

    ops: list[OpView]
    taken: list[Hoisted] = field(default_factory=list)

    def collect(self, runner: Run, env: dict[str, Any], stacks: Mapping[int, Stack]) -> dict[str, Any]:
        """After a step's ops: what to keep of it. Gradients that do not fit the rule are computed into ``env``.

        Args:
            stacks: id of a value of this step -> location of the values of all steps.
        """
        kept: dict[str, Any] = {}
        names: dict[int, str] = {}
        for k, one in enumerate(self.taken):
            pair = _rows(one, env)
            found = {} if pair is None else _usable(pair, stacks, _ending_in_zeros(one, env))
            if pair is None or not _pays(pair, found):
                one.operands = None
                env.update(runner.run_op(one.op, env))
                continue
            operands: list[str | Stack] = []
            for side, value in zip("ab", pair, strict=True):
                if id(value) in found:
                    operands.append(found[id(value)])
                    continue
                name = names.setdefault(id(value), f"{k}{side}")
                kept[name] = value
                operands.append(name)
            one.operands = (operands[0], operands[1])
        return kept

    def results(self, kept: Mapping[str, Any], steps: Any, env: Mapping[str, Any]) -> dict[str, Any]:
        """The gradients by name inside, from what was stored of all steps."""
        found = {}
        for one in self.taken:
            if one.operands is not None:
                left, right = (_placed(o, kept) for o in one.operands)
                like = data_of(env[one.op.inputs[one.rule.source][0]])
                found[one.name] = contract(left, right, steps).reshape(like.shape).astype(like.dtype)
        return found


def _placed(operand: str | Stack, kept: Mapping[str, Any]) -> Stack:
    if isinstance(operand, str):
        return Stack(kept[operand], ends=True)
    return replace(operand, buffer=kept[operand.buffer]) if isinstance(operand.buffer, str) else operand


def find_hoists(block: BlockView, summed: Iterable[str]) -> Hoist:
    """Remove from a gradient block the products that compute a gradient in ``summed``."""
    summed = set(summed)
    written = [n for op in block.ops for n in op.output_names()]
    read = {n for op in block.ops for n in op.input_names()}
    found = Hoist([])
    for op in block.ops:
        rule = contractions().get(op.type)
        names = op.outputs.get(rule.output) or [EMPTY] if rule is not None else [EMPTY]
        alone = names[0] in summed and written.count(names[0]) == 1 and names[0] not in read
        if rule is None or not alone or any(written.count(n) > 1 for n in op.input_names()):
            found.ops.append(op)
            continue
        rest = {slot: list(n) for slot, n in op.outputs.items() if slot != rule.output}
        found.taken.append(Hoisted(names[0], replace(op, outputs={rule.output: [names[0]]}), rule))
        if any(n != EMPTY for bound in rest.values() for n in bound):
            found.ops.append(replace(op, outputs=rest))
    return found


def stacks_of(scopes: StepScopes, found: Mapping[str, Any], env: Mapping[str, Any]) -> dict[int, Stack]:
    """id of a value that step's record restored -> the stack it was taken from."""
    stacks = {}
    for name, value in found.items():
        saved = scopes.saved.get(name)
        if saved is not None and hasattr(data_of(saved), "shape"):
            stacks[id(data_of(value))] = Stack(data_of(saved), ends=True)
        array, index, loose = _element(scopes.extra.get(name))
        held = env.get(array)
        if index is None or index.stride != 1 or not isinstance(held, TensorArray) or not held.stacked:
            continue
        buffer = data_of(held.buffer)
        if hasattr(buffer, "shape") and buffer.shape[1:] == data_of(value).shape:
            stacks[id(data_of(value))] = Stack(buffer, index.first, loose=loose)
    return stacks


def _element(kept: Any) -> tuple[str, Affine | None, bool]:
    """(array, index, whether it is shrunken) of what a step has kept as an element of an array."""
    if isinstance(kept, Reread):
        return kept.array, kept.index if isinstance(kept.index, Affine) else None, False
    if isinstance(kept, Again) and kept.source is not None:
        return *kept.source, True
    return "", None, False


def stacks_written(written: Mapping[str, Written], env: Mapping[str, Any]) -> dict[int, Stack]:
    """id of a value that a step has written as an element of a gradient array -> the array's stack."""
    stacks = {}
    for array, (name, index) in written.items():
        value, held = data_of(env[name]), env[array]
        if index.stride == 1 and hasattr(value, "shape") and data_of(held.buffer).shape[1:] == value.shape:
            stacks[id(value)] = Stack(array, index.first, ends=True)
    return stacks


def _rows(one: Hoisted, env: Mapping[str, Any]) -> tuple[Any, Any] | None:
    values = [env.get(one.op.inputs[slot][0]) for slot in (*one.rule.reads, one.rule.source)]
    if any(v is None or isinstance(v, SelectedRows | TensorArray | Wide) for v in values):
        return None
    capacities = {v.capacity for v in values[:-1] if isinstance(v, LoDArray)}
    if len(capacities) > 1:
        return None
    return one.rule.rows(*map(data_of, values), one.op.attrs)


def _ending_in_zeros(one: Hoisted, env: Mapping[str, Any]) -> set[int]:
    """id of those gradients that a product reads whose padding rows are there, and so are zeros."""
    values = [env.get(n) for slot, names in one.op.inputs.items() if GRAD in slot for n in names]
    return {id(v.data) for v in values if isinstance(v, LoDArray) and v.padded}


def _usable(pair: tuple[Any, Any], stacks: Mapping[int, Stack], zeros: set[int]) -> dict[int, Stack]:
    """Where the operands are, of those that need not be stored."""
    found = {}
    for value, other in (pair, pair[::-1]):
        stack = stacks.get(id(value))
        if stack is not None and (not stack.loose or id(other) in zeros):
            found[id(value)] = stack
    return found


def _pays(pair: tuple[Any, Any], stacks: Mapping[int, Stack]) -> bool:
    """Whether storing R (K + N) numbers, less those in a buffer, moves less than reading and writing the sum, 2 K N."""
    kept = sum(v.size for v in pair if id(v) not in stacks)
    return bool(kept <= 2 * pair[0].shape[1] * pair[1].shape[1])


def contract(left: Stack, right: Stack, steps: Any) -> Any:
    """The sum over the steps of left^T right.

    If the number of steps is traced, the rows are multiplied block by block up to it, as slices have static sizes.
    """
    count = known_int(steps)
    if count is not None:
        a, b = (jax.lax.slice_in_dim(s.buffer, s.first, s.first + count) for s in (left, right))
        return _product(a, b)
    room = min(left.buffer.shape[0] - left.first, right.buffer.shape[0] - right.first)
    size = min(room, max(1, _ROWS // left.buffer.shape[1]))
    steps = jnp.asarray(steps, jnp.int32)

    def add(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        begin, total = carry
        # The last block would extend past the buffer: it starts earlier, and rows already counted are masked out.
        at = jnp.minimum(begin, room - size)
        turn = at + jnp.arange(size, dtype=jnp.int32)
        fresh = ((turn >= begin) & (turn < steps))[:, None, None]
        a, b = (jax.lax.dynamic_slice_in_dim(s.buffer, s.first + at, size) for s in (left, right))
        if room % size or not left.ends:
            a = jnp.where(fresh, a, jnp.zeros((), a.dtype))
        if room % size or not right.ends:
            b = jnp.where(fresh, b, jnp.zeros((), b.dtype))
        return begin + size, total + _product(a, b)

    start = jnp.zeros((left.buffer.shape[2], right.buffer.shape[2]), right.buffer.dtype)
    return jax.lax.while_loop(lambda c: c[0] < steps, add, (jnp.int32(0), start))[1]


def _product(a: Any, b: Any) -> Any:
    return over_rows(a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1]))
