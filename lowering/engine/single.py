"""One op outside any program: what identifies it, and the few facts about a program that its rule may ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from lowering.errors import Need
from lowering.program import BOOKKEEPING, EMPTY, OpView, VarView
from lowering.values import LoDArray


def freeze(value: Any) -> Any:
    """A hashable substitute for an attribute value."""
    if isinstance(value, (list, tuple)):
        return tuple(freeze(v) for v in value)
    return value


def static_attrs(op: OpView) -> tuple[tuple[str, Any], ...]:
    """The attributes that decide what an op computes, hashable and in a fixed order."""
    return tuple(sorted((k, freeze(v)) for k, v in op.attrs.items() if k not in BOOKKEEPING))


def stand_in_names(outs: Any, declared: Any) -> dict[str, list[str]]:
    """Names for the outputs ``outs`` (slot, which of its variables are empty): those declared, or invented ones."""
    known = iter([n for n, _ in declared or ()])
    return {
        slot: [EMPTY if empty else next(known, f"{slot}.{i}") for i, empty in enumerate(empties)]
        for slot, empties in outs
    }


class SingleOp:
    """Just enough of a program for a Context outside one."""

    def __init__(self, variables: Mapping[str, VarView | None], version: int = 0):
        self._variables = variables
        self.version = version

    def find_var(self, block_idx: int, name: str) -> VarView | None:
        """The variable of that name; there are no blocks."""
        return self._variables.get(name)


_OFTEN = 64  # runs with spare room that cost as much more than exact ones as a compilation takes
_REPEATED = 16  # direct runs of a rule, primitive by primitive, that cost what compiling it does
_FEW = 16  # numbers that a rule may want to know: sizes, starts, paddings
_KINDS = 256  # kinds of inputs that are counted for this


class CompiledOp:
    """One op compiled alone, and what it was found to need for which kinds of inputs.

    jax.jit keeps no trace that failed, and tracing again until the rule raises takes many times as long as the op.
    """

    def __init__(self, run: Callable[..., Any]):
        self.run = jax.jit(run)
        self._function = run
        self._needs: dict[Any, type[Need]] = {}
        self._first: dict[Any, Any] = {}
        self._seen: dict[Any, int] = {}
        self._passing: dict[Any, Any] = {}
        self._direct: dict[Any, int] = {}
        self._knowing: dict[Any, Callable[..., Any] | None] = {}

    def knowing(self, values: Any, key: Any) -> Any:
        """The results for inputs of which the rule has to know some, with these compiled in as constants.

        Args:
            values: of plain arrays; what the rule may want to know is the host's.

        None where the rule is to be called directly: for the first ``_REPEATED`` runs with these numbers, or if it
        has to know more than a few.
        """
        leaves, structure = jax.tree_util.tree_flatten(values)
        if not all(isinstance(leaf, (np.ndarray, jax.Array)) for leaf in leaves):
            return None
        known = [_may_decide(leaf) for leaf in leaves]
        kind = structure, tuple(_content(leaf) if k else _shape(leaf) for leaf, k in zip(leaves, known, strict=True))
        count = self._direct[kind] = self._direct.get(kind, 0) + 1
        if count <= _REPEATED:
            if len(self._direct) > _KINDS:
                self._direct.clear()
                self._knowing.clear()
            return None
        if kind not in self._knowing:
            constants = [leaf if k else None for leaf, k in zip(leaves, known, strict=True)]
            self._knowing[kind] = jax.jit(_given(self._function, structure, constants))
        run = self._knowing[kind]
        if run is None:
            return None
        try:
            return run([leaf for leaf, k in zip(leaves, known, strict=True) if not k], key)
        except Need:
            self._knowing[kind] = None
            return None

    def wants_room(self, place: Any, shapes: Any) -> bool:
        """Whether the op has had other shapes where it first ran in this place, and these too rarely to be compiled."""
        if self._first.setdefault(place, shapes) == shapes:
            return False
        self._seen[shapes] = self._seen.get(shapes, 0) + 1
        return self._seen[shapes] <= _OFTEN

    def passes(self, values: Any, key: Any) -> Any:
        """The results for such inputs, with the numbers of leaves of the inputs for the offsets that they share.

        None if the op reads offsets, or makes others.
        """
        kind = _kind_of(values)
        if kind not in self._passing:
            self._passing[kind] = _passing(self._function, values, key)
        return self._passing[kind]

    def need(self, values: Any) -> type[Need] | None:
        """Why these inputs cannot be compiled, as found earlier; None if nothing is known against it."""
        return self._needs.get(_kind_of(values)) if self._needs else None

    def note(self, values: Any, need: Need) -> type[Need]:
        """Remembers what a trace of these inputs raised."""
        return self._needs.setdefault(_kind_of(values), type(need))


def _may_decide(leaf: Any) -> bool:
    """Whether sizes may follow from an array's numbers: a few integers, or a single scale."""
    return isinstance(leaf, np.ndarray) and (leaf.size == 1 or (leaf.size <= _FEW and leaf.dtype.kind in "iub"))


def _content(leaf: np.ndarray) -> Any:
    return leaf.shape, leaf.dtype, leaf.tobytes()


def _shape(leaf: Any) -> Any:
    return leaf.shape, leaf.dtype


def _given(run: Callable[..., Any], structure: Any, constants: list[Any]) -> Callable[..., Any]:
    """``run`` as a function of the inputs that are not among the constants."""

    def rest(others: list[Any], key: Any) -> Any:
        left = iter(others)
        leaves = [next(left) if constant is None else constant for constant in constants]
        return run(jax.tree_util.tree_unflatten(structure, leaves), key)

    return rest


def _passing(run: Callable[..., Any], values: Any, key: Any) -> Any:
    """See ``CompiledOp.passes``."""
    try:
        closed, shapes = jax.make_jaxpr(run, return_shape=True)(values, key)
    except Need:
        return None
    given = closed.jaxpr.invars
    places = {id(var): i for i, var in enumerate(given)}
    offsets = {i for i, leaf in enumerate(jax.tree_util.tree_leaves(_marked(values))) if leaf is _OFFSETS}
    read = {places[id(v)] for eqn in closed.jaxpr.eqns for v in eqn.invars if id(v) in places}
    structure = jax.tree_util.tree_structure(shapes)
    results = jax.tree_util.tree_unflatten(structure, [places.get(id(v), -1) for v in closed.jaxpr.outvars])
    own = any(i not in offsets for v in _rows(results) for i in v.lod)
    return None if read & offsets or own else results


_OFFSETS = object()


def _rows(values: Any) -> list[LoDArray]:
    found = jax.tree_util.tree_leaves(values, is_leaf=_is_rows)
    return [v for v in found if _is_rows(v)]


def _is_rows(value: Any) -> bool:
    return isinstance(value, LoDArray)


def _marked(values: Any) -> Any:
    """The values with a mark in place of each array of offsets."""
    return jax.tree_util.tree_map(
        lambda v: replace(v, lod=(_OFFSETS,) * len(v.lod)) if _is_rows(v) else v, values, is_leaf=_is_rows
    )


def _kind_of(values: Any) -> Any:
    """What a trace may depend on: structure, shapes and types, not the values."""
    leaves, structure = jax.tree_util.tree_flatten(values)
    return structure, tuple((np.shape(leaf), getattr(leaf, "dtype", type(leaf))) for leaf in leaves)
