"""The number of windows along an axis, from which convolutions, pools, unfold and im2sequence compute their sizes."""

from __future__ import annotations

from typing import NamedTuple

from lowering.errors import SizeError
from lowering.symbols import is_symbol

Pads = tuple[int, int]


class Geometry(NamedTuple):
    """Of a convolution: strides, (low, high) padding per spatial axis, dilations, and the number of groups."""

    strides: tuple
    pads: tuple
    dilations: tuple
    groups: int


def extent(k: int, dilation: int = 1) -> int:
    """Rows from the first tap of a window to its last."""
    return dilation * (k - 1) + 1


def count(size: int, k: int, stride: int, pads: Pads, dilation: int = 1, *, ceil_mode: bool = False) -> int:
    """Windows along an axis of ``size`` rows: (size + pads - extent) / stride + 1, rounded up with ``ceil_mode``.

    Fluid divides as in C++, truncating towards zero: if fewer than ``stride`` rows are missing, there is still one
    window, which extends beyond the axis (the last pool of GoogLeNet has 7 of 6 rows).

    Raises:
        SizeError: not even one window.
    """
    room = size + sum(pads) - extent(k, dilation) + (stride - 1 if ceil_mode else 0)
    found = 1 + (room // stride if is_symbol(room) or room >= 0 else -(-room // stride))
    return at_least_one(found, size, f"windows of {extent(k, dilation)} rows in steps of {stride}, padding {pads}")


def at_least_one(found: int, size: int, what: str) -> int:
    """``found``, the rows that an op makes of ``size`` ones. A symbol's are checked where it gets its number.

    Raises:
        SizeError: there are none.
    """
    if not is_symbol(found) and found < 1:
        raise SizeError(
            f"{size} rows are too few for {what}: expected at least one row to come out, received {found};"
            " make the input or the padding larger, or the windows smaller",
            size,
        )
    return found


def reached(size: int, k: int, stride: int, pads: Pads, dilation: int = 1) -> Pads:
    """``pads``, with as many rows more at the end as the windows of ``count`` reach out of the axis."""
    last = (count(size, k, stride, pads, dilation) - 1) * stride + extent(k, dilation)
    return pads[0], max(pads[1], last - size - pads[0])
