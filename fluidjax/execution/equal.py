"""Single numbers of a program's state that are equal and stay equal pass as one: Adam keeps two for each parameter.

Each would be an argument, a result, a kernel that advances it and a copy for those who read it before: a third of the
kernels of a Transformer's step. Numbers are taken for one if they are equal when the state is gathered and the program
uses them alike; that they stay equal is proven of the traced step, and where it cannot be, they are passed one by one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import jax

from fluidjax.execution.alike import Alike, Each, Rows, Same
from fluidjax.execution.buffers import Unequal
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
        for name in wanted.keys() & {*op.input_names(), *op.output_names()}:
            uses.setdefault(name, []).append(_use(program, op, name))
    return {i: tuple(uses[name]) for name, i in wanted.items() if None not in uses.get(name, (None,))}


def _use(program: ProgramView, op: OpView, name: str) -> Hashable:
    """What an op does with a number; None where others may come to differ from it."""
    optimizes = bool(int(op.attrs.get("op_role", 0)) & ROLE_OPTIMIZE)
    if op.block_idx or not (optimizes or {*op.input_names()} <= {name}):
        return None
    read = [program.find_var(0, n) for n in op.input_names()]
    if any(var is None or var.type != _LOD_TENSOR for var in read) or _is_number(program, *op.inputs.get("Param", ())):
        return None
    slots = tuple(
        (slot, k) for names in (op.inputs, op.outputs) for slot in names for k, n in enumerate(names[slot]) if n == name
    )
    attrs = sorted((a, v) for a, v in op.attrs.items() if a not in BOOKKEEPING)
    return op.type, slots, repr(attrs)


def _is_number(program: ProgramView, *names: str) -> bool:
    """Whether one of the variables is declared as a single number."""
    return any(var is not None and var.shape == (1,) for var in (program.find_var(0, name) for name in names))


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
