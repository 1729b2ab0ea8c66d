"""What the tables of primitives are written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Shape(NamedTuple):
    """What an array is."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class Equation(NamedTuple):
    """One application of a primitive: its parameters, what it takes and what it gives."""

    params: Mapping[str, Any]
    ins: Sequence[Shape]
    outs: Sequence[Shape]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type of its result."""
        return self.outs[0].dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its result."""
        return self.outs[0].shape


Function = Callable[..., Any]  # arrays (or NumPy's scalars) to one, or to a sequence for several results
# What computes an equation on NumPy, without changing what it is given; None where NumPy has no equal.
Make = Callable[[Equation], Function | None]
