"""How a compiled step is checked, and what it returns when a check fails.

A step overwrites its state, so one that finds a fault by itself must leave the state unchanged. For small arrays the
old or the new one is selected. For a table that would be a pass over all of it (18 ms instead of 0.5 for an update of a
few rows of 64 MB), and an update inside a branch would cost the same. But XLA updates in place what a loop carries: so
the last operation on a table is the body of a loop that runs once, and not at all where a check fails.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lowering.engine.checks import HostCheck, Watch, below
from lowering.errors import InvalidArgumentError
from lowering.extend import function_of, is_literal

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr, Jaxpr

_SMALL = 1 << 20  # bytes of an array that can be selected at little cost
# Operations whose result is their first operand with a part of it, or its form, changed.
_UPDATES = ("scatter", "dynamic_update_slice", "reshape", "convert_element_type", "squeeze")
# Operations that are not moved into a loop: XLA:CPU computes some of them far slower there.
_HEAVY = frozenset({"while", "scan", "cond", "dot_general", "conv_general_dilated", "sort"})


class Checks(NamedTuple):
    """How one compiled step is checked: fed values on the host before it, others in the step.

    Attributes:
        watch: what is checked.
        limits: (position, high) of each check on the host that only asks an input to be in [0, high).
        others: the other checks on the host.
    """

    watch: Watch
    limits: tuple[tuple[int, int], ...]
    others: tuple[HostCheck, ...]

    @staticmethod
    def of(watch: Watch) -> Checks:
        """The checks of a step whose trace found ``watch``."""
        limits = tuple(dict.fromkeys(limit for check in watch.on_host for limit in check.limits))
        return Checks(watch, limits, tuple(check for check in watch.on_host if not check.limits))

    def before(self, values: Sequence[Any]) -> None:
        """Raise InvalidArgumentError for faults of the inputs, apart from the state, that are known before the step."""
        checks: Sequence[HostCheck] = self.others
        for at, high in self.limits:
            if not below(values[at], high):
                checks = self.watch.on_host
        for check in checks:
            check(values)

    def after(self, left: Any) -> InvalidArgumentError | None:
        """The error that the step itself found, from everything it returned."""
        return None if left[2] is None else self.watch.failure(np.asarray(left[2]))


def holding(traced: Any, arguments: Any) -> Any:
    """A step traced once more so that, where it finds a fault, its first results are the state it took.

    Args:
        traced: a ``jax.stages.Traced`` that returns (results, overflow flags, its first fault or None).
        arguments: it was traced with; the first are the state that it overwrites.
    """
    replaced = arguments[0]
    count = len(replaced)
    places, first, last = _parted(traced.jaxpr, [i for i in range(count) if _bytes(replaced[i]) > _SMALL])
    others = [i for i in range(len(traced.jaxpr.out_avals)) if i not in places]
    structure = jax.tree_util.tree_structure(traced.out_info)

    def held(*arguments: Any) -> Any:
        leaves = jax.tree_util.tree_leaves(arguments)
        made = first(*leaves)
        left, known = dict(zip(others, made, strict=False)), made[len(others) :]
        failed = left[others[-1]][0] != 0
        left.update({i: jnp.where(failed, leaves[i], left[i]) for i in others if i < count})

        def update(carried: tuple[Any, dict[int, Any]]) -> tuple[Any, dict[int, Any]]:
            tables = last(*(carried[1].get(i, leaf) for i, leaf in enumerate(leaves)), *known)
            return jnp.asarray(True), {i: jnp.asarray(t, t.dtype) for i, t in zip(places, tables, strict=True)}

        if places:
            tables = {i: leaves[i] for i in places}
            left |= jax.lax.while_loop(lambda carried: ~carried[0], update, (failed, tables))[1]
        return jax.tree_util.tree_unflatten(structure, [left[i] for i in range(len(left))])

    return jax.jit(held, donate_argnums=(0,)).trace(*arguments)


def _bytes(value: Any) -> int:
    return math.prod(value.shape) * value.dtype.itemsize


def _parted(whole: ClosedJaxpr, large: Sequence[int]) -> tuple[list[int], Callable[..., Any], Callable[..., Any]]:
    """The last operations on ``large`` arrays of the state, and all before them.

    Returns:
        (those of ``large`` whose last operation nothing else needs; arguments -> the other results, and what the last
        operations read; (*arguments, *what they read) -> the results at these places).
    """
    jaxpr = whole.jaxpr
    results = jaxpr.outvars
    chains = {i: _last_operations(jaxpr, results[i]) for i in large}
    places = [i for i in large if chains[i]]
    late = {id(e) for i in places for e in chains[i]}
    ends = [e for e in jaxpr.eqns if id(e) in late]
    start = [e for e in jaxpr.eqns if id(e) not in late]
    made = {v for e in start for v in e.outvars}
    known = list(dict.fromkeys(v for e in ends for v in e.invars if not is_literal(v) and v in made))
    others = [v for i, v in enumerate(results) if i not in places]
    return (
        places,
        function_of(whole, jaxpr.invars, [*others, *known], start, jaxpr.effects),
        function_of(whole, [*jaxpr.invars, *known], [results[i] for i in places], ends, frozenset()),
    )


def _last_operations(jaxpr: Jaxpr, result: Any) -> list[Any]:
    """The operations that make ``result``, back through updates in place; none where they cannot come last."""
    makers = {v: e for e in jaxpr.eqns for v in e.outvars}
    reads = Counter(v for v in (*(v for e in jaxpr.eqns for v in e.invars), *jaxpr.outvars) if not is_literal(v))
    found: list[Any] = []
    while not is_literal(result) and result in makers and reads[result] == 1:
        maker = makers[result]
        if len(maker.outvars) > 1 or maker.effects or _heavy(maker):
            break
        found.append(maker)
        if not maker.primitive.name.startswith(_UPDATES):
            break
        result = maker.invars[0]
    return found


def _heavy(equation: Any) -> bool:
    inner = equation.params.get("jaxpr")
    return equation.primitive.name in _HEAVY or any(map(_heavy, inner.eqns if inner is not None else ()))
