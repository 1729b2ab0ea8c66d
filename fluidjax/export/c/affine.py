"""Index arithmetic: sums of C expressions with integer factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Affine:
    """``const + sum(factor * term)``; the terms are C expressions of type long."""

    terms: Mapping[str, int] = field(default_factory=dict)
    const: int = 0

    @staticmethod
    def of(value: Affine | str | int) -> Affine:
        """Convert a number or a C expression; affine values pass through."""
        if isinstance(value, Affine):
            return value
        return Affine({value: 1}) if isinstance(value, str) else Affine({}, int(value))

    def __add__(self, other: Affine | str | int) -> Affine:
        other = Affine.of(other)
        terms = dict(self.terms)
        for term, factor in other.terms.items():
            terms[term] = terms.get(term, 0) + factor
        return Affine({t: f for t, f in terms.items() if f}, self.const + other.const)

    def __mul__(self, factor: int) -> Affine:
        factor = int(factor)
        return Affine({t: f * factor for t, f in self.terms.items() if factor}, self.const * factor)

    def __str__(self) -> str:
        words = [term if factor == 1 else f"{factor}*{term}" for term, factor in self.terms.items()]
        if self.const or not words:
            words.append(str(self.const))
        return " + ".join(words).replace("+ -", "- ")

    @property
    def fixed(self) -> bool:
        """Whether the value is a known number."""
        return not self.terms


Index = Sequence[Affine]


def strides_of(shape: Sequence[int]) -> list[int]:
    """Distances in elements between neighbours along each dim of an array whose last dim is contiguous."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return strides[::-1]


def address(index: Index, strides: Sequence[int], start: Affine | int = 0) -> Affine:
    """The position of an element."""
    total = Affine.of(start)
    for at, stride in zip(index, strides, strict=True):
        total = total + at * stride
    return total
