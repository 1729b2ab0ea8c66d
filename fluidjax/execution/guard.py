"""What of a traced step runs before it, and what it returns when one of its checks fails.

A step overwrites its state, so a fault that it finds by itself comes too late, unless it then returns the old state;
that costs a pass over all of the state (18 ms instead of 0.5 for an update of a few rows of a table of 64 MB). Most ids
that are computed at all are computed from fed ones by a few operations on integers: these are run ahead instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr

# Elements that are computed ahead at most, and the bytes of a state that the step itself can hold at no great cost.
_MOST = 1 << 18
_SMALL = 1 << 20
_CALLS = frozenset({"pjit", "jit", "closed_call", "custom_jvp_call"})

Ahead = Callable[[Any], np.ndarray]


def faults_ahead(traced: Any, replaced: Sequence[Any]) -> Ahead | None:
    """A function from a step's arguments to its fault flags, which is to run before the step.

    None where the state is so small, or what the flags follow from so much, that the step better checks itself.

    Args:
        traced: the step as ``jax.jit(...).trace`` gives it; the last array that it returns holds the flags.
        replaced: the state that it overwrites.
    """
    if sum(v.nbytes for v in replaced) <= _SMALL:
        return None
    whole = traced.jaxpr
    outputs = [False] * (len(whole.jaxpr.outvars) - 1) + [True]
    pruned, used = dce_jaxpr(whole.jaxpr, outputs)
    if _work(pruned) > _MOST:
        return None
    flags = jax.jit(jaxpr_as_fun(ClosedJaxpr(pruned, whole.consts)))
    positions = [i for i, needed in enumerate(used) if needed]

    def ahead(arguments: Any) -> np.ndarray:
        leaves = jax.tree_util.tree_leaves(arguments)
        return np.asarray(flags(*(leaves[i] for i in positions))[0])

    return ahead


def _work(jaxpr: Jaxpr) -> float:
    """The elements that the operations of ``jaxpr`` write; no end of them where one is no plain operation."""
    return sum(map(_work_of, jaxpr.eqns))


def _work_of(equation: Any) -> float:
    name = equation.primitive.name
    inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
    if name in _CALLS and inner is not None:
        return _work(getattr(inner, "jaxpr", inner))
    if inner is not None or name in ("while", "scan", "cond", "dot_general", "conv_general_dilated", "sort"):
        return math.inf
    return sum(math.prod(v.aval.shape) for v in equation.outvars)


def holding_state(traced: Any, count: int, donated: Sequence[int]) -> Any:
    """The step compiled so that its first ``count`` results are its first arguments where a flag is up."""
    step, structure = jaxpr_as_fun(traced.jaxpr), traced.out_tree

    def held(*arguments: Any) -> Any:
        results, overflows, faults, watch = jax.tree_util.tree_unflatten(
            structure, step(*jax.tree_util.tree_leaves(arguments))
        )
        failed = (faults[:, 0] != 0).any()
        state = (jnp.where(failed, old, new) for old, new in zip(arguments[0], results[:count], strict=True))
        return (*state, *results[count:]), overflows, faults, watch

    return jax.jit(held, donate_argnums=donated)
