"""The gradients as the executor computes them: compiled, in float32, with ragged feeds padded to their buckets."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import lowering
from fluidjax.base.places import CPUPlace
from fluidjax.base.scope import Scope
from fluidjax.execution.scopes.exchange import to_holder, to_lowering
from fluidjax.execution.scopes.state import gather_values
from fluidjax.execution.scopes.writer import write_back
from fluidjax.executor import Executor
from fluidjax.framework import Program
from fluidjax.framework.view import program_view
from fluidjax.gradcheck.double import to_single
from fluidjax.gradcheck.local import Env, dense
from lowering.engine.plan import make_plan


def draws_inside(program: Program) -> list[str]:
    """The types of random ops in loops and branches, for which a compiled run draws other numbers."""
    return sorted({op.type for block in program.blocks[1:] for op in block.ops if _draws(op)})


def compiled_gradients(
    program: Program, feed: dict[str, Any], scope: Scope, names: list[str], values: Env
) -> dict[str, np.ndarray]:
    """The values of ``names`` after an executor has run ``program`` once, on copies of what ``scope`` holds.

    ``program`` is changed: its random ops are removed, and the numbers they drew (in ``values``) are fed.
    """
    feed = dict(feed)
    block = program.global_block()
    for index in reversed(range(len(block.ops))):
        if _draws(block.ops[index]):
            for name in block.ops[index].output_arg_names:
                if name in values:
                    feed[name] = _fed(values[name])
            block._remove_op(index)
    program._descs_changed()
    plan = make_plan(program_view(program), names)
    state = gather_values(scope, [n for n in plan.reads if n not in feed], exact=True)
    private = Scope()
    write_back(private, {n: jax.tree_util.tree_map(_copied, v) for n, v in state.items()})
    fetched = Executor(CPUPlace()).run(program, feed=feed, fetch_list=names, scope=private, return_numpy=False)
    return {n: dense(to_lowering(value)) for n, value in zip(names, fetched, strict=True)}


def _draws(op: Any) -> bool:
    return "key" in lowering.get_op(op.type).special and not (op.has_attr("op_role") and int(op.attr("op_role")) & 1)


def _fed(value: Any) -> Any:
    return to_holder(to_single(value))


def _copied(leaf: Any) -> Any:
    return np.array(leaf)
