"""What an op makes of sizes, learned where it was traced on values with room: other sizes need no trace of their own.

The trace says which dims of the results follow which dims of the inputs, for any size up to the room. Ops that expect
more of sizes than their inputs show tell nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fluidjax.base.enums import VarType, to_var_type
from fluidjax.eager.values import Spec, is_plain
from lowering.sizes.labels import count_of
from lowering.values import Axis, Wide

MOST = 8  # laws of one kernel


class Form(NamedTuple):
    """A value of any size, with its room."""

    shape: tuple[int, ...]
    dtype: VarType
    axes: tuple[Axis, ...]

    def used(self, counts: dict[Any, int]) -> tuple[int, ...]:
        """The shape where so many places are used, by label; KeyError for a label of which that is not known."""
        shape = list(self.shape)
        for axis in self.axes:
            shape[axis.dim] = shape[axis.dim] // axis.room * int(count_of(axis.label, counts))
        return tuple(shape)


def form_of(value: Any) -> Form:
    """The form of an array, which may have room."""
    return Form(tuple(value.shape), to_var_type(value.dtype), value.axes if isinstance(value, Wide) else ())


class Law(NamedTuple):
    """The specs of an op's outputs by those of its inputs."""

    ins: tuple[Form, ...]
    outs: tuple[Form | None, ...]

    def outputs(self, specs: Sequence[Spec]) -> tuple[Spec | None, ...] | None:
        """The specs of the outputs; None where the law says nothing of such inputs."""
        counts = self._counts(specs)
        if counts is None:
            return None
        return tuple([None if out is None else Spec.of(out.used(counts), out.dtype) for out in self.outs])

    def _counts(self, specs: Sequence[Spec]) -> dict[Any, int] | None:
        """How many places are used, by label."""
        if len(specs) != len(self.ins):
            return None
        counts: dict[Any, int] = {}
        for form, spec in zip(self.ins, specs, strict=True):
            if not is_plain(spec) or spec.dtype != form.dtype or len(spec.shape) != len(form.shape):
                return None
            alone = [axis for axis in form.axes if sum(other.dim == axis.dim for other in form.axes) == 1]
            for axis in [axis for axis in alone if isinstance(axis.label, int)]:
                counts.setdefault(axis.label, spec.shape[axis.dim] * axis.room // form.shape[axis.dim])
        return counts if self._fits(specs, counts) else None

    def _fits(self, specs: Sequence[Spec], counts: dict[Any, int]) -> bool:
        axes = [axis for form in (*self.ins, *self.outs) if form is not None for axis in form.axes]
        if any(isinstance(a.label, int) and not 0 < counts.get(a.label, 0) <= a.room for a in axes):
            return False
        try:
            return all(form.used(counts) == spec.shape for form, spec in zip(self.ins, specs, strict=True))
        except KeyError:
            return False


def law_of(values: Sequence[Any], results: Sequence[Any]) -> Law | None:
    """The law by which an op made these results; None if they are not all arrays."""
    if not all(isinstance(v, (Wide, jax.Array, np.ndarray)) for v in (*values, *results) if v is not None):
        return None
    outs = tuple([None if result is None else form_of(result) for result in results])
    return Law(tuple(map(form_of, values)), outs)
