"""Inputs of an op whose shapes are written in letters, which stand for sizes that vary.

``"b n*m 4"`` has three dims, the second of which holds the positions of n and m, as after a reshape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


@dataclass(frozen=True)
class Input:
    """Its dims, and how the numbers of an array of a shape are drawn; ``of`` what dims, if they are places there."""

    dims: str
    draw: Draw
    of: str = ""


@dataclass(frozen=True)
class Case:
    """One call of an op.

    Attributes:
        inputs: slot -> an input, a list of them, a fixed value, or a function from (generator, letter -> size) to one.
        takes: the letters that may be wide, each alone and all together; for others the op may ask for true sizes.
        counts: the number of variables of an output slot that takes several.
        backward: whether the gradient op takes what the op takes.
        least: the least size of a dim.
    """

    inputs: Mapping[str, Any]
    takes: str
    attrs: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    backward: bool = True
    least: int = 1


def reals(dims: str) -> Input:
    """Numbers of either sign."""
    return Input(dims, lambda rng, shape: rng.standard_normal(shape))


def between(dims: str, low: float, high: float) -> Input:
    """Numbers from [low, high)."""
    return Input(dims, lambda rng, shape: rng.uniform(low, high, shape))


def positive(dims: str) -> Input:
    """Numbers from [0.5, 2)."""
    return between(dims, 0.5, 2)


def below(dims: str, end: int, start: int = 0) -> Input:
    """Integers from [start, end)."""
    return Input(dims, lambda rng, shape: rng.integers(start, end, shape))


def flags(dims: str) -> Input:
    """Booleans."""
    return Input(dims, lambda rng, shape: rng.random(shape) < 0.5)


def bits(dims: str) -> Input:
    """Zeros and ones, as float64."""
    return Input(dims, lambda rng, shape: (rng.random(shape) < 0.5).astype(np.float64))
