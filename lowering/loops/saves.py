"""Residuals: what a loop keeps of each step for its gradient, and how the gradient step gets it back.

Invariant: ``restore`` of what ``Recorder.run`` returned for step t gives each name of the plan the value that it
had in step t. A name is saved in full unless ``Facts`` show a cheaper way: as a function of t (``Affine``),
an element of an array (``Reread``), by rerunning its op (``Again``, ``Remade``), or as a leaf that is saved under
another name (``Same``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.engine.run import Run
from lowering.loops import arrays
from lowering.loops.carried import element, scalar
from lowering.loops.facts import Affine, Again, Facts
from lowering.loops.remake import Choice, Remade, remake
from lowering.loops.save_plan import BEFORE, SavePlan
from lowering.program import OpView
from lowering.structure import same_structure
from lowering.values import LoDArray, StepScopes, TensorArray, Wide


@jax.tree_util.register_pytree_node_class
class Hollow:
    """An array of which only shape and dtype are kept: a pytree without leaves, so no data stays live for it."""

    def __init__(self, shape: tuple[int, ...], dtype: Any):
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)

    def tree_flatten(self) -> tuple[tuple[()], tuple[tuple[int, ...], str]]:
        """(no leaves, (shape, dtype name)): to jax the array is part of the structure."""
        return (), (self.shape, str(self.dtype))

    @classmethod
    def tree_unflatten(cls, aux: Any, _: Any) -> Hollow:
        """The array back from (shape, dtype name)."""
        return cls(*aux)


@jax.tree_util.register_pytree_node_class
class Known:
    """A small host array that remains one: a pytree without leaves, so that no outer loop or branch traces it.

    When an outer level saves it, it is wrapped again: ``depth`` is the number of times it must be unwrapped.
    """

    MOST = 64

    def __init__(self, value: np.ndarray, depth: int = 0):
        self.value, self.depth = value, depth

    def tree_flatten(self) -> tuple[tuple[()], tuple[Any, ...]]:
        """(no leaves, (depth, shape, dtype name, bytes)): to jax the numbers are part of the structure."""
        return (), (self.depth, self.value.shape, str(self.value.dtype), self.value.tobytes())

    @classmethod
    def tree_unflatten(cls, aux: Any, _: Any) -> Known:
        """The array back."""
        depth, shape, dtype, content = aux
        return cls(np.frombuffer(content, dtype).reshape(shape), depth)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Reread:
    """A residual that is an element of an array and is not overwritten by later writes: its index is saved instead."""

    index: Any
    array: str = field(metadata={"static": True}, default="")


@jax.tree_util.register_static
@dataclass(frozen=True)
class Same:
    """A leaf that is the same tracer as leaf ``number`` of what is saved, or recomputed, under ``name``."""

    name: str
    number: int


def _hollow(value: Any) -> Any:
    if isinstance(value, LoDArray | Wide):
        return replace(value, data=Hollow(value.shape, value.dtype))
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return Hollow(value.shape, value.dtype)
    return value


def _filled(value: Any) -> Any:
    if isinstance(value, Hollow):
        return jnp.zeros(value.shape, value.dtype)
    if isinstance(value, LoDArray | Wide) and isinstance(value.data, Hollow):
        return replace(value, data=_filled(value.data))
    return value


class Recorder:
    """Runs the ops of one step and collects what ``plan`` requires of it.

    Attributes:
        constants: residuals known during tracing, all of them host arrays. The one trace serves every step, so they are
            the same in each, and are not stacked. Those of the
            last run.
    """

    def __init__(self, plan: SavePlan | None, facts: Facts | None = None):
        self.plan = plan
        self.facts = facts or Facts()
        self.constants: dict[str, Any] = {}

    def run(self, runner: Run, ops: Iterable[OpView], env: dict[str, Any]) -> dict[str, Any]:
        """Run the ops over ``env`` and return the residuals."""
        plan = self.plan
        before = {BEFORE + n: env[n] for n in plan.before if n in env} if plan else {}
        rereads: dict[str, Reread] = {}
        for op in ops:
            if plan is not None and op.type == "read_from_array":
                self._note_read(op, env, rereads)
            env.update(runner.run_op(op, env))
            if plan is not None and op.type == "write_to_array":
                self._note_write(op, env, rereads)
        if plan is None:
            return {}
        kept, ends = [n for n in plan.final if n in env], self.facts.ends
        short = {**rereads, **self.facts.again, **ends}
        choice = Choice(self.facts.makers, env, self.facts.again)
        choice.run(n for n in kept if n not in short and n not in plan.shapes)
        saves = {n: self._keep(n, env[n]) for n in kept if n not in choice.made}
        saves.update({n: env[n] for n in choice.sources if n not in choice.made})
        saves.update({n: v for n, v in short.items() if n in saves})
        forms = (n for n in plan.forms if n not in saves and n not in choice.made)
        saves.update({n: _hollow(env[n]) for n in forms if isinstance(env.get(n), Wide)})
        whole = {n: env[n] for n, v in saves.items() if isinstance(v, Again)}
        return self._apart(_once({**saves, **choice.made, **before}, whole))

    def _note_read(self, op: OpView, env: dict[str, Any], rereads: dict[str, Reread]) -> None:
        name = op.outputs["Out"][0]
        array, index = self.facts.reads.get(name, ("", None))
        at = env.get(op.inputs["I"][0])
        if array and at is not None and isinstance(env.get(array), TensorArray):
            rereads[name] = Reread(scalar(at) if index is None else index, array)

    def _note_write(self, op: OpView, env: dict[str, Any], rereads: dict[str, Reread]) -> None:
        name = op.inputs["X"][0]
        array, index = self.facts.writes.get(name, ("", None))
        held = env.get(array)
        if isinstance(held, TensorArray) and held.stacked and same_structure(arrays.item_of(held), env[name]):
            rereads[name] = Reread(index, array)

    def _keep(self, name: str, value: Any) -> Any:
        return _hollow(value) if self.plan is not None and name in self.plan.shapes else value

    def _apart(self, saves: dict[str, Any]) -> dict[str, Any]:
        leaves = jax.tree_util.tree_leaves
        constant = [n for n, v in saves.items() if all(isinstance(x, np.ndarray | np.generic) for x in leaves(v))]
        self.constants = {n: saves[n] for n in constant}  # of this trace: others may know less
        return {n: _closed(v) for n, v in saves.items() if n not in constant}


def _closed(value: Any) -> Any:
    """What an inner loop or branch has saved: whether it ran, and everything else known there, stays known outside."""

    def leaf(x: Any) -> Any:
        if isinstance(x, Known):
            return Known(x.value, x.depth + 1)
        return Known(np.asarray(x)) if isinstance(x, np.ndarray | np.generic) and x.size <= Known.MOST else x

    return jax.tree_util.tree_map(leaf, value, is_leaf=_is_known) if _is_inner(value) else value


def _opened(value: Any) -> Any:
    def leaf(x: Any) -> Any:
        if not isinstance(x, Known):
            return x
        return Known(x.value, x.depth - 1) if x.depth else x.value

    return jax.tree_util.tree_map(leaf, value, is_leaf=_is_known)


def _is_known(value: Any) -> bool:
    return isinstance(value, Known)


def _is_inner(value: Any) -> bool:
    """What an inner loop has saved is unchanged: a ``Same`` in it refers to names in there."""
    return isinstance(value, StepScopes)


def _once(saves: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """``saves`` with each traced array in it only once; ``whole`` are values that need not be saved.

    A tracer represents one value of the step, so leaves that are the same object are equal in every step.
    """
    places: dict[int, Same] = {}
    for name, value in whole.items():
        for number, leaf in enumerate(jax.tree_util.tree_leaves(value, _is_inner)):
            places.setdefault(id(leaf), Same(name, number))

    def first(name: str, value: Any) -> Any:
        leaves, tree = jax.tree_util.tree_flatten(value, _is_inner)
        number = 0
        for k, leaf in enumerate(leaves):
            place = Same(name, number)
            if isinstance(leaf, jax.core.Tracer) and places.setdefault(id(leaf), place) != place:
                leaves[k] = places[id(leaf)]
            else:
                number += 1
        return jax.tree_util.tree_unflatten(tree, leaves)

    return {n: first(n, v) for n, v in saves.items()}


def _resolved(found: dict[str, Any]) -> dict[str, Any]:
    """``found`` with every ``Same`` replaced by the leaf it refers to."""
    leaves = {name: jax.tree_util.tree_leaves(value, _is_inner) for name, value in found.items()}

    def leaf(x: Any) -> Any:
        return leaves[x.name][x.number] if isinstance(x, Same) else x

    return {
        n: jax.tree_util.tree_map(leaf, v, is_leaf=lambda x: isinstance(x, Same | StepScopes)) for n, v in found.items()
    }


def _again(made: Again, env: dict[str, Any], t: Any, runner: Run) -> Any:
    op = runner.program.blocks[made.block].ops[made.number]
    if made.source is not None:
        array, index = made.source
        env = {**env, op.inputs["X"][0]: arrays.get_plain(env[array], index.index(t))}
    return runner.run_op(op, {**env, op.inputs["I"][0]: made.index.at(t)})[op.outputs["Out"][0]]


def restore(
    saved: dict[str, Any], env: dict[str, Any], rewound: set[str], runner: Run, t: Any = None
) -> dict[str, Any]:
    """The names and values that a gradient step sees of its forward step.

    Args:
        rewound: what the gradient block writes, which needs these variables as they were at the end of the step.
        t: the step.
    """
    values = {}
    for name, value in saved.items():
        if isinstance(value, Affine):
            value = value.at(t)
        elif isinstance(value, Again):
            value = _again(value, env, t, runner)
        elif isinstance(value, Reread):
            index = value.index.index(t) if isinstance(value.index, Affine) else value.index
            value = arrays.get_plain(env[value.array], index)
        values[name] = value
    made = {n: values.pop(n) for n, v in saved.items() if isinstance(v, Remade)}
    found = {}
    for name, value in _resolved(values).items():
        bare = name.removeprefix(BEFORE)
        # Two gradient blocks of one loop may have requested both values: one that rewinds the variable takes the end's.
        if bare in rewound if bare != name else BEFORE + name in saved and name not in rewound:
            continue
        found[bare] = _opened(value) if _is_inner(value) else _filled(value)
    return {**found, **remake(made, {**env, **found}, runner)} if made else found


def at_step(saved: dict[str, Any], t: Any) -> dict[str, Any]:
    """The residuals of step ``t`` in a stacked record."""
    found = {}
    for name, value in saved.items():
        leaves = jax.tree_util.tree_leaves(value)
        if leaves and leaves[0].shape[0] == 1:  # a single step: no dynamic index
            found[name] = element(value, 0)
        else:
            found[name] = arrays.plain_element(value, t) if leaves else value
    return found
