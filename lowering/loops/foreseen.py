"""How many steps a loop will take, foreseen from those after which it stopped for lack of room."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from lowering.loops.carried import scalar
from lowering.loops.loop import Env, Loop
from lowering.values import data_of

_COMPARISONS = frozenset({"less_than", "less_equal", "greater_than", "greater_equal"})
_MOST = 2**30  # more steps than this are not believed


def stopped(loop: Loop, final: Env, capacity: int) -> Any:
    """The flag of a loop that stops after ``capacity`` steps.

    Where its condition compares two numbers, their distances before and after these steps tell when they meet. That
    is only an estimate of the room to be made: another flag follows if it is too low.
    """
    go = scalar(final[loop.cond], jnp.bool_)
    names = _compared(loop)
    before, after = ([env.get(n, loop.ctx.env.get(n)) for n in names] for env in (loop.initial, final))
    if not names or any(np.size(data_of(v)) != 1 for v in (*before, *after)):
        return go
    first, last = (jnp.subtract(scalar(y, float), scalar(x, float)) for x, y in (before, after))
    steps = jnp.ceil(capacity * first / (first - last))
    likely = (steps > capacity) & (steps < _MOST)
    return jnp.where(go, jnp.where(likely, steps, 2 * capacity), 0).astype(jnp.int32)


def _compared(loop: Loop) -> list[str]:
    """The two variables outside the body whose comparison is its condition; [] if there are none."""
    makers = {n: op for op in loop.body.ops for n in op.output_names()}
    copies = {op.inputs["X"][0]: op.outputs["Out"][0] for op in loop.body.ops if op.type == "assign"}
    maker = makers[loop.cond]
    for _ in copies:  # as often as it may be copied
        if maker.type == "assign" and maker.inputs["X"][0] in makers:
            maker = makers[maker.inputs["X"][0]]
    if maker.type not in _COMPARISONS:
        return []
    read = maker.inputs["X"][0], maker.inputs["Y"][0]
    names = [n if n in loop.ctx.env else copies.get(n, n) for n in read]
    return names if all(n in loop.ctx.env for n in names) else []
