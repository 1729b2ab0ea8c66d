"""Single numbers of a program's state that are equal and stay equal pass as one: Adam keeps two for each parameter.

Each would be an argument, a result, a kernel that advances it and a copy for those who read it before: a third of the
kernels of a Transformer's step. Numbers are taken for one if they are equal when the state is gathered and the program
uses them alike; that they stay equal is proven of the traced step, and where it cannot be, they are passed one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Any

import jax

from fluidjax.execution.steps.alike import Alike, Each, Rows, Same
from fluidjax.execution.steps.buffers import Unequal
from lowering.program import BOOKKEEPING, ROLE_OPTIMIZE, OpView, ProgramView, VarView

_LOD_TENSOR = VarView("").type


def fates(program: ProgramView, names: Sequence[str]) -> dict[int, Hashable]:
    """What becomes of single numbers of the state in a run, by their positions in ``names``; others are left out.

    A guess that spares most steps a second trace: only ops of an optimizer use them, or ops that read nothing else, and
    in a way in which a number does not follow from a gradient. The moment of a bias of one number does.
    """
    wanted = {name: i for i, name in enumerate(names) if _is_number(program, name)}
    uses: dict[str, list[Hashable]] = {}
    for op in (op for block in program.blocks for op in block.ops) if len(wanted) > 1 else ():
        used = wanted.keys() & {*op.input_names(), *op.output_names()}
        effect = _effect(program, op, used) if used else None
        for name in used:
            uses.setdefault(name, []).append(effect and (effect, _slots(op, name)))
    return {i: tuple(uses[name]) for name, i in wanted.items() if None not in uses.get(name, (None,))}


def _effect(program: ProgramView, op: OpView, used: Collection[str]) -> Hashable:
    """What an op does with the numbers that it uses; None where those of such ops may come to differ."""
    read = op.input_names()
    optimizes = bool(int(op.attrs.get("op_role", 0)) & ROLE_OPTIMIZE)
    if op.block_idx or not (optimizes or {*read} <= {*used}):
        return None
    variables = [program.find_var(0, name) for name in read]
    if any(var is None or var.type != _LOD_TENSOR for var in variables):
        return None
    if any(_is_number(program, name) for name in op.inputs.get("Param", ())):
        return None
    return op.type, repr(sorted((name, v) for name, v in op.attrs.items() if name not in BOOKKEEPING))


def _slots(op: OpView, name: str) -> Hashable:
    """Where an op reads and writes a variable."""
    bound = (*op.inputs.items(), *op.outputs.items())
    return tuple((slot, k) for slot, names in bound for k, n in enumerate(names) if n == name)


def _is_number(program: ProgramView, name: str) -> bool:
    """Whether a variable is declared as a single number."""
    var = program.find_var(0, name)
    return var is not None and var.shape == (1,)


def proven(traced: Any, equal: Sequence[Sequence[int]], arguments: Any, donated: tuple[int, ...]) -> Any:
    """A ``jax.stages.Traced`` without its last result: the values of each group of numbers that are to be ``equal``.

    Raises Unequal where they may come to differ.
    """
    if not equal:
        return traced
    whole = traced.jaxpr
    results, alike = whole.jaxpr.outvars, Alike(whole)
    for group in reversed(equal):
        results, values = results[: -len(group)], results[-len(group) :]
        if not _one(alike.rows(values)):
            raise Unequal
    structure = jax.tree_util.tree_structure(traced.out_info[:-1])
    left = whole.jaxpr.replace(outvars=results)

    def run(*arguments: Any) -> Any:
        found = jax.core.eval_jaxpr(left, whole.consts, *jax.tree_util.tree_leaves(arguments))
        return jax.tree_util.tree_unflatten(structure, found)

    return jax.jit(run, donate_argnums=donated).trace(*arguments)


def _one(rows: Rows | None) -> bool:
    """Whether rows that are made alike are made of the same values."""
    return isinstance(rows, Same) or (isinstance(rows, Each) and all(map(_one, rows.operands)))
