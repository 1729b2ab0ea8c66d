"""Updates of large tables on CPUs, block by block.

XLA compiles what an optimizer does to a table into a loop over all of it for each array that it writes, and each loop
fetches from memory again what the last one left there. Here one loop goes through the arrays in blocks that stay in the
cache, and changes them in place: 0.55 to 0.85 of the time. Tables of 3 to 24 columns need a third: XLA's loop over so
few is unrolled whole by LLVM, which then divides and takes roots of one number at a time. Last bits may differ, where
LLVM rounds a product and a sum together in one loop and apart in the other.

XLA runs such a loop on one processor only, so it has to gain more than the others would. And what the loop changes it
must not have to copy first: a weight that the backward pass multiplies with, at a time that nothing ties to the
update, is updated as ever; the rows of a table are read before there is any gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from lowering.engine.context import Env
from lowering.engine.dataflow import Use, uses
from lowering.engine.one_hot import OneHotRunner
from lowering.extend import function_of, is_literal
from lowering.machine import processors
from lowering.program import OpView
from lowering.registry import get_op

_BLOCK = 1 << 16  # elements of a block, about
# The fewest elements of a table, as the loop takes longer to compile, and the processors that take as long as one.
_NARROW, _WIDE = (1 << 18, 2), (1 << 21, 1)
_UNROLLED = frozenset(range(3, 25)) - {4, 8}  # columns that LLVM unrolls to single numbers
_BY_ELEMENTS = frozenset(
    "abs add broadcast_in_dim convert_element_type copy div eq exp ge gt integer_pow le log lt max min mul ne neg pow"
    " reshape rsqrt select_n sign sqrt square squeeze sub".split()
)
_CALLS = frozenset({"jit", "pjit"})


class UpdateRunner(OneHotRunner):
    """Runs ops in one trace for a CPU, with the updates of large tables block by block."""

    def _run_op(self, op: OpView, env: Env) -> dict[str, Any]:
        table = self._table(op, env)
        results = None if table is None else self._by_blocks(op, env, table)
        return super()._run_op(op, env) if results is None else results

    def _table(self, op: OpView, env: Env) -> jax.Array | None:
        """The table that an op updates, if that may be worth it."""
        if op.block_idx or "Param" not in op.inputs or len(get_op(op.type).inplace) < 2:
            return None
        (name,), table = op.inputs["Param"][:1], env.get(op.inputs["Param"][0])
        if not isinstance(table, jax.Array) or table.ndim < 2:
            return None
        least, most = _NARROW if table.shape[-1] in _UNROLLED else _WIDE
        if table.size < least or processors() > most or name in self._read_backwards:
            return None
        # A step that may have to give its state back copies what a loop changes.
        return None if self.overflows or self.watch is not None and self.watch.faults else table

    @cached_property
    def _read_backwards(self) -> frozenset[str]:
        """Variables whose numbers an op of a backward pass reads."""
        ops = [op for op in self.program.blocks[0].ops if op.is_backward and get_op(op.type).forward is not None]
        return frozenset(name for op in ops for name, use in uses(self.program, op).items() if use is Use.DATA)

    def _by_blocks(self, op: OpView, env: Env, table: jax.Array) -> dict[str, Any] | None:
        """The op's results; None where it does more than change elements one by one."""
        names = list(dict.fromkeys(op.input_names()))
        values: list[Any] = [env.get(name) for name in names]
        size = _size_of_block(table.size)
        plain = [isinstance(v, (jax.Array, np.ndarray)) and (v.shape == table.shape or v.size == 1) for v in values]
        if size is None or not all(plain):
            return None
        written: list[str] = []

        def rule(*given: Any) -> list[Any]:
            results = super(UpdateRunner, self)._run_op(op, {**env, **dict(zip(names, given, strict=True))})
            written[:] = results
            return list(results.values())

        forms = [jax.ShapeDtypeStruct((size,) if v.shape == table.shape else v.shape, v.dtype) for v in values]
        update = _Update.of(jax.make_jaxpr(rule)(*forms), names, written, size)
        if update is None:
            return None
        return update.run(dict(zip(names, values, strict=True)), size)


