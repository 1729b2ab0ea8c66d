"""Which numbers change from step to step: those that differ at the same position of a recorded sequence."""

from __future__ import annotations

from fluidjax.eager.kernels import Kernel, freeze
from fluidjax.eager.points import Point

CLOSED = 2  # different numbers that stay attributes
_NUMBERS = frozenset("scale bias factor min max seed value str_value".split())


def moves(kernel: Kernel, point: Point) -> bool:
    """Whether ops like this one occurred at this position with other numbers, more than a few."""
    rest = tuple([(name, freeze(value)) for name, value in kernel.attrs.items() if name not in _NUMBERS])
    family = kernel.type, kernel.ins, kernel.outs, rest
    if point.numbers is None:
        point.numbers = {}
    seen = point.numbers.setdefault(family, set())
    if len(seen) <= CLOSED:
        seen.add(tuple([value for name, value in kernel.attrs.items() if name in _NUMBERS]))
    return len(seen) > CLOSED
