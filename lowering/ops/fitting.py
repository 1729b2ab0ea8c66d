"""Requirements of ops on declared inputs and attributes; dimensions of -1 are unknown and always accepted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowering.errors import Misfit


def one_of(name: str, value: Any, known: Sequence[Any]) -> None:
    """Attribute ``name`` is among the ``known`` values."""
    if value not in known:
        raise Misfit(f"{name} must be one of {', '.join(map(repr, known))}, received {value!r}")


def within(name: str, value: float, low: float, high: float = float("inf")) -> None:
    """low <= value <= high."""
    if not low <= value <= high:
        bound = f"at least {low}" if high == float("inf") else f"from {low} to {high}"
        raise Misfit(f"{name} must be {bound}, received {value}")


def axis_of(name: str, axis: int, rank: int) -> None:
    """-rank <= axis < rank."""
    within(name, axis, -rank, rank - 1)


def axes_of(name: str, axes: Sequence[int], rank: int) -> None:
    """Each one is an axis."""
    for axis in axes:
        axis_of(name, axis, rank)


def rank(name: str, var: Any, *ranks: int) -> None:
    """The variable has one of these ranks."""
    if len(var.shape) not in ranks:
        raise Misfit(f"{name} must have {' or '.join(map(str, ranks))} dims, received {list(var.shape)}")


def dim(name: str, var: Any, axis: int, *sizes: int) -> None:
    """Dimension ``axis`` of the variable is one of ``sizes``, or unknown."""
    if var.shape[axis] not in (-1, *sizes):
        raise Misfit(f"dim {axis} of {name} must be {' or '.join(map(str, sizes))}, received {list(var.shape)}")


def same(name: str, one: Sequence[int], other: Sequence[int]) -> None:
    """Two shapes agree wherever both are known."""
    differ = any(a != b for a, b in zip(one, other, strict=False) if a >= 0 and b >= 0)
    if len(one) != len(other) or differ:
        raise Misfit(f"{name} must agree, received {list(one)} and {list(other)}")


def as_many(name: str, values: Sequence[Any], count: int) -> None:
    """A list has ``count`` items."""
    if len(values) != count:
        raise Misfit(f"{name} must have {count} items, received {list(values)}")


def alike(names: str, *variables: Any) -> None:
    """The variables have the same dims: others would be combined by broadcasting, each with each."""
    for var in variables[1:]:
        same(f"the dims of {names}", variables[0].shape, var.shape)
