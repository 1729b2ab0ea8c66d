"""What of a traced step runs before it, and what it returns when one of its checks fails.

A step overwrites its state, so a fault that it finds by itself comes too late, unless it then returns the old state;
that costs a pass over all of the state (18 ms instead of 0.5 for an update of a few rows of a table of 64 MB). Most ids
that are computed at all are computed from fed ones by a few operations on integers: these are run ahead instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr

from lowering.engine.checks import Watch
from lowering.errors import InvalidArgumentError

# Elements that are computed ahead at most, and the bytes of a state that the step itself can hold at no great cost.
_MOST = 1 << 18
_SMALL = 1 << 20
_CALLS = frozenset({"pjit", "jit", "closed_call", "custom_jvp_call"})


class Ahead(NamedTuple):
    """Computes the fault flags of a step's arguments from the leaves at some ``positions``."""

    flags: Callable[..., Any]
    positions: Sequence[int]

    def __call__(self, arguments: Any) -> np.ndarray:
        """The flags."""
        leaves = jax.tree_util.tree_leaves(arguments)
        return np.asarray(self.flags(*(leaves[i] for i in self.positions))[0])

    def warm(self, arguments: Any) -> None:
        """Compile for arguments of which only the forms are known."""
        leaves = jax.tree_util.tree_leaves(arguments)
        needed = (leaves[i] for i in self.positions)
        self.flags(*(v if isinstance(v, np.ndarray) else jnp.zeros(v.shape, v.dtype) for v in needed))


class Checks(NamedTuple):
    """How one compiled step is checked: fed values on the host before it, others ahead of it on the device or by it.

    Attributes:
        step: the step to call.
        watch: what is checked.
        ahead: computes the flags of the step's arguments; None: the step does, and returns its state as it was.
    """

    step: Callable[..., Any]
    watch: Watch
    ahead: Ahead | None

    def before(self, values: Sequence[Any], arguments: Any) -> None:
        """Raise InvalidArgumentError for what can be known before the step.

        Args:
            values: the step's inputs, its state apart, as they are on the host.
            arguments: what it is called with.
        """
        for check in self.watch.on_host:
            check(values)
        failure = None if self.ahead is None else self.watch.failure(self.ahead(arguments))
        if failure is not None:
            raise failure

    def warm(self, arguments: Any) -> None:
        """Compile what comes before the step, for arguments of these forms."""
        if self.ahead is not None:
            self.ahead.warm(arguments)

    def after(self, left: Any) -> InvalidArgumentError | None:
        """The error that the step found by itself, from all that it returned."""
        flags = left[2]
        return None if flags is None or self.ahead is not None else self.watch.failure(np.asarray(flags))


def find_checks(step: Any, traced: Any, watch: Watch, replaced: Sequence[Any]) -> Checks:
    """How to check a jitted step.

    Args:
        traced: as ``step.trace`` gives it; it returns (results, overflow flags, fault flags or None).
        watch: what the trace found.
        replaced: the state that it overwrites.
    """
    if not watch.faults or not replaced:
        return Checks(step, watch, None)
    ahead = _faults_ahead(traced, replaced)
    return Checks(step if ahead is not None else _holding_state(traced, len(replaced)), watch, ahead)


def _faults_ahead(traced: Any, replaced: Sequence[Any]) -> Ahead | None:
    """A function from a step's arguments to its fault flags, which is to run before the step.

    None where the state is so small, or what the flags follow from so much, that the step better checks itself.
    """
    if sum(v.nbytes for v in replaced) <= _SMALL:
        return None
    whole = traced.jaxpr
    pruned, used = dce_jaxpr(whole.jaxpr, [False] * (len(whole.jaxpr.outvars) - 1) + [True])
    if _work(pruned) > _MOST:
        return None
    flags = jax.jit(jaxpr_as_fun(ClosedJaxpr(pruned, whole.consts)))
    return Ahead(flags, [i for i, needed in enumerate(used) if needed])


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


def _holding_state(traced: Any, count: int) -> Any:
    """The step compiled so that its first ``count`` results are its first arguments where a flag is up."""
    step = jaxpr_as_fun(traced.jaxpr)

    def held(*arguments: Any) -> Any:
        left = step(*jax.tree_util.tree_leaves(arguments))
        results, overflows, faults = jax.tree_util.tree_unflatten(traced.out_tree, left)
        failed = (faults[:, 0] != 0).any()
        state = (jnp.where(failed, old, new) for old, new in zip(arguments[0], results[:count], strict=True))
        return (*state, *results[count:]), overflows, faults

    return jax.jit(held, donate_argnums=(0,))
