"""Cases of the corpus, and generators of inputs within an op's domain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lowering.values import LoDArray

Draw = Callable[[np.random.Generator], np.ndarray]
Inputs = Mapping[str, Any]  # slot -> array, or list of arrays


@dataclass(frozen=True)
class Case:
    """An op with attributes and generators for its inputs.

    Attributes:
        op: the op type.
        draws: slot -> generator of an array, list of generators, or a fixed value.
        attrs: the non-default attributes.
        label: distinguishes cases of one op.
        reference: NumPy function of the inputs (keywords named by slot, then attributes) that returns the outputs
            in the order of the op's slots; None if recordings are the reference.
        wrt: slots whose gradients are checked; None for all that have gradients.
        counts: number of variables of a duplicable output slot.
        smooth: whether the gradient op is the derivative of the op; False if Fluid's kernel deliberately differs.
        twice: whether the second derivative is checked too.
        rtol: relative tolerance of the reference in float64.
    """

    op: str
    draws: Mapping[str, Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    reference: Callable[..., Any] | None = None
    wrt: tuple[str, ...] | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    smooth: bool = True
    twice: bool = False
    rtol: float = 1e-9

    @property
    def name(self) -> str:
        """The op type and, after a hyphen, the label if there is one."""
        return f"{self.op}-{self.label}" if self.label else self.op

    def inputs(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw the inputs, as float64 if they are floating point."""
        return {slot: _drawn(draw, rng) for slot, draw in self.draws.items()}


def _drawn(draw: Any, rng: np.random.Generator) -> Any:
    if isinstance(draw, (list, tuple)):
        return [_drawn(d, rng) for d in draw]
    if isinstance(draw, LoDArray):
        return draw
    return draw(rng) if callable(draw) else np.asarray(draw)


def case(
    op: str,
    draws: Mapping[str, Any] | Draw | np.ndarray,
    attrs: Mapping[str, Any] | None = None,
    label: str = "",
    **options: Any,
) -> Case:
    """Create a Case; a single generator or array is for slot X."""
    return Case(op, draws if isinstance(draws, Mapping) else {"X": draws}, attrs or {}, label, **options)


def normal(*shape: int) -> Draw:
    """Numbers of either sign."""
    return lambda rng: rng.standard_normal(shape)


def between(low: float, high: float, *shape: int) -> Draw:
    """Numbers from [low, high)."""
    return lambda rng: rng.uniform(low, high, shape)


def positive(*shape: int) -> Draw:
    """Numbers from [0.5, 2)."""
    return between(0.5, 2.0, *shape)


def away(points: tuple[float, ...], *shape: int, gap: float = 0.05) -> Draw:
    """Numbers of either sign, at least ``gap`` away from the points where a function has a kink."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        values = rng.uniform(-3.0, 3.0, shape)
        for point in points:
            near = np.abs(values - point) < gap
            values = np.where(near, point + np.where(values < point, -2 * gap, 2 * gap), values)
        return values

    return draw


def distinct(*shape: int) -> Draw:
    """Numbers at least 0.1 apart: maxima and orders do not change under small steps."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        count = int(np.prod(shape))
        return ((rng.permutation(count) - count / 2) * 0.2 + 0.03).reshape(shape)

    return draw


def integers(low: int, high: int, *shape: int, dtype: str = "int64") -> Draw:
    """Integers from [low, high)."""
    return lambda rng: rng.integers(low, high, shape).astype(dtype)


def flags(*shape: int) -> Draw:
    """Booleans."""
    return lambda rng: rng.random(shape) < 0.5
