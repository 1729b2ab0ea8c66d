"""What a loop or branch carries and saves, determined from its blocks; and its trip count, if constants determine it.

Residuals: every name that the gradient block reads before it writes it, and that its forward step defines, is in the
plan, at the end of the step or at its start, whichever the gradient needs. A name that the step does not define is
no residual: the gradient block finds it in the environment around the loop.

Trip counts: a value counts as known only if every op that computes it is followed. So an exact count is the number of
steps of the run, and an inexact one, which continues while the condition is unknown, is an upper bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from lowering import equality
from lowering.dtypes import is_float, to_numpy
from lowering.engine.dataflow import Use, all_writes, block_uses, sub_blocks, uses
from lowering.loops import arrays
from lowering.loops.carried import known, known_int
from lowering.program import GRAD, BlockView, OpView, ProgramView, forward_name
from lowering.values import TensorArray

# A loop with known counters is followed this far before it is taken to be endless.
_LONGEST_WALK = 200_000
_LONGEST_HOPE = 8192  # while the condition is unknown


def outer_writes(block: BlockView) -> list[str]:
    """Names that a block writes and that belong to an outer block, in order."""
    written = dict.fromkeys(n for op in block.ops for n in op.output_names())
    return [n for n in written if n not in block.vars]


def gradient_blocks(program: ProgramView, op: OpView, slot: str, type: str) -> list[int]:
    """The gradient blocks of ``op``, one per backward pass: of ops ``type`` that read its step scopes (``slot``)."""
    scopes = list(op.outputs.get(slot) or ())
    if not scopes:
        return []
    readers = (o for b in program.blocks for o in b.ops if o.type == type and scopes[0] in o.input_names())
    return [int(o.attrs["sub_block"]) for o in readers]


def seen_from_outside(op: OpView, env: Mapping[str, Any]) -> dict[str, Any]:
    """What the block of gradient op ``op`` sees outside: no gradients except those passed in by slots.

    Inside, ``x@GRAD`` is the gradient of this backward pass; outside the name may belong to another pass.
    """
    forward = {n for slot, names in op.inputs.items() if GRAD not in slot for n in names}
    return {n: v for n, v in env.items() if GRAD not in n or n in forward}


def passed_on(program: ProgramView, idx: int) -> set[str]:
    """The gradients for which gradient block ``idx`` has a new value: what it writes, and passes to a nested block.

    Any other one that flows into the block ends there. A nested block has gradients of its own under the same names.
    """
    ops = program.blocks[idx].ops
    handed = {n for op in ops if sub_blocks(op) for n in op.inputs.get("Out" + GRAD) or ()}
    return handed.union(*(op.output_names() for op in ops))


def gives_anew(program: ProgramView, idx: int) -> set[str]:
    """What block ``idx`` or a nested block writes, except by ops that pass a variable and its gradient through."""
    found: set[str] = set()
    for op in program.blocks[idx].ops:
        inner = sub_blocks(op)
        if inner:
            found = found.union(*(gives_anew(program, i) for i in inner))
        elif op.type not in ("assign", "increment") or list(op.inputs["X"]) != list(op.outputs["Out"]):
            found.update(op.output_names())
    return found


def ending(program: ProgramView, grad_idx: int, gradients: Iterable[str]) -> set[str]:
    """Those of the ``gradients`` that flow into a block from what follows it and are zero before it.

    Their variables get other values in the forward block, and the gradient block has no new value for them.
    """
    passed, forward = passed_on(program, grad_idx), program.blocks[grad_idx].forward_idx
    anew = gives_anew(program, forward) if forward >= 0 else None
    return {n for n in gradients if n not in passed and (anew is None or n.rpartition(GRAD)[0] in anew)}


# Marks the value at the start of a step, as another gradient block of the loop may need the one at its end.
BEFORE = "@BEFORE@"


@dataclass
class SavePlan:
    """What one step saves for the gradient.

    ``final``: residuals with their value at the end of the step; ``before``: outer names with their value at its start;
    ``shapes``: names of which only shape and LoD are read, so that the data need not stay live; ``forms``: those whose
    gradients have their form, which is kept where it is that of a value with room.
    """

    final: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    shapes: set[str] = field(default_factory=set)
    forms: list[str] = field(default_factory=list)


def save_plan(
    program: ProgramView, forward: BlockView, grads: Iterable[int], written: Iterable[str]
) -> SavePlan | None:
    """What the gradient blocks ``grads`` read of a step of ``forward``; None if there are none.

    Args:
        written: names of outer tensors (no arrays) that the step writes.
    """
    plans = [_plan_of(program, forward, idx, set(written)) for idx in grads]
    if not plans:
        return None
    final = list(dict.fromkeys(n for p in plans for n in p.final))
    before = list(dict.fromkeys(n for p in plans for n in p.before))
    whole = {n for p in plans for n in p.final if n not in p.shapes}
    forms = list(dict.fromkeys(n for p in plans for n in p.forms if n not in final))
    return SavePlan(final, before, set(final) - whole, forms)


def _plan_of(program: ProgramView, forward: BlockView, grad_idx: int, written: set[str]) -> SavePlan:
    plan = SavePlan(forms=[n for n in _with_gradients(program, grad_idx) if n in forward.vars])
    rewound = all_writes(program, grad_idx)
    for name, use in block_uses(program, grad_idx).items():
        if use is Use.HINT:
            continue
        if name in forward.vars:
            plan.final.append(name)
            if use is Use.SHAPE:
                plan.shapes.add(name)
        elif name in written and GRAD not in name:
            # A variable that the gradient block rewinds starts there with the end's value. Of any other the forward
            # ops that read it before its write saw the value at the start, and so must their gradient ops.
            early = name not in rewound and _read_before_written(program, forward, name)
            (plan.before if early else plan.final).append(name)
    return plan


def _with_gradients(program: ProgramView, grad_idx: int) -> list[str]:
    """The variables whose gradients the ops of a gradient block read or write."""
    ops = program.blocks[grad_idx].ops
    gradients = (n for op in ops for n in (*op.input_names(), *op.output_names()) if GRAD in n)
    return list(dict.fromkeys(map(forward_name, gradients)))


def seen_early(program: ProgramView, forward_idx: int, grad_idx: int, name: str) -> bool:
    """Whether a gradient step sees an outer variable as it was before the forward step, rather than after it."""
    rewound = all_writes(program, grad_idx)
    return name not in rewound and _read_before_written(program, program.blocks[forward_idx], name)


def _read_before_written(program: ProgramView, block: BlockView, name: str) -> bool:
    for op in block.ops:
        if uses(program, op).get(name, Use.HINT) is not Use.HINT:
            return True
        if name in op.output_names():
            return False
    return False


# --- trip counts --------------------------------------------------------------------------------------------------


@dataclass
class Trips:
    """The result of following a loop's counters on the host.

    ``trips``: steps taken, or an upper bound if not ``exact``; None if unknown. ``after``: values
    known after the loop (exact counts only); ``lengths``: array -> elements it needs, for those with known indices;
    ``unsure``: arrays written at unknown indices.
    """

    trips: int | None = None
    exact: bool = False
    after: dict[str, np.ndarray] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)


def _scale(x: np.ndarray, a: Mapping[str, Any]) -> np.ndarray:
    bias = a.get("bias", 0.0)
    y = x * a.get("scale", 1.0) + bias if a.get("bias_after_scale", True) else (x + bias) * a.get("scale", 1.0)
    return np.asarray(y).astype(x.dtype)


_UNARY = {
    "increment": lambda x, a: (x + np.asarray(a.get("step", 1.0)).astype(x.dtype)).astype(x.dtype),
    "assign": lambda x, a: x,
    "scale": _scale,
    "cast": lambda x, a: x.astype(to_numpy(a["out_dtype"])),
    "logical_not": lambda x, a: ~x,
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "less_than": np.less,
    "less_equal": np.less_equal,
    "greater_than": np.greater,
    "greater_equal": np.greater_equal,
    "equal": partial(equality.equal, np),
    "not_equal": partial(equality.not_equal, np),
    "elementwise_add": np.add,
    "elementwise_sub": np.subtract,
    "elementwise_mul": np.multiply,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}
# Comparisons that a smaller value of the named side can only turn false: if they are false for an upper bound, they
# are false for the value.
_FALSE_FROM_BOUND = {"less_than": ("Y", np.less), "less_equal": ("Y", np.less_equal),
                     "greater_than": ("X", np.greater), "greater_equal": ("X", np.greater_equal)}  # fmt: skip


class _Host:
    """The values of a loop body that are known on the host, followed through its steps."""

    def __init__(self, block: BlockView, env: Mapping[str, Any], bounds: Mapping[str, int]):
        self.block, self.bounds = block, bounds
        self.known: dict[str, np.ndarray] = {}
        self.env = env
        self.result = Trips()
        self.lost: set[str] = set()  # names written by a followed op from something unknown; the env's value is stale
        self.clobbered = {n for op in block.ops if not _followed(op) for n in op.output_names()}
        # Whether a condition that is unknown in a step may become known later: values of later steps are as well known
        # as those of this one, except for one side of an ``and`` or of a bounded comparison.
        self.hopeful = False

    def value(self, name: str) -> np.ndarray | None:
        if name in self.known:
            return self.known[name]
        if name in self.clobbered or name in self.lost:
            return None
        found = known(self.env.get(name)) if not isinstance(self.env.get(name), TensorArray) else None
        return found if found is not None and found.size <= 4 else None

    def step(self) -> None:
        """Follow one step; what an op that is not followed writes is unknown after it, whoever wrote it before."""
        self.hopeful = False
        for op in self.block.ops:
            if not _followed(op):
                self._lose(op.output_names())
                continue
            if op.type == "write_to_array":
                self._note_write(op)
                continue
            out = op.output_names()[0]
            value = self._evaluate(op)
            if value is None:
                self._lose([out])
            else:
                self.known[out] = value
                self.lost.discard(out)

    def _lose(self, names: Iterable[str]) -> None:
        for name in names:
            self.known.pop(name, None)
            self.lost.add(name)

    def _note_write(self, op: OpView) -> None:
        array, index = op.outputs["Out"][0], self.value(op.inputs["I"][0])
        if index is None:
            self.result.unsure.add(array)
        else:
            self.result.lengths[array] = max(self.result.lengths.get(array, 0), int(index.reshape(())) + 1)

    def _length(self, array: str) -> np.ndarray | None:
        """The number of elements, if all of them were written at known indices."""
        if array in self.clobbered | self.lost | self.result.unsure:
            return None
        before = arrays.length(self.env.get(array))
        return np.array([max(before, self.result.lengths.get(array, 0))]) if isinstance(before, int) else None

    def _evaluate(self, op: OpView) -> np.ndarray | None:
        if op.type == "fill_constant":
            return _constant(op)
        if op.type == "lod_array_length":
            return self._length(op.inputs["X"][0])
        if op.type in _UNARY:
            x = self.value(op.inputs["X"][0])
            return None if x is None else np.asarray(_UNARY[op.type](x, op.attrs))
        x, y = self.value(op.inputs["X"][0]), self.value(op.inputs["Y"][0])
        if x is not None and y is not None:
            return np.asarray(_BINARY[op.type](x, y))
        return self._false_anyway(op, x, y)

    def _false_anyway(self, op: OpView, x: Any, y: Any) -> np.ndarray | None:
        """False although a side is unknown: an ``and`` with False, or a comparison with an upper bound."""
        if op.type == "logical_and" and (x is not None or y is not None):
            self.hopeful = True
            return np.zeros(1, bool) if any(v is not None and not v.any() for v in (x, y)) else None
        if op.type in _FALSE_FROM_BOUND:
            side, compare = _FALSE_FROM_BOUND[op.type]
            bound = self.bounds.get(op.inputs[side][0])
            other = x if side == "Y" else y
            if bound is not None and other is not None:
                self.hopeful = True
                holds = compare(other, bound) if side == "Y" else compare(bound, other)
                return None if holds.any() else np.zeros(1, bool)
        return None


def _followed(op: OpView) -> bool:
    if op.type in ("write_to_array", "lod_array_length"):
        return True
    if op.type == "fill_constant":
        return not op.input_names()
    return op.type in _UNARY or op.type in _BINARY


def _constant(op: OpView) -> np.ndarray | None:
    shape = op.attrs.get("shape") or [1]
    if int(np.prod(shape)) > 4:
        return None
    text = op.attrs.get("str_value") or op.attrs.get("value", 0.0)
    return np.full(shape, float(text)).astype(to_numpy(op.attrs["dtype"]))


def follow_trips(block: BlockView, cond: str, env: Mapping[str, Any], bounds: Mapping[str, int]) -> Trips:
    """Follow the counters of a while loop's body on the host; see ``Trips``.

    While the condition is unknown this goes on as if it were true, so the steps it takes are an upper bound.
    """
    host = _Host(block, env, bounds)
    start = known_int(env.get(cond))
    result, exact = host.result, start is not None
    running, trips = start is None or bool(start), 0
    while running and trips < _LONGEST_WALK:
        host.step()
        trips += 1
        now = host.value(cond)
        if now is None:
            exact = False
            if not host.known or trips > _LONGEST_HOPE or (trips > 2 and not host.hopeful):
                return Trips(unsure=set(result.lengths) | result.unsure)
        else:
            running = bool(now.reshape(()))
    if running:
        return Trips(unsure=set(result.lengths) | result.unsure)
    result.trips, result.exact = trips, exact
    if exact:
        result.after = {n: v for n, v in host.known.items() if not is_float(v.dtype)}
    return result
