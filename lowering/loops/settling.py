"""The structure of a loop's carry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lowering.engine.dataflow import flow
from lowering.errors import CarryChanges, NeedsExact
from lowering.loops.carried import join, known_int
from lowering.loops.loop import Env, Loop
from lowering.structure import abstract, same_structure
from lowering.tracing import trace

_ROUNDS = 16
Step = Callable[[Env, Any], tuple[Env, Env, Env]]


def settled(loop: Loop, step: Step, start: Env) -> tuple[tuple[Env, Env, Env], Step]:
    """``settle``; what does not fit is left out of ``start`` where no step can read it."""
    try:
        return settle(step, start)
    except CarryChanges:
        unread = [n for n in _unread(loop) if n in start]
        if not unread:
            raise
        for name in unread:
            del start[name]
        return settle(step, start)


def _unread(loop: Loop) -> set[str]:
    """The names whose values from before the loop are never seen: it takes a step, and steps write before they read."""
    if loop.plan is not None or not known_int(loop.ctx.env.get(loop.cond)):
        return set()
    needed, written = flow(loop.runner.program, loop.body.ops)
    return set(written).difference(needed, [loop.cond])


def settle(step: Step, start: Env) -> tuple[tuple[Env, Env, Env], Step]:
    """The structure of a loop's carry, found by tracing its step until nothing changes.

    Each round joins the carry's structure with that of the step's result: capacities only grow, and what the first
    step makes joins the carry. The last trace has the fixed point as its argument, so it is the step of the loop.

    Returns:
        abstract values: (carry by name, residuals of a step, its flags); and the step as it was traced last.

    Raises:
        NeedsExact: shapes change from step to step in a way that padding cannot cover.
    """
    state = {n: abstract(v) for n, v in start.items()}
    for _ in range(_ROUNDS):
        (after, kept, flags), again = trace(step, state, jax.ShapeDtypeStruct((), np.dtype(np.int32)))
        joined = {n: join(state[n], after[n]) if n in after else state[n] for n in state}
        joined |= {n: abstract(v) for n, v in after.items() if n not in state}
        if joined.keys() == state.keys() and all(same_structure(joined[n], state[n]) for n in state):
            return (state, kept, flags), again
        state = joined
    raise NeedsExact(f"the shapes of {sorted(state)} keep changing in a while loop")
