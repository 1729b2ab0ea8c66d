"""Facts about a loop's counters and arrays, read off the ops of its body before it is traced.

A counter that is only incremented has the value ``first + stride * t`` in step t, so it is no residual. Nor is an
element of a tensor array that stays live until the gradient: where indices are such counters, it can be decided that no
later write overwrites it. Nor is what a cheap op makes of such a counter and of loop invariants.

Invariant: a fact is true of every step of every run, or it is not stated. The analysis is sound but incomplete:
the effect of an op that it does not follow is unknown, and an unknown index may be any index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.engine.dataflow import all_writes, definitions, flow, sub_blocks, uses
from lowering.loops import arrays
from lowering.loops.carried import known
from lowering.loops.remake import Makers, find_makers
from lowering.loops.save_plan import outer_writes
from lowering.program import BlockView, OpView, ProgramView
from lowering.values import TensorArray

UNDEFINED = np.float32(1.77113e27)  # what Paddle 2 gives a variable without a value


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Affine:
    """The integer ``first + stride * t`` in step t: a pytree without leaves."""

    first: int = field(metadata={"static": True}, default=0)
    stride: int = field(metadata={"static": True}, default=0)
    dtype: str = field(metadata={"static": True}, default="int64")
    shape: tuple[int, ...] = field(metadata={"static": True}, default=(1,))

    def at(self, t: Any) -> Any:
        """The value in step ``t``, with its dtype and shape."""
        value = jnp.asarray(t, self.dtype) * self.stride + self.first
        return value.reshape(self.shape).astype(self.dtype)

    def index(self, t: Any) -> Any:
        """The value in step ``t`` as an int32 scalar."""
        return jnp.asarray(t, jnp.int32) * self.stride + self.first

    def meets(self, other: Affine, earliest: int) -> bool:
        """Whether other(t + k) == self(t) for some k >= ``earliest``; True if undecided.

        With equal strides, other.first + stride * (t + k) == self.first + stride * t gives
        k = (self.first - other.first) / stride, the same for every t.
        """
        distance = self.first - other.first
        if self.stride != other.stride or self.stride == 0:
            return True  # not known to differ
        return distance % self.stride == 0 and distance // self.stride >= earliest


@jax.tree_util.register_static
@dataclass(frozen=True)
class Again:
    """The output of op ``number`` of block ``block`` with this index; its other inputs are live in the gradient.

    Attributes:
        source: where input X is: an array, and the index of its element there; None: it is not an element.
    """

    block: int
    number: int
    index: Affine
    source: tuple[str, Affine] | None = None


@dataclass
class Facts:
    """Facts about the steps of one loop.

    Attributes:
        ends: name -> its value at the end of a step.
        reads: name read from an array, of an element that stays live -> (array, index; None: known at run time).
        writes: name written to an array, where it stays live -> (array, index).
        fixed: arrays that the loop does not write: loop invariants.
        once: arrays whose elements are written at most once, and not read before.
        again: name -> how to recompute it.
        makers: the cheap ops of a step.
    """

    ends: dict[str, Affine] = field(default_factory=dict)
    reads: dict[str, tuple[str, Affine | None]] = field(default_factory=dict)
    writes: dict[str, tuple[str, Affine]] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)
    once: tuple[str, ...] = ()
    again: dict[str, Again] = field(default_factory=dict)
    makers: Makers = field(default_factory=Makers)


@dataclass
class _Access:
    """One op that reads or writes an array: its position, the tensor, and the index if known."""

    position: int
    name: str
    index: Affine | None
    write: bool


def find_facts(program: ProgramView, op: OpView, body: BlockView, env: Mapping[str, Any]) -> Facts:
    """The facts about loop ``op``, which runs ``body`` over ``env``."""
    facts, accesses = Facts(), _accesses(program, body, env)
    facts.ends = accesses.pop("")
    counts, inside = _counts(body), _written_inside(program, body)
    once = []
    for array, own in accesses.items():
        if array in inside or not _stays(program, op.block_idx, op.index, array):
            continue
        writes = [u for u in own if u.write]
        if not writes:
            facts.fixed.add(array)
        for use in own:
            kept = all(_spares(use, w) for w in writes)
            if use.write and use.index is not None and kept and counts.get(use.name) == 1:
                facts.writes[use.name] = (array, use.index)
            elif not use.write and counts.get(use.name) == 1 and (not writes or (kept and use.index is not None)):
                facts.reads[use.name] = (array, use.index)
        if writes and _written_once(own, env.get(array)) and not _read_inside(program, body, array):
            once.append(array)
    facts.once = tuple(sorted(once))
    facts.again = {n: v for n, v in _made_again(program, op, body, env, facts.reads) if counts.get(n) == 1}
    facts.makers = find_makers(program, body, written_alone(program, body), lies_still(program, op))
    return facts


def without_value(program: ProgramView, body: BlockView, names: Iterable[str], env: Mapping[str, Any]) -> set[str]:
    """The names that Paddle 2 marks as without a value before the loop, and which each step writes before it reads.

    The mark has a type and shape of its own, so what the steps make is carried instead: zeros where there is no step.
    """
    marked = {n for n in names if _is_mark(env.get(n))}
    return marked.difference(flow(program, body.ops)[0]) if marked else marked


def _is_mark(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float32 and value.size == 1 and value.item() == UNDEFINED


def _counts(body: BlockView) -> Counter[str]:
    """How many ops of a block write each name."""
    return Counter(n for o in body.ops for n in set(o.output_names()))


def _written_inside(program: ProgramView, body: BlockView) -> set[str]:
    """What the blocks in a block write."""
    return {n for o in body.ops for idx in sub_blocks(o) for n in all_writes(program, idx)}


def written_alone(program: ProgramView, body: BlockView) -> set[str]:
    """The body's own variables that one op writes, and no block inside."""
    counts, inside = _counts(body), _written_inside(program, body)
    return {n for n in body.vars if counts[n] == 1 and n not in inside}


