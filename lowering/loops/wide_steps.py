"""Steps over a dim with room for more, and values with room inside of them (see ``lowering.wide``).

A recurrence over a wide dim takes as many steps as positions are used: what it stacks is zero at the others. A row of
a wide value has the axes of its other dims, and so has what the steps stack of wide values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from lowering.loops.arrays import plain_element
from lowering.loops.carried import stacked_template, zeros
from lowering.program import OpView
from lowering.sizes.moves import refilled
from lowering.structure import abstract
from lowering.tracing import trace
from lowering.values import Array, Axis, Wide
from lowering.wide.call import is_wide, refused
from lowering.wide.calls import bare, ended, widened

Env = dict[str, Any]
Axes = tuple[Axis, ...]


@dataclass
class WideSteps:
    """The axes of what the steps of one recurrence read and write.

    Attributes:
        op: the recurrence.
        along: the axis of the steps; None if their number is known.
        counts: label -> the number of used positions.
        rows: name -> the axes of a row.
    """

    op: OpView
    along: Axis | None = None
    counts: dict[Any, Array] = field(default_factory=dict)
    rows: dict[str, Axes] = field(default_factory=dict)

    @staticmethod
    def over(op: OpView, inputs: Mapping[str, Any], outside: Iterable[Any]) -> WideSteps:
        """The steps over the first dim of these inputs; NeedsSizes if they are not alike in it."""
        found = WideSteps(op)
        for value in outside:
            if is_wide(value):
                found.counts |= {axis.label: n for axis, n in zip(value.axes, value.counts, strict=True)}
        alongs = {found._row(name, value) for name, value in inputs.items()}
        if len(alongs) > 1:
            raise refused(op, inputs.values(), "steps over dims of which not all have the same room")
        found.along = alongs.pop() if alongs else None
        return found

    @property
    def count(self) -> Array | None:
        """The number of steps; None if it is that of the rows."""
        return None if self.along is None else self.counts[self.along.label]

    def _row(self, name: str, value: Any) -> Axis | None:
        axes = _axes(value)
        first = [axis for axis in axes if axis.dim == 0]
        if len(first) > 1 or any(axis.inner != 1 or axis.room != value.shape[0] for axis in first):
            raise refused(self.op, [value], "steps over a dim that is the product of several")
        self.rows[name] = tuple(axis._replace(dim=axis.dim - 1) for axis in axes if axis.dim)
        return first[0] if first else None

    def row(self, name: str, data: Array) -> Any:
        """A row of an input, or of the gradient of an output, as the ops of a step take it."""
        return widened(data, self.rows.get(name, ()), self.counts)

    def leave(self, name: str, value: Any) -> Any:
        """The array of what a step leaves of ``name``, whose axes are noted."""
        self.rows[name] = _axes(value)
        return bare(value)

    def stacked(self, name: str, data: Array, *, backward: bool = False) -> Any:
        """What all steps left of ``name``, or its gradient."""
        axes = tuple(axis._replace(dim=axis.dim + 1) for axis in self.rows.get(name, ()))
        value = widened(data, (() if self.along is None else (self.along,)) + axes, self.counts)
        return value if backward else refilled(value)

    def gradients(self, name: str, value: Any, forward: Any) -> Array:
        """The array of the gradient of what the steps left of ``name``, zero at unused positions."""
        self._row(name, forward)
        self.like(name, value, forward)
        return jnp.asarray(ended(value))

    def like(self, name: str, value: Any, forward: Any) -> Any:
        """The array of a gradient; NeedsSizes if it has not the axes of its forward value."""
        if value is not None and _axes(value) != _axes(forward):
            raise refused(self.op, [value, forward], f"has a gradient of {name!r} of another shape")
        return bare(value)


def _axes(value: Any) -> Axes:
    return value.axes if is_wide(value) else ()


def counted_scan(
    step: Callable[[Any, Any], tuple[Any, Any]], state: Any, xs: Any, count: Array, length: int, *, back: bool
) -> tuple[Any, Any]:
    """``lax.scan`` of the first ``count`` of ``length`` rows; what it stacks for the others is zero."""
    rows = jax.tree_util.tree_map(lambda v: jax.ShapeDtypeStruct(v.shape[1:], v.dtype), xs)
    (_, kept), again = trace(step, abstract(state), rows)
    buffers = zeros(stacked_template(kept, length))

    def body(carry: Any) -> Any:
        t, state, buffers = carry
        at = count - 1 - t if back else t
        state, kept = again(state, plain_element(xs, at))
        write = lambda buffer, row: jax.lax.dynamic_update_index_in_dim(buffer, row, at, 0)  # noqa: E731
        return t + 1, state, jax.tree_util.tree_map(write, buffers, kept)

    _, state, buffers = jax.lax.while_loop(lambda carry: carry[0] < count, body, (jnp.int32(0), state, buffers))
    return state, buffers


def plain_only(op: OpView, name: str, value: Any) -> Any:
    """``value``; NeedsSizes if it is wide."""
    if isinstance(value, Wide):
        raise refused(op, [value], f"carries {name!r} from step to step")
    return value
