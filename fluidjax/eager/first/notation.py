"""The notation of the tables of primitives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Unknown(Exception):
    """A jaxpr contains something that is not in the tables."""


class Shape(NamedTuple):
    """The shape and element type of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class Equation(NamedTuple):
    """One application of a primitive: its parameters, inputs and outputs, and which inputs are written in place."""

    params: Mapping[str, Any]
    ins: Sequence[Shape]
    outs: Sequence[Shape]
    literals: Sequence[bool]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type of its result."""
        return self.outs[0].dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its result."""
        return self.outs[0].shape


Function = Callable[..., Any]  # from arrays (or NumPy scalars) to one, or to a sequence for several results
# What computes an equation in NumPy, without changing its inputs; None if NumPy has no equivalent.
Make = Callable[[Equation], Function | None]


class Step(NamedTuple):
    """A call of NumPy.

    Attributes:
        name: of the primitive.
        eqn: the equation.
        reads, writes: positions among the values of a run; ``writes`` is a tuple if there are several results.
    """

    name: str
    eqn: Equation
    function: Function
    reads: tuple[int, ...]
    writes: tuple[int, ...] | int