def lies_still(program: ProgramView, op: OpView) -> Callable[[str], bool]:
    """Whether a variable that loop ``op`` does not write is still live, and unchanged, in the loop's gradient."""
    given = set(op.input_names())  # the gradient op reads them too
    return lambda name: name in given and _stays(program, op.block_idx, op.index, name)


def _made_again(
    program: ProgramView,
    loop: OpView,
    body: BlockView,
    env: Mapping[str, Any],
    elements: Mapping[str, tuple[str, Affine | None]],
) -> Iterator[tuple[str, Again]]:
    """Shrunken static inputs and memories: their rows are live anyway, as ``elements`` of arrays or outside the loop,
    and how many of them a step keeps follows from its number."""
    follow = Follow(program, body, env, _counters(program, body, env))
    written = all_writes(program, body.idx)

    def lies(name: str) -> bool:
        # The gradient of a loop in a loop sees of the steps around it only what they saved.
        outer = name in program.blocks[0].vars and name not in written
        return outer and _stays(program, loop.block_idx, loop.index, name)

    for number, op in enumerate(body.ops):
        if op.type == "shrink_rnn_memory":
            index, x = follow.value(op.inputs["I"][0]), op.inputs["X"][0]
            array, at = elements.get(x, ("", None))
            source = (array, at) if at is not None and array in program.blocks[0].vars else None
            if index is not None and lies(op.inputs["RankTable"][0]) and (source is not None or lies(x)):
                yield op.outputs["Out"][0], Again(body.idx, number, index, source)
        follow.run(op)


def _spares(use: _Access, write: _Access) -> bool:
    """Whether no execution of ``write`` after ``use``, in this step or a later one, hits the element of ``use``.

    The first one is in the same step where the write comes later in the block, and in the next step otherwise. A write
    does not hit its own element again if its index moves.
    """
    if use.index is None or write.index is None:
        return False
    if use is write:
        return use.index.stride != 0
    return not use.index.meets(write.index, 0 if write.position > use.position else 1)


def _written_once(uses: list[_Access], before: Any) -> bool:
    """Whether a single write fills each element at most once, and before anything reads it.

    Its index grows from the array's length on, so each step writes an element of its own that was not there before;
    and no write hits an element that an earlier access has used.
    """
    writes = [u for u in uses if u.write]
    held = arrays.length(before) if before is None or isinstance(before, TensorArray) else None
    if len(writes) != 1 or not isinstance(held, int):
        return False
    index = writes[0].index
    if index is None or index.stride <= 0 or index.first < held:
        return False
    return all(_spares(u, writes[0]) for u in uses)


