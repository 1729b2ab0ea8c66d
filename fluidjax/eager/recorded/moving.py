"""Which numbers change from step to step: those that differ at the same place of sequences that are alike otherwise.

A place is known by the ops and shapes before it, not by their numbers. So if a step has a hundred numbers that change,
all of them are seen to do so at once, though each makes what follows it another sequence.
"""

from __future__ import annotations

from fluidjax.eager.kernels import Kernel, freeze
from fluidjax.eager.sequences.points import CLOSED, Point

_NUMBERS = frozenset("scale bias factor min max seed value str_value".split())


def moves(kernel: Kernel, point: Point, apart: int) -> bool:
    """Whether ops like this one occurred at this place with other numbers, more than a few.

    Args:
        point: the record before.
        apart: the number of constants before that were not recorded, because they change.
    """
    rest = tuple([(name, freeze(value)) for name, value in kernel.attrs.items() if name not in _NUMBERS])
    place = point.place, point.constants + apart
    seen = point.tree.numbers.setdefault((place, kernel.type, kernel.ins, kernel.outs, rest), set())
    if len(seen) <= CLOSED:
        seen.add(tuple([value for name, value in kernel.attrs.items() if name in _NUMBERS]))
    return len(seen) > CLOSED
