"""For convolutions and pools, which axes the results have: see ``rules``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowering.program import GRAD
from lowering.values import Axis
from lowering.wide.fills import lowest
from lowering.wide.labels import grown
from lowering.wide.shapes import Found, Rule, whole

if TYPE_CHECKING:
    from lowering.wide.calls import Call


def _pads(call: Call, rank: int) -> list[tuple[int, int]]:
    """The padding before and after each of the dims that windows move along."""
    pads = [int(n) for n in call.attr("paddings")]
    pads = [n for n in pads for _ in range(2)] if len(pads) == rank else pads
    return list(zip(pads[::2], pads[1::2], strict=True))


def _slid(call: Call, axis: Axis, more: int) -> Axis:
    """The axis of windows, one at each place, of which there are so many more than places."""
    axis = axis._replace(room=axis.room + more, label=grown(axis.label, more))
    call.least += [axis.label] if more < 0 else []
    return axis


def _convolved(call: Call) -> Found:
    """Windows along whole dims, one at each place, which read zeros where nothing is used, as in the padding."""
    spatial, plain = call.shape("Filter")[2:], call.attr("data_format") in ("AnyLayout", "NCHW", "NCDHW")
    if not plain or call.attr("padding_algorithm") != "EXPLICIT" or not call.only("Input", "Output" + GRAD):
        return None
    pads = _pads(call, len(spatial))
    found = []
    for axis in call.axes("Input"):
        at = axis.dim - 2
        if axis.dim and (at < 0 or not whole(axis, call.shape("Input")) or call.attr("strides")[at] != 1):
            return None
        if axis.dim:
            call.fills["Input", axis] = 0
            axis = _slid(call, axis, sum(pads[at]) - call.attr("dilations")[at] * (spatial[at] - 1))
        found.append(axis)
    return {"*": found}


def _pooled(call: Call) -> Found:
    """One window that is a whole dim; or windows as of ``_convolved``, whose means never count unused places."""
    x, most = call.shape("X"), call.attr("pooling_type") == "max"
    if call.attr("data_format") not in ("NCHW", "NCDHW") or not call.only("X", "Out", "Out" + GRAD):
        return None
    found, one = [], []
    for axis in call.axes("X"):
        if axis.dim < 2:
            found.append(axis)
        elif not whole(axis, x):
            return None
        elif _single(call, axis.dim - 2):
            one.append(axis)
        elif _slides(call, axis.dim - 2, len(x) - 2):
            more = sum(_pads(call, len(x) - 2)[axis.dim - 2]) - call.attr("ksize")[axis.dim - 2] + 1
            found.append(_slid(call, axis, more))
            call.refilled = True
        else:
            return None
        if axis.dim >= 2:
            call.fills["X", axis] = lowest(call.each("X")[0].dtype) if most else 0
    call.share = () if most else tuple(one)
    return {"*": found}


def _single(call: Call, at: int) -> bool:
    """Whether the only window along a dim is all of it."""
    adaptive, everything = call.attr("adaptive"), call.attr("global_pooling")
    return bool(not adaptive if everything else adaptive and call.attr("ksize")[at] == 1)


def _slides(call: Call, at: int, rank: int) -> bool:
    """Whether there is a window at each place, and a mean divides by the same number whether places follow or not."""
    free = call.attr("adaptive") or call.attr("global_pooling") or call.attr("padding_algorithm") != "EXPLICIT"
    if free or call.attr("strides")[at] != 1:
        return False
    before, after = _pads(call, rank)[at]
    return bool(call.attr("pooling_type") == "max" or after <= (0 if call.attr("exclusive") else before))


WINDOWS: dict[str, Rule] = {
    **dict.fromkeys(["conv2d", "conv3d"], _convolved),
    **dict.fromkeys(["pool2d", "pool3d"], _pooled),
}
