"""Parts of arrays that runs only read, cut out once for as long as the array lives, not in each run.

A GRU's weight holds two matrices, one after the other. Its loop needs each in memory, so XLA on CPUs copies them in
every run: a fifth of the time that a tagger takes for a sentence. A step that only moves such numbers about, by slices
and changes of shape, and gives the result to a loop, a branch or a product, takes the parts instead.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxlib.xla_client import ArrayImpl

from lowering.extend import function_of, is_literal

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr

# Copying fewer bytes than this takes a run less time than passing them does.
_LEAST = 1 << 14
# Operations that need what they read in memory; all others are computed while they read a part where it stands.
_READERS = frozenset({"while", "scan", "cond", "dot_general"})

Change = tuple[str, Any]


class Part(NamedTuple):
    """A part of the value at a position: the slices and changes of shape by which it is made, in order."""

    at: int
    changes: tuple[Change, ...]


def apart(traced: Any, arguments: Any, fixed: int) -> tuple[Any, Any, tuple[Part, ...]]:
    """A step (``jax.stages.Traced``) that takes parts of its first values apart, its arguments, and which these are.

    Args:
        traced: the step.
        arguments: (what it replaces, values, seed), with which it was traced.
        fixed: how many of the values, the first ones, are the same in all runs while the state is.

    Returns:
        The step with the parts as the last of its values, if there are any; else what was given.
    """
    replaced, values, seed = arguments
    first = len(jax.tree_util.tree_leaves(replaced))
    plain = all(type(v) in (ArrayImpl, jax.ShapeDtypeStruct) for v in values[:fixed])
    found = _parts(traced.jaxpr, first, fixed) if plain else {}
    if not found:
        return traced, arguments, ()
    parts = tuple(found.values())
    step, structure = _without(traced.jaxpr, list(found)), jax.tree_util.tree_structure(traced.out_info)

    def run(replaced: Any, values: Any, seed: Any) -> Any:
        given, taken = values[: -len(parts)], values[-len(parts) :]
        leaves = jax.tree_util.tree_leaves((replaced, given, seed))
        return jax.tree_util.tree_unflatten(structure, step(*leaves, *taken))

    arguments = replaced, (*values, *(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in found)), seed
    return jax.jit(run, donate_argnums=traced.donate_argnums).trace(*arguments), arguments, parts


def taken(parts: Sequence[Part], values: Sequence[Any]) -> Iterator[Any]:
    """The parts of the values that a run is given."""
    return (_taken.of(values[at], changes) for at, changes in parts)


def _parts(whole: ClosedJaxpr, first: int, fixed: int) -> dict[Any, Part]:
    """The parts that a step needs in memory, by their variables."""
    inputs = whole.jaxpr.invars[first : first + fixed]
    made: dict[Any, Part] = {v: Part(at, ()) for at, v in enumerate(inputs)}
    found: dict[Any, Part] = {}
    for equation in whole.jaxpr.eqns:
        read = [v for v in equation.invars if not is_literal(v) and v in made]
        change = _change(equation) if read else None
        if change is not None:
            at, changes = made[read[0]]
            made[equation.outvars[0]] = Part(at, (*changes, change))
        elif equation.primitive.name in _READERS:
            found.update({v: made[v] for v in read if _is_copied(made[v], v.aval)})
    return found


def _change(equation: Any) -> Change | None:
    """What an equation does to its operand; None if it does more than to cut out a part or change its shape."""
    params = equation.params
    if equation.primitive.name == "slice":
        start = params["start_indices"]
        return "slice", (start, params["limit_indices"], params["strides"] or (1,) * len(start))
    if equation.primitive.name in ("reshape", "squeeze"):
        return "reshape", equation.outvars[0].aval.shape
    return None


def _is_copied(part: Part, form: Any) -> bool:
    return any(name == "slice" for name, _ in part.changes) and form.size * form.dtype.itemsize >= _LEAST


def _without(whole: ClosedJaxpr, made: Sequence[Any]) -> Any:
    """The step as a function of its inputs and the values ``made``, without what is needed for these alone."""
    needed = {v for v in whole.jaxpr.outvars if not is_literal(v)}
    equations = []
    for equation in reversed(whole.jaxpr.eqns):
        outputs = needed.intersection(equation.outvars).difference(made)
        if equation.effects or outputs:
            equations.append(equation)
            needed.update(v for v in equation.invars if not is_literal(v))
    inputs = [*whole.jaxpr.invars, *made]
    return function_of(whole, inputs, whole.jaxpr.outvars, equations[::-1], whole.jaxpr.effects)


class _Taken:
    """The parts of arrays, each held as long as its array."""

    def __init__(self) -> None:
        self._parts: dict[int, tuple[weakref.ref[Any], dict[Hashable, Any]]] = {}

    def of(self, array: Any, changes: tuple[Change, ...]) -> Any:
        """A part of ``array``, the same one as long as that lives."""
        known = self._parts.get(id(array))
        if known is None or known[0]() is not array:
            known = self._parts[id(array)] = weakref.ref(array, partial(self._drop, id(array))), {}
        part = known[1].get(changes)
        if part is None:
            place = array.sharding if array.committed else None
            part = known[1][changes] = jax.device_put(_cut(np.asarray(array), changes), place)
        return part

    def _drop(self, key: int, gone: Any) -> None:
        if self._parts.get(key, (None,))[0] is gone:  # another array may have its number by now
            del self._parts[key]


_taken = _Taken()


def _cut(array: np.ndarray, changes: Sequence[Change]) -> np.ndarray:
    """A copy of the part: the array's own memory may come to be overwritten."""
    for name, what in changes:
        array = array[tuple(map(slice, *what))] if name == "slice" else array.reshape(what)
    return np.array(array, order="C")