def _size_of_block(count: int) -> int | None:
    """The size of equal blocks, near the usual one; None where there is none."""
    near = range(_BLOCK, _BLOCK // 4, -1), range(_BLOCK + 1, 2 * _BLOCK)
    return next((size for sizes in near for size in sizes if count % size == 0), None)


class _Step(NamedTuple):
    """One array's new elements, by ``function(*those of arrays, *numbers)``."""

    name: str
    function: Callable[..., Any]
    arrays: Sequence[str]


class _Update(NamedTuple):
    """How elements change, one by one.

    Attributes:
        steps: each writes one of the arrays, and reads others as the steps before left them.
        numbers: single numbers that are the same for all elements, from what the op reads.
        single: the names of the first of these, which are results themselves.
    """

    steps: Sequence[_Step]
    numbers: Callable[..., Any]
    single: Sequence[str]

    @staticmethod
    def of(whole: Any, names: Sequence[str], written: Sequence[str], size: int) -> _Update | None:
        """From an op's equations on blocks; None where elements depend on other ones, or on what is overwritten."""
        jaxpr = whole.jaxpr
        blocks = {v for v in jaxpr.invars if v.aval.shape == (size,)}
        inner: list[Any] = []
        outer: list[Any] = []
        for equation in jaxpr.eqns:
            of_blocks = not blocks.isdisjoint(v for v in equation.invars if not is_literal(v))
            if of_blocks and not _by_elements(equation, size):
                return None
            (inner if of_blocks else outer).append(equation)
            blocks.update(equation.outvars if of_blocks else ())
        results = dict(zip(written, jaxpr.outvars, strict=True))
        arrays = {name: v for name, v in results.items() if not is_literal(v) and v in blocks}
        single = [name for name in written if name not in arrays]
        if not arrays.keys() <= set(names) or any(is_literal(results[name]) for name in single):
            return None
        known = {v for e in outer for v in e.outvars}.union(jaxpr.invars, jaxpr.constvars) - blocks
        numbers = [v for v in dict.fromkeys(_reads(inner)) if v in known]
        steps = _in_order(whole, inner, dict(zip(names, jaxpr.invars, strict=True)), arrays, numbers)
        found = function_of(whole, jaxpr.invars, [*(results[n] for n in single), *numbers], outer, jaxpr.effects)
        return None if steps is None else _Update(steps, found, single)

    def run(self, values: dict[str, Any], size: int) -> dict[str, Any]:
        """The results, from all that the op reads."""
        shape = values[self.steps[0].name].shape
        count = math.prod(shape)
        numbers = self.numbers(*values.values())
        single, numbers = numbers[: len(self.single)], numbers[len(self.single) :]
        flat = {name: v.reshape(-1) for name, v in values.items() if math.prod(v.shape) == count}
        changed = [step.name for step in self.steps]

        def block(at: Any, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
            now = {**flat, **dict(zip(changed, arrays, strict=True))}
            for step in self.steps:
                read = [jax.lax.dynamic_slice_in_dim(now[name], at * size, size) for name in step.arrays]
                (new,) = step.function(*read, *numbers)
                now[step.name] = jax.lax.dynamic_update_slice_in_dim(now[step.name], new, at * size, 0)
            return tuple(now[name] for name in changed)

        arrays = jax.lax.fori_loop(0, count // size, block, tuple(flat[name] for name in changed))
        whole = (array.reshape(shape) for array in arrays)
        return {**dict(zip(self.single, single, strict=True)), **dict(zip(changed, whole, strict=True))}


def _by_elements(equation: Any, size: int) -> bool:
    if equation.primitive.name in _CALLS:
        return all(_by_elements(e, size) for e in equation.params["jaxpr"].eqns)
    shapes = {v.aval.shape for v in (*equation.invars, *equation.outvars)}
    return equation.primitive.name in _BY_ELEMENTS and shapes <= {(size,), (), (1,)} and not equation.effects


def _reads(equations: Sequence[Any]) -> Iterator[Any]:
    return (v for e in equations for v in e.invars if not is_literal(v))


def _in_order(
    whole: Any, equations: Sequence[Any], given: dict[str, Any], arrays: dict[str, Any], numbers: Sequence[Any]
) -> list[_Step] | None:
    """Steps of which each reads, of the arrays that change, only its own and those that are changed already.

    XLA would copy an array that another step still reads as it was.
    """
    steps: list[_Step] = []
    read_only = {v: name for name, v in given.items() if name not in arrays}
    while len(steps) < len(arrays):
        done = {arrays[step.name]: step.name for step in steps}
        for name in arrays.keys() - done.values():
            known = {**read_only, given[name]: name, **done}
            needed = _needed(equations, arrays[name], {*known, *numbers})
            read = [v for v in dict.fromkeys([*_reads(needed), arrays[name]]) if v in known]
            made = {v for e in needed for v in e.outvars}
            if {*_reads(needed), arrays[name]} <= {*made, *known, *numbers}:
                function = function_of(whole, [*read, *numbers], [arrays[name]], needed, frozenset())
                steps.append(_Step(name, function, [known[v] for v in read]))
                break
        else:
            return None
    return steps


def _needed(equations: Sequence[Any], result: Any, known: set[Any]) -> list[Any]:
    """The equations that make ``result`` from what is known."""
    wanted, found = {result} - known, []
    for equation in reversed(equations):
        if not wanted.isdisjoint(equation.outvars):
            found.append(equation)
            wanted.update(v for v in equation.invars if not is_literal(v) and v not in known)
    return found[::-1]
