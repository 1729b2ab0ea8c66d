"""Loops whose values become longer in each step: caches of attention, what was generated so far.

Such a value is carried with room for all steps, as a ``Wide`` value whose count is carried beside it. Ops inside take
it by the rules for dims that vary from batch to batch (``lowering.wide``), and those that join others to the
used positions count them. Which values grow, along which axes and by how much, a first step on the values from before
the loop tells; every step then has to grow them by as much, or the loop cannot be run in this way.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lowering.errors import CarryChanges
from lowering.sizes.labels import Carried, family, grown
from lowering.structure import abstract
from lowering.tracing import trace
from lowering.values import Axis, Wide

Env = dict[str, Any]
Step = Callable[[Env, Any], tuple[Env, Env, Env]]
# The room in steps of the first attempt at a loop that may end before it has taken as many.
FIRST_STEPS = 64


@dataclass(frozen=True)
class Growth:
    """What grows in a loop.

    Attributes:
        loop: identifies it.
        axes: name -> the axes of what is carried, with room for all steps.
    """

    loop: str
    axes: Mapping[str, tuple[Axis, ...]]

    def started(self, start: Env) -> Env:
        """The values from before the loop, with room for those of all steps."""
        return {n: _roomy(v, self.axes[n]) if n in self.axes else v for n, v in start.items()}

    def fitted(self, step: Step) -> Step:
        """``step``, which returns what has grown in the form in which it takes it."""

        def run(state: Env, t: Any) -> tuple[Env, Env, Env]:
            after, kept, flags = step(state, t)
            return {n: self._cut(n, v, n in state) for n, v in after.items()}, kept, flags

        return run

    def _cut(self, name: str, value: Any, carried: bool) -> Any:
        axes = self.axes.get(name)
        if axes is None:
            if isinstance(value, Wide) and not carried:
                raise CarryChanges(f"a loop leaves {name!r}, which it makes only inside, with spare room")
            return value
        expected = tuple(self._later(axis) for axis in axes)
        if not isinstance(value, Wide) or value.axes != expected:
            raise CarryChanges(f"a loop carries {name!r}, which grows in one step otherwise than in another")
        data = value.data
        for axis in axes:
            data = jax.lax.slice_in_dim(data, 0, axis.room, axis=axis.dim)
        return Wide(data, value.counts, axes)

    def _later(self, axis: Axis) -> Axis:
        by = _by(axis, self.loop)
        return axis._replace(room=axis.room + by, label=grown(axis.label, by))

    def finished(self, state: Env) -> Env:
        """The values after the loop: how long they are then is another number than in its steps."""
        return {n: self._after(v) if n in self.axes else v for n, v in state.items()}

    def _after(self, value: Wide) -> Wide:
        axes = []
        for axis in value.axes:
            label = _carried(axis, self.loop)
            axes.append(axis if label is None else axis._replace(label=label._replace(loop=(self.loop, "after"))))
        return replace(value, axes=tuple(axes))


def _by(axis: Axis, loop: str) -> int:
    label = _carried(axis, loop)
    return 0 if label is None else label.by


def _carried(axis: Axis, loop: str) -> Carried | None:
    """The label of an axis that grows in a loop."""
    return axis.label if isinstance(axis.label, Carried) and axis.label.loop == loop else None


def growth(loop: str, step: Step, start: Env, steps: int) -> Growth:
    """What grows in a loop, found by its first step.

    Args:
        loop: identifies the loop.
        step: see ``lowering.loops.settling``.
        start: the carry before the loop.
        steps: how many steps there is to be room for.

    Raises:
        CarryChanges: nothing grows, or a value changes in another way.
    """
    before = {n: abstract(v) for n, v in start.items()}
    (after, _, _), _ = trace(step, before, jax.ShapeDtypeStruct((), np.dtype(np.int32)))
    found = {n: _axes(loop, n, v, after[n], steps) for n, v in before.items() if n in after}
    found = {n: axes for n, axes in found.items() if any(_by(axis, loop) for axis in axes)}
    if not found:
        raise CarryChanges("a loop carries a value that changes, but does not grow")
    return Growth(loop, found)


def _axes(loop: str, name: str, before: Any, after: Any, steps: int) -> tuple[Axis, ...]:
    """The axes of a carried value with room for what its steps add; () if it has none or is no plain array."""
    kinds = jax.ShapeDtypeStruct, Wide
    if not isinstance(before, kinds) or not isinstance(after, kinds) or len(before.shape) != len(after.shape):
        return ()
    labels, later = _labels(before), _labels(after)
    found = []
    for dim, size in enumerate(before.shape):
        by = _more(labels[dim], later[dim])
        if by is None or (by and dim == 0):
            raise CarryChanges(f"a loop carries {name!r}, whose dim {dim} changes in a step, but does not grow")
        if by:
            found.append(Axis(dim, size + steps * by, Carried(loop, labels[dim], by)))
        elif not isinstance(labels[dim], _Size):
            found.append(Axis(dim, size, labels[dim]))
    return tuple(found)


class _Size(NamedTuple):
    """The label of a dim without spare room."""

    size: int


def _labels(value: Any) -> list[Hashable]:
    """The label of each dim; CarryChanges where an axis does not fill its dim."""
    labels: list[Hashable] = [_Size(n) for n in value.shape]
    for axis in value.axes if isinstance(value, Wide) else ():
        if axis.inner != 1 or axis.room != value.shape[axis.dim]:
            raise CarryChanges("a loop carries a value with merged dims")
        labels[axis.dim] = axis.label
    return labels


def _more(before: Hashable, after: Hashable) -> int | None:
    """By how many positions a dim has grown; None if it did not."""
    if isinstance(before, _Size) and isinstance(after, _Size):
        return after.size - before.size if after.size >= before.size else None
    if before == after:
        return 0
    (one, start), (other, end) = family(before), family(after)
    return end - start if one == other and end > start else None


def _roomy(value: Any, axes: tuple[Axis, ...]) -> Wide:
    """``value`` with copies of the first position in the room for others; zeros where there is none."""
    known = {a.dim: count for a, count in zip(value.axes, value.counts, strict=True)} if isinstance(value, Wide) else {}
    counts = tuple(jnp.asarray(known.get(a.dim, value.shape[a.dim]), jnp.int32) for a in axes)
    data = jnp.asarray(value.data if isinstance(value, Wide) else value)
    for axis in axes:
        missing = axis.room - data.shape[axis.dim]
        shape = (*data.shape[: axis.dim], missing, *data.shape[axis.dim + 1 :])
        first = jax.lax.slice_in_dim(data, 0, min(1, data.shape[axis.dim]), axis=axis.dim)
        copies = jnp.broadcast_to(first, shape) if first.size else jnp.zeros(shape, data.dtype)
        data = jnp.concatenate([data, copies], axis=axis.dim)
    return Wide(data, counts, axes)
