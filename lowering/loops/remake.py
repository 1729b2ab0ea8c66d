"""Residuals that a loop's gradient recomputes because storing them would move more memory.

Attention adds a small query to the keys of a whole batch: the result is as large as the keys and differs in each
step, while each step adds only the query to the unchanged keys. Such values are recomputed from the query, by the
same ops as before: rematerialization (Chen et al., "Training deep nets with sublinear memory cost", 2016), for
elementwise ops alone.

Invariant: when the ops run again, each of their inputs has the value that it had in the step. It is written once
in the step, or is a loop invariant that stays live, or is recomputed itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax

from lowering.engine.run import Run
from lowering.program import GRAD, BlockView, OpView, ProgramView

# Ops that compute each element from one element of each input.
CHEAP = frozenset(
    "abs assign brelu cast cos elementwise_add elementwise_div elementwise_max elementwise_min elementwise_mul"
    " elementwise_sub exp expand expand_as flatten flatten2 hard_sigmoid leaky_relu relu relu6 reshape reshape2 scale"
    " sequence_expand sequence_expand_as sigmoid sin softsign sqrt square squeeze squeeze2 tanh unsqueeze"
    " unsqueeze2".split()
)
# The size in bytes of a residual in one step from which it is considered.
_WORTH = 1 << 14


@jax.tree_util.register_static
@dataclass(frozen=True)
class Remade:
    """A value that ops ``numbers`` of block ``block`` compute from saved values or values outside the loop."""

    block: int
    numbers: tuple[int, ...]


@dataclass
class Makers:
    """The values of a step computed by cheap ops.

    Attributes:
        ops: name -> number of the op that writes it, of those whose inputs are as they were when the step has ended.
        around: inputs of these ops from outside the loop that do not change.
    """

    body: BlockView | None = None
    ops: dict[str, int] = field(default_factory=dict)
    around: set[str] = field(default_factory=set)


def find_makers(
    program: ProgramView,
    body: BlockView,
    once: Collection[str],
    stays: Callable[[str], bool],
    given: Iterable[str] = (),
) -> Makers:
    """The cheap ops of a loop's body.

    Args:
        once: names that the body writes once, and no block inside it.
        stays: whether no op writes a variable during the loop or after it: it is a loop invariant and stays live.
        given: names that have a value when a step starts, which the body does not write.
    """
    makers = Makers(body)
    placed = set(given)
    written = placed.union(*(op.output_names() for op in body.ops))
    for number, op in enumerate(body.ops):
        outputs, inputs = set(op.output_names()), set(op.input_names())
        around = inputs - written
        # The gradient of a loop in a loop sees of the steps around it only what they saved.
        there = all(n in program.blocks[0].vars and GRAD not in n and stays(n) for n in sorted(around))
        if op.type in CHEAP and outputs <= set(once) and inputs - around <= placed and there:
            makers.ops.update(dict.fromkeys(outputs, number))
            makers.around |= around
        placed |= outputs & set(once)
    return makers


class Choice:
    """Decides which values of a step are recomputed.

    Args:
        makers: the cheap ops.
        env: the values at the end of a step.
        free: names available without being saved and without being computed from what is saved.

    Attributes:
        made: name -> how it is recomputed.
        sources: names that must be available for it, including free ones.
    """

    def __init__(self, makers: Makers, env: Mapping[str, Any], free: Collection[str]):
        self.makers, self.env, self.free = makers, env, free
        self.made: dict[str, Remade] = {}
        self.sources: set[str] = set()

    def run(self, kept: Iterable[str]) -> None:
        """Choose among ``kept``, names that would be saved: those at least twice as large as their sources."""
        body = self.makers.body
        kept = [n for n in kept if n in self.makers.ops and self._size((n,)) >= _WORTH]
        for name in sorted(kept, key=lambda n: self.makers.ops[n]):
            numbers, sources = self._back(name, {})
            if body is not None and 2 * self._size(sources) <= self._size((name,)):
                self.made[name] = Remade(body.idx, tuple(sorted(numbers)))
                self.sources |= sources

    def _back(self, name: str, seen: dict[str, tuple[set[int], set[str]]]) -> tuple[set[int], set[str]]:
        """(numbers of the ops, initial names) by which ``name`` is computed from as little as possible."""
        if name in seen:
            return seen[name]
        number = self.makers.ops[name]
        numbers, sources = {number}, set()
        for n in self._op(number).input_names():
            if n in self.makers.around:
                continue
            if n in self.makers.ops and n not in self.free:
                deeper, start = self._back(n, seen)
                if self._size(start) < self._size((n,)):
                    numbers |= deeper
                    sources |= start
                    continue
            sources.add(n)
        seen[name] = numbers, sources
        return numbers, sources

    def _op(self, number: int) -> OpView:
        assert self.makers.body is not None
        return self.makers.body.ops[number]

    def _size(self, names: Iterable[str]) -> int:
        """Bytes of values that are saved."""
        leaves = jax.tree_util.tree_leaves([self.env[n] for n in names if n not in self.free])
        return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


def remake(made: Mapping[str, Remade], env: Mapping[str, Any], runner: Run) -> dict[str, Any]:
    """The recomputed values, from ``env``, which holds what was saved and what is outside the loop."""
    step = dict(env)
    for block, number in sorted({(v.block, number) for v in made.values() for number in v.numbers}):
        step.update(runner.run_op(runner.program.blocks[block].ops[number], step))
    return {name: step[name] for name in made}
