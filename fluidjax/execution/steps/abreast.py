"""Hundreds of small equations that do the same to the parts of an array, done at once.

A net over all pairs of 39 fields takes 741 products of two slices each and joins them, and its gradient sums 1,482
padded slices. XLA compiles each into a kernel of its own, since each reads other places: 20 ms a kernel. But where a
step joins, stacks or adds up that many values that were made alike from parts of the same arrays, the parts are
gathered into one array, and the equations in between run once over all of them.

What is added up comes in another order, so the last bits of such a sum may differ; nothing else does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fluidjax.execution.steps.alike import Alike, Rows, read, reads
from lowering.extend import function_of, is_literal

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr

# From this many values on. Fewer are compiled in less than the time that a kernel over all of them may cost in runs.
MANY = 32
# Places that parts are added into have room for the most that any of them gets; at most this many times their number.
_UNEVEN = 3


def abreast(traced: Any, arguments: Any, donated: tuple[int, ...]) -> Any:
    """A ``jax.stages.Traced`` that does at once what this one does alike; the same one where there is nothing."""
    found = _ends(traced.jaxpr)
    if not found:
        return traced
    structure = jax.tree_util.tree_structure(traced.out_info)

    def run(*arguments: Any) -> Any:
        results = _evaluate(traced.jaxpr, found, jax.tree_util.tree_leaves(arguments))
        return jax.tree_util.tree_unflatten(structure, results)

    return jax.jit(run, donate_argnums=donated).trace(*arguments)


class Run(NamedTuple):
    """Consecutive values: as rows, or (``rows`` is None) each by itself."""

    values: Sequence[Any]
    rows: Rows | None

    @property
    def reads(self) -> Iterator[Any]:
        """What is read to make them."""
        return iter(self.values) if self.rows is None else reads(self.rows)


class End(NamedTuple):
    """An equation whose result is made otherwise: by ``make(rows of each run, or its values)``."""

    runs: list[Run]
    make: Callable[[list[Any]], Any]


def _ends(whole: ClosedJaxpr) -> dict[int, tuple[Alike, End]]:
    """What ends as one value, by the id of the equation that makes this value."""
    equations = whole.jaxpr.eqns
    pads = sum(e.primitive.name == "pad" for e in equations)
    alike, found, adders = Alike(whole), {}, _adders(whole) if pads >= MANY else {}
    for equation in reversed(equations):
        if equation.primitive.name in ("stack", "concatenate") and len(equation.invars) >= MANY:
            end = _joined(alike, equation)
        elif id(equation) in adders:
            end = _added(alike, adders[id(equation)])
        else:
            continue
        if end is not None:
            found[id(equation)] = alike, end
    return found


def _evaluate(whole: ClosedJaxpr, ends: Mapping[int, tuple[Alike, End]], leaves: Sequence[Any]) -> list[Any]:
    known = dict(zip(whole.jaxpr.invars, leaves, strict=True))
    known.update(zip(whole.jaxpr.constvars, whole.consts, strict=True))
    live = _live(whole, ends)
    for special, equations in groupby(live, key=lambda e: id(e) in ends):
        group = list(equations)
        if special:
            for equation in group:
                known[equation.outvars[0]] = _made(*ends[id(equation)], known)
            continue
        inputs = list(dict.fromkeys(v for e in group for v in e.invars if not is_literal(v) and v in known))
        outputs = [v for e in group for v in e.outvars]
        effects = frozenset().union(*(e.effects for e in group))
        results = function_of(whole, inputs, outputs, group, effects)(*(known[v] for v in inputs))
        known.update(zip(outputs, results, strict=True))
    return [read(v, known) for v in whole.jaxpr.outvars]


def _live(whole: ClosedJaxpr, ends: Mapping[int, tuple[Alike, End]]) -> list[Any]:
    """The equations that are still needed."""
    needed = {v for v in whole.jaxpr.outvars if not is_literal(v)}
    live = []
    for equation in reversed(whole.jaxpr.eqns):
        if equation.effects or not needed.isdisjoint(equation.outvars):
            live.append(equation)
            runs = ends[id(equation)][1].runs if id(equation) in ends else [Run(equation.invars, None)]
            needed.update(v for run in runs for v in run.reads if not is_literal(v))
    return live[::-1]


def _made(alike: Alike, end: End, known: Mapping[Any, Any]) -> Any:
    def of(run: Run) -> Any:
        if run.rows is None:
            return [read(v, known) for v in run.values]
        return alike.compute(run.rows, len(run.values), known)

    return end.make([of(run) for run in end.runs])


# --- joined values ------------------------------------------------------------------------------------------------


def _joined(alike: Alike, equation: Any) -> End | None:
    """The end of what is stacked or concatenated; None where no run of it is alike."""
    stacked = equation.primitive.name == "stack"
    axis = equation.params["axis" if stacked else "dimension"]
    runs = []
    for _, group in groupby(equation.invars, key=lambda v: _form(alike, v)):
        values = list(group)
        runs.append(Run(values, alike.rows(values) if len(values) >= MANY else None))
    if all(run.rows is None for run in runs):
        return None

    def join(parts: list[Any]) -> Any:
        if stacked:
            stacks = [jnp.stack(p, axis) if isinstance(p, list) else jnp.moveaxis(p, 0, axis) for p in parts]
            return jnp.concatenate(stacks, axis)
        lists = (p if isinstance(p, list) else [_side_by_side(p, axis)] for p in parts)
        return jnp.concatenate([v for values in lists for v in values], axis)

    return End(runs, join)


def _form(alike: Alike, value: Any) -> Any:
    maker = alike.maker(value)
    return value.aval.shape, None if maker is None else maker.primitive.name


def _side_by_side(rows: jax.Array, axis: int) -> jax.Array:
    """The rows joined along an axis of theirs."""
    moved = jnp.moveaxis(rows, 0, axis)
    return moved.reshape(*moved.shape[:axis], moved.shape[axis] * moved.shape[axis + 1], *moved.shape[axis + 2 :])


# --- sums ---------------------------------------------------------------------------------------------------------


def _adders(whole: ClosedJaxpr) -> dict[int, list[Any]]:
    """The terms of long sums, in order, by the id of the equation that adds the last."""
    jaxpr = whole.jaxpr
    uses = Counter(v for v in (*(v for e in jaxpr.eqns for v in e.invars), *jaxpr.outvars) if not is_literal(v))
    sums: dict[Any, tuple[Any, list[Any]]] = {}
    for equation in jaxpr.eqns:
        if equation.primitive.name == "add":
            total, term = equation.invars
            open = not is_literal(total) and uses[total] == 1
            _, terms = (sums.pop(total, None) if open else None) or (None, [total])
            terms.append(term)
            sums[equation.outvars[0]] = equation, terms
    return {id(last): terms for last, terms in sums.values() if len(terms) >= MANY}


def _added(alike: Alike, terms: list[Any]) -> End | None:
    """The end of a sum whose terms, but for fewer than ``MANY``, are alike, or are parts padded with zeros."""
    pads = [alike.maker(v) for v in terms]
    placed = [(v, e) for v, e in zip(terms, pads, strict=True) if e is not None and _axis(e) is not None]
    if len(placed) < MANY or len({(_axis(e), e.invars[0].aval.shape, e.outvars[0].aval.shape) for _, e in placed}) > 1:
        return None
    axis = _axis(placed[0][1])
    assert axis is not None
    places = _places([int(e.params["padding_config"][axis][0]) for _, e in placed], placed[0][1], axis)
    parts = [e.invars[0] for _, e in placed]
    rows = alike.rows(parts) if places is not None else None
    if rows is None or places is None:
        return None
    within = {id(v) for v, _ in placed}
    others = [v for v in terms if id(v) not in within]

    def add(made: list[Any]) -> Any:
        total = _in_places(made[0], places, axis)
        for other in made[1]:
            total = total + other
        return total

    return End([Run(parts, rows), Run(others, None)], add)


def _axis(pad: Any) -> int | None:
    """The one axis along which zeros are put around a value; None if something else is done."""
    if pad.primitive.name != "pad" or not is_literal(pad.invars[1]) or pad.invars[1].val != 0:
        return None
    config = pad.params["padding_config"]
    padded = [axis for axis, dim in enumerate(config) if any(dim)]
    return padded[0] if len(padded) == 1 and min(config[padded[0]]) >= 0 and config[padded[0]][2] == 0 else None


def _places(starts: list[int], pad: Any, axis: int) -> np.ndarray | None:
    """The rows that are added at each place, filled up with a row of zeros; None where they overlap otherwise."""
    size, length = pad.invars[0].aval.shape[axis], pad.outvars[0].aval.shape[axis]
    if size == 0 or length % size or any(s % size for s in starts):
        return None
    found: list[list[int]] = [[] for _ in range(length // size)]
    for row, start in enumerate(starts):
        found[start // size].append(row)
    most = max(map(len, found))
    if most * len(found) > _UNEVEN * len(starts):
        return None
    return np.array([rows + [len(starts)] * (most - len(rows)) for rows in found], np.int32)


def _in_places(rows: jax.Array, places: np.ndarray, axis: int) -> jax.Array:
    if (places == len(rows)).any():
        rows = jnp.concatenate([rows, jnp.zeros_like(rows[:1])])
    apart = rows.at[places].get(mode="promise_in_bounds")
    return _side_by_side(jax.lax.reduce(apart, np.zeros((), rows.dtype), jax.lax.add, (1,)), axis)
