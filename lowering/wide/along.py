"""For ops that sum, sort or search along a dim, which axes the results have: see ``rules``.

Places along the dim are results of some: they are the same with room where the used positions come first, so the dim
must be those of one axis and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lowering.values import Axis
from lowering.wide.fills import highest, lowest, unordered
from lowering.wide.given import whole
from lowering.wide.shapes import Found, Rule, has_at_least

if TYPE_CHECKING:
    from lowering.wide.call import Call

Fill = Callable[[Any], Any]  # dtype -> a number


def _cumsum(call: Call) -> Found:
    """Zeros change no sum, wherever they are."""
    if not call.only("X") or call.attr("flatten"):
        return None
    along = int(call.attr("axis")) % len(call.shape("X"))
    for axis in call.axes("X"):
        if axis.dim == along:
            call.fills["X", axis] = 0
            call.refilled = True
    return {"*": call.axes("X")}


def _lying(call: Call, along: int, fill: Fill) -> list[Axis] | None:
    """The axes along a dim, whose unused positions are filled; None if some of them do not follow the used ones."""
    axes = [axis for axis in call.axes("X") if axis.dim == along]
    if not call.only("X") or not all(whole(axis, call.shape("X")) for axis in axes):
        return None
    call.fills.update({("X", axis): fill(call.each("X")[0].dtype) for axis in axes})
    return axes


def _argument(fill: Fill) -> Rule:
    """The place of the first extreme."""

    def rule(call: Call) -> Found:
        along = int(call.attr("axis")) % len(call.shape("X"))
        if call.attr("flatten") or _lying(call, along, fill) is None:
            return None
        left, gone = [axis for axis in call.axes("X") if axis.dim != along], not call.attr("keepdims")
        return {"*": [axis._replace(dim=axis.dim - (gone and axis.dim > along)) for axis in left]}

    return rule


def _reversed(call: Call) -> Found:
    """What is used, moved to where the room ends, is in front when all is reversed."""
    x, dims = call.shape("X"), {int(axis) % len(call.shape("X")) for axis in call.attr("axis")}
    along = [axis for axis in call.axes("X") if axis.dim in dims]
    if len(along) > 1 or not all(whole(axis, x) for axis in along):
        return None
    for axis in along:
        call.ended["X"] = axis
    return {"*": call.axes("X")}


def _argsort(call: Call) -> Found:
    along = int(call.attr("axis")) % len(call.shape("X"))
    lying = _lying(call, along, lowest if call.attr("descending") else unordered)
    call.refilled = bool(lying)
    return None if lying is None else {"*": call.axes("X")}


def _best(axis: Callable[[Call], int], fill: Callable[[Call], Fill]) -> Rule:
    """The first k in order, of at least as many."""

    def rule(call: Call) -> Found:
        along = axis(call) % len(call.shape("X"))
        lying = _lying(call, along, fill(call))
        if lying is None or (lying and call.each("K")):
            return None
        for one in lying:
            has_at_least(call, one, int(call.attr("k")))
        return {"*": [axis for axis in call.axes("X") if axis.dim != along] if lying else call.axes("X")}

    return rule


def _last_of_largest(dtype: Any) -> Any:
    """What ``top_k_v2`` takes last: it sorts falling numbers as rising opposites, after which is NaN."""
    return unordered(dtype) if np.issubdtype(dtype, np.floating) else lowest(dtype)


ALONG: dict[str, Rule] = {
    "cumsum": _cumsum,
    "reverse": _reversed,
    "arg_max": _argument(lowest),
    "arg_min": _argument(highest),
    "argsort": _argsort,
    "top_k": _best(lambda call: -1, lambda call: lowest),
    "top_k_v2": _best(
        lambda call: int(call.attr("axis")), lambda call: _last_of_largest if call.attr("largest") else unordered
    ),
}
