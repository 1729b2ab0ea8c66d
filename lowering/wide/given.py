"""Numbers that an op is given as values: shapes, bounds and repetitions, some of them sizes of wide dims."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lowering.sizes.counts import RowSize, sizes_of
from lowering.sizes.labels import family
from lowering.values import Axis, RowCounts, is_concrete

if TYPE_CHECKING:
    from lowering.wide.call import Call


class Given(NamedTuple):
    """Numbers from a slot.

    Attributes:
        numbers: sizes of wide dims are ``RowSize``; None if some of the numbers are known only to the run.
    """

    call: Call
    slot: str
    numbers: list[int] | None

    def fix(self, numbers: Sequence[int]) -> None:
        """Let the op get these instead, in the same form."""
        self.call.moved[self.slot] = partial(_fixed, numbers)


def given(call: Call, *slots: str, multiples: bool = False) -> Given | None:
    """The numbers of the first of these slots that has any; None where attributes give them.

    Args:
        multiples: whether numbers may be multiples of sizes.
    """
    for slot in slots:
        values = call.each(slot)
        if values and all(isinstance(v, RowCounts) or is_concrete(v) for v in values):
            return Given(call, slot, [n for v in values for n in _numbers(v, multiples)])
        if values:
            return Given(call, slot, None)
    return None


def _numbers(value: Any, multiples: bool) -> list[int]:
    return sizes_of(value, multiples=multiples) if isinstance(value, RowCounts) else value.reshape(-1).tolist()


def _fixed(numbers: Sequence[int], value: Any, counts: Any) -> Any:
    found = np.asarray(numbers, np.int64)
    return list(found.reshape(-1, 1)) if isinstance(value, list) else found


def whole(axis: Axis, shape: Sequence[int]) -> bool:
    """Whether a dim is the positions of an axis and nothing else."""
    return axis.inner == 1 and axis.room == shape[axis.dim]


def bounds(call: Call, far: int) -> dict[int, tuple[int, int]] | None:
    """Dim -> where a slice of Input begins and ends, counted from the end where negative, ``far`` where it is the end.

    None if only the run knows. The op gets what is found.
    """
    axes, sides = call.attr("axes"), []
    for side, nothing in (("Starts", 0), ("Ends", far)):
        found = given(call, f"{side}TensorList", f"{side}Tensor")
        if found is None:
            sides.append([int(n) for n in call.attr(side.lower())])
            continue
        every = [_from_end(call, dim, n, nothing) for dim, n in zip(axes, found.numbers or (), strict=False)]
        placed = [n for n in every if n is not None]
        if len(placed) != len(axes):
            return None
        found.fix(placed)
        sides.append(placed)
    return dict(zip(axes, zip(*sides, strict=True), strict=True))


def _from_end(call: Call, dim: int, number: int, nothing: int) -> int | None:
    """A bound along a dim; one that follows a size is taken for that of the dim, and is negative, or ``nothing``."""
    if not isinstance(number, RowSize):
        return int(number)
    (x,) = call.each("Input")
    sized = [(a.label, n) for a, n in zip(x.axes, x.counts, strict=True) if a.dim == dim and whole(a, x.shape)]
    if not sized or number.label is None:
        return None
    (label, by), (other, more) = family(sized[0][0]), family(number.label)
    if more >= by and not nothing:
        return None
    if label != other:
        call.alike.append(((label, sized[0][1] - by), (other, number.nrows - more)))
    return more - by if more < by else nothing