def _read_inside(program: ProgramView, body: BlockView, array: str) -> bool:
    return any(sub_blocks(o) and array in uses(program, o) for o in body.ops)


def _stays(program: ProgramView, block_idx: int, index: int, array: str) -> bool:
    """Whether no forward op that runs after op ``index`` of a block writes the array."""
    block = program.blocks[block_idx]
    # A block of a surrounding loop may run again, so that the ops before op ``index`` run after it as well. A
    # variable of the block itself starts anew with each run.
    again = block_idx != 0 and array not in block.vars
    for op in block.ops:
        if op.index == index or op.is_backward or (op.index < index and not again):
            continue
        if array in definitions(program, op):
            return False
    if not again:
        return True
    runs = [(b.idx, o.index) for b in program.blocks for o in b.ops if block_idx in sub_blocks(o)]
    return all(_stays(program, idx, position, array) for idx, position in runs)


# --- indices ------------------------------------------------------------------------------------------------------


def _accesses(program: ProgramView, body: BlockView, env: Mapping[str, Any]) -> dict[str, Any]:
    """array -> its accesses; under '' the names whose value at the end of a step is known."""
    follow = Follow(program, body, env, _counters(program, body, env))
    found: dict[str, Any] = {}
    for position, op in enumerate(body.ops):
        if op.type in ("read_from_array", "write_to_array"):
            write = op.type == "write_to_array"
            array = op.outputs["Out"][0] if write else op.inputs["X"][0]
            name = op.inputs["X"][0] if write else op.outputs["Out"][0]
            use = _Access(position, name, follow.value(op.inputs["I"][0]), write)
            found.setdefault(array, []).append(use)
        follow.run(op)
    found[""] = {n: v for n, v in follow.now.items() if v is not None}
    return found


def _counters(program: ProgramView, body: BlockView, env: Mapping[str, Any]) -> dict[str, Affine]:
    """Integers outside the loop that each step changes by the same amount.

    Each name is followed separately, from its value before the loop: only ``increment`` and ``assign`` are followed,
    so if the end of the step is known, the step maps every x to x + c, and c is the same for all steps.
    """
    found = {}
    for name in outer_writes(body):
        start = _constant(env, name)
        if start is None:
            continue
        follow = Follow(program, body, {}, {name: start})
        for op in body.ops:
            follow.run(op)
        end = follow.now.get(name)
        if end is not None:
            found[name] = Affine(start.first, end.first - start.first, start.dtype, start.shape)
    return found


def _constant(env: Mapping[str, Any], name: str) -> Affine | None:
    value = env.get(name)
    host = None if isinstance(value, TensorArray) else known(value)
    if host is None or host.size != 1 or host.dtype not in (np.int32, np.int64):
        return None
    return Affine(int(host.reshape(())), 0, str(host.dtype), host.shape)


class Follow:
    """Follows integers through the ops of one step."""

    def __init__(self, program: ProgramView, body: BlockView, env: Mapping[str, Any], start: Mapping[str, Affine]):
        self.program, self.env = program, env
        self.now: dict[str, Affine | None] = dict(start)
        self.written = {n for op in body.ops for n in op.output_names()}

    def value(self, name: str) -> Affine | None:
        """The value that a name has before the next op; None if it is not known."""
        if name in self.now:
            return self.now[name]
        return None if name in self.written else _constant(self.env, name)

    def run(self, op: OpView) -> None:
        """Process an op."""
        if op.type in ("increment", "assign"):
            x, step = self.value(op.inputs["X"][0]), op.attrs.get("step", 1.0) if op.type == "increment" else 0
            moved = None
            if x is not None and int(step) == step:
                moved = Affine(x.first + int(step), x.stride, x.dtype, x.shape)
            self.now[op.outputs["Out"][0]] = moved
            return
        self.now.update(dict.fromkeys(definitions(self.program, op)))
