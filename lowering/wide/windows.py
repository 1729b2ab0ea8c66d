"""For convolutions, pools and what enlarges images, which axes the results have: see ``rules``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from lowering.program import GRAD
from lowering.sizes.counts import RowSize, whole_part
from lowering.sizes.labels import grown, scaled
from lowering.values import Array, Axis
from lowering.wide.fills import lowest
from lowering.wide.given import given, whole
from lowering.wide.shapes import Found, Rule, has_at_least

if TYPE_CHECKING:
    from lowering.wide.call import Call


def _pads(call: Call, rank: int) -> list[tuple[int, int]]:
    """The padding before and after each of the dims that windows move along."""
    pads = [int(n) for n in call.attr("paddings")]
    pads = [n for n in pads for _ in range(2)] if len(pads) == rank else pads
    return list(zip(pads[::2], pads[1::2], strict=True))


def _slid(call: Call, axis: Axis, more: int, stride: int) -> Axis:
    """The axis of windows: the first of each ``stride`` of the places, of which so many are added or lost."""
    room = -(-(axis.room + more) // stride)
    axis = axis._replace(room=room, label=grown(axis.label, more + stride - 1, stride))
    call.least += [axis.label] if more < 0 else []
    return axis


def _convolved(call: Call) -> Found:
    """Windows along whole dims, which read zeros where nothing is used, as in the padding."""
    plain = call.attr("data_format") in ("AnyLayout", "NCHW", "NCDHW")
    return _weighed(call) if plain and call.only("Input", "Output" + GRAD) else None


def _deformed(call: Call) -> Found:
    """As convolved, at places that are given for each result; those beyond the used ones are zero, as any outside."""
    found = _weighed(call) if call.only("Input", "Offset", "Mask", "Output" + GRAD) else None
    given = [set(call.axes(slot)) for slot in ("Offset", "Mask") if call.each(slot)]
    return found if found is not None and all(axes == set(found["*"]) for axes in given) else None


def _weighed(call: Call) -> Found:
    """Windows of the filter's size over Input."""
    spatial, found = call.shape("Filter")[2:], []
    for axis in call.axes("Input"):
        at = axis.dim - 2
        if axis.dim and (at < 0 or not whole(axis, call.shape("Input"))):
            return None
        if axis.dim:
            call.fills["Input", axis] = 0
            windows = _strided(call, "Input", axis, spatial, call.attr("dilations"))
            if windows is None:
                return None
            axis = windows
        found.append(axis)
    return {"*": found}


def _strided(
    call: Call, slot: str, axis: Axis, ksize: Sequence[int], dilations: Sequence[int], more: int = 0
) -> Axis | None:
    """The axis of windows over one, of which there may be ``more``; None if what they read depends on its size."""
    at, algorithm = axis.dim - 2, call.op.attrs.get("padding_algorithm", "EXPLICIT")
    size, stride = int(ksize[at]), int(call.attr("strides")[at])
    if algorithm != "SAME":
        pads = (0, 0) if algorithm == "VALID" else _pads(call, len(ksize))[at]
        return _slid(call, axis, sum(pads) - int(dilations[at]) * (size - 1) + more, stride)
    if axis.room % stride:
        return None
    if stride > 1:
        call.shifted[slot, axis] = partial(_more_before, axis, size, stride)
    return axis._replace(room=axis.room // stride, label=grown(axis.label, stride - 1, stride))


def _more_before(axis: Axis, size: int, stride: int, counts: Mapping[Any, Array]) -> Array:
    """How many places more the first window reaches beyond the used ones than beyond the room, where it is SAME."""
    number = counts[axis.label]
    beyond = jnp.maximum((-(-number // stride) - 1) * stride + size - number, 0)
    return beyond // 2 - np.int32(max(size - stride, 0) // 2)


def _transposed(call: Call) -> Found:
    """Each place spread over a window: what the transpose of ``_convolved`` reads."""
    plain = call.attr("data_format") in ("AnyLayout", "NCHW") and call.attr("padding_algorithm") == "EXPLICIT"
    free = any(call.attr("output_size")) or any(call.attr("output_padding"))
    if not plain or free or not call.only("Input", "Output" + GRAD):
        return None
    spatial, found = call.shape("Filter")[2:], []
    pads = _pads(call, len(spatial))
    for axis in call.axes("Input"):
        at = axis.dim - 2
        if axis.dim and (at < 0 or not whole(axis, call.shape("Input"))):
            return None
        if axis.dim:
            call.fills["Input", axis] = 0
            stride = int(call.attr("strides")[at])
            more = call.attr("dilations")[at] * (spatial[at] - 1) + 1 - stride - sum(pads[at])
            label = grown(scaled(axis.label, stride), more)
            axis = axis._replace(room=axis.room * stride + more, label=label)
            call.least += [label] if more < 0 else []
        found.append(axis)
    return {"*": found}


def _resized(call: Call) -> Found:
    """The op weighs the used places, and says which of the results are."""
    told = [found for slot in ("SizeTensor", "OutSize") if (found := given(call, slot)) is not None]
    numbers = [n for found in told for n in found.numbers or ()]
    known = all(found.numbers is not None for found in told) and all(getattr(n, "rate", 1) == 1 for n in numbers)
    if not known or not call.only("X", "Out" + GRAD):
        return None
    first = 1 if call.attr("data_layout") in ("NHWC", "NDHWC") else 2
    spatial = range(first, first + len(call.shape("X")) - 2) if call.each("X") else ()
    if any(axis.dim in spatial and not whole(axis, call.shape("X")) for axis in call.axes("X")):
        return None
    call.least += [n.label for n in numbers if isinstance(n, RowSize)]
    parts = {dim: whole_part(scale) for dim, scale in zip(spatial, () if told else _scales(call), strict=False)}
    call.least += [grown(a.label, 0, parts[a.dim]) for a in call.axes("X") if parts.get(a.dim)]
    call.kept.add("X")
    return {"*": ()}


def _scales(call: Call) -> list[float]:
    """How many times as large each dim becomes; none where attributes tell the sizes, or the run."""
    told, own = given(call, "Scale"), call.attr("scale")
    found = own if told is None else told.numbers or 0.0
    each = list(found) if isinstance(found, Sequence) else [found]
    return each * 3 if len(each) == 1 else each


def _padded(call: Call) -> Found:
    """Numbers around the places, which unused ones hold, too."""
    pads, axes = list(zip(call.attr("paddings")[::2], call.attr("paddings")[1::2], strict=True)), call.axes("X")
    call.fills.update({("X", axis): call.attr("pad_value") for axis in axes if any(pads[axis.dim])})
    return _surrounded(call, dict(enumerate(pads)))


def _padded2d(call: Call) -> Found:
    """The op puts what it adds around the used places."""
    told, first = given(call, "Paddings"), 2 if call.attr("data_format") == "NCHW" else 1
    sides = call.attr("paddings") if told is None else told.numbers
    if not call.only("X", "Out" + GRAD) or sides is None or any(isinstance(n, RowSize) for n in sides):
        return None
    pads = {first: (sides[0], sides[1]), first + 1: (sides[2], sides[3])}
    if call.attr("mode") == "reflect":
        for axis in call.axes("X"):
            has_at_least(call, axis, max(pads.get(axis.dim, (0, 0))) + 1)
    call.kept.add("X")
    return _surrounded(call, pads)


def _surrounded(call: Call, pads: Mapping[int, tuple[int, int]]) -> Found:
    """So many places before and after those of each dim."""
    found = []
    for axis in call.axes("X"):
        before, after = pads.get(axis.dim, (0, 0))
        if min(before, after) < 0 or ((before or after) and not whole(axis, call.shape("X"))):
            return None
        found.append(axis._replace(room=axis.room + before + after, label=grown(axis.label, before + after)))
    return {"*": found}


def _pooled(call: Call) -> Found:
    """One window that is a whole dim; or windows as of ``_convolved``, or as many as there are results.

    Where a mean divides by a number that depends on how many places are used, the op counts these.
    """
    x, most = call.shape("X"), call.attr("pooling_type") == "max"
    if call.attr("data_format") not in ("NCHW", "NCDHW") or not call.only("X", "Out", "Out" + GRAD):
        return None
    moved = [axis for axis in call.axes("X") if axis.dim >= 2]
    if not all(whole(axis, x) for axis in moved):
        return None
    one = {axis for axis in moved if _single(call, axis.dim - 2)}
    parted = set() if call.attr("global_pooling") or not call.attr("adaptive") else {*moved} - one
    slid = [axis for axis in moved if axis not in one | parted]
    if not all(_reaches(call, axis.dim - 2, len(x) - 2) for axis in slid):
        return None
    windows = [_strided(call, "X", a, call.attr("ksize"), [1, 1, 1], _rounded_up(call, a.dim - 2)) for a in slid]
    if None in windows or (call.shifted and not most):
        return None
    call.fills.update({("X", axis): lowest(call.each("X")[0].dtype) if most else 0 for axis in moved})
    call.refilled = bool(slid)
    if parted or not (most or all(_same_share(call, axis.dim - 2, len(x) - 2) for axis in slid)):
        call.kept.add("X")
    elif not most:
        call.share = tuple(one)
    return {"*": [*(axis for axis in call.axes("X") if axis.dim < 2), *filter(None, windows)]}


def _single(call: Call, at: int) -> bool:
    """Whether the only window along a dim is all of it."""
    adaptive, everything = call.attr("adaptive"), call.attr("global_pooling")
    return bool(not adaptive if everything else adaptive and call.attr("ksize")[at] == 1)


def _rounded_up(call: Call, at: int) -> int:
    """How many places less than a stride make a window of their own."""
    return int(call.attr("strides")[at]) - 1 if call.attr("ceil_mode") else 0


def _around(call: Call, at: int, rank: int) -> tuple[int, int]:
    """The most padding that there may be before and after a dim."""
    size, algorithm = int(call.attr("ksize")[at]), call.attr("padding_algorithm")
    if algorithm == "SAME":
        return (size - 1) // 2, size // 2
    return (0, 0) if algorithm == "VALID" else _pads(call, rank)[at]


def _beyond(call: Call, at: int, rank: int) -> int:
    """How far the last window may reach beyond the last place."""
    return _around(call, at, rank)[1] + _rounded_up(call, at)


def _reaches(call: Call, at: int, rank: int) -> bool:
    """Whether windows move with strides along a dim, and each has a place in it."""
    if call.attr("adaptive") or call.attr("global_pooling"):
        return False
    return bool(_beyond(call, at, rank) < call.attr("ksize")[at])


def _same_share(call: Call, at: int, rank: int) -> bool:
    """Whether a mean divides by the same number whether places follow or not."""
    (before, after), beyond = _around(call, at, rank), _beyond(call, at, rank)
    return bool(beyond <= 0 or (after == beyond and after <= before and not call.attr("exclusive")))


def _regions(call: Call) -> Found:
    """Regions of maps: the op looks for the height and width that are used; what is outside of them is zero."""
    if not call.only("X") or any(axis.dim < 2 or not whole(axis, call.shape("X")) for axis in call.axes("X")):
        return None
    if call.definition.type == "prroi_pool":
        call.fills.update({("X", axis): 0 for axis in call.axes("X")})
    else:
        call.kept.add("X")
    return {"*": ()}


def _patched(call: Call) -> Found:
    """Windows as rows of sequences: the op counts those of the used places, and reads zeros around these."""
    plain = not call.each("Y") or call.shape("X")[0] == 1
    if not plain or not call.only("X") or any(a.dim < 2 or not whole(a, call.shape("X")) for a in call.axes("X")):
        return None
    pads = call.attr("paddings")
    for axis in call.axes("X"):
        at = axis.dim - 2
        stride = int(call.attr("strides")[at])
        more = int(pads[at] + pads[at + 2] - call.attr("kernels")[at])
        call.least.append(grown(axis.label, more + stride, stride))
    call.kept.add("X")
    return {"*": ()}


REGIONS = frozenset("roi_pool roi_align psroi_pool prroi_pool".split())
BESIDE_ROWS = REGIONS | {"im2sequence", "gather"}  # what reads or makes padded rows beside
INTERPOLATIONS = frozenset(
    f"{name}_interp{version}" for name in "nearest linear bilinear trilinear bicubic".split() for version in ("", "_v2")
)
WINDOWS: dict[str, Rule] = {
    **dict.fromkeys(["conv2d_transpose", "depthwise_conv2d_transpose"], _transposed),
    **dict.fromkeys(INTERPOLATIONS, _resized),
    **dict.fromkeys(REGIONS, _regions),
    **dict.fromkeys(["conv2d", "conv3d", "depthwise_conv2d"], _convolved),
    **dict.fromkeys(["deformable_conv", "deformable_conv_v1"], _deformed),
    **dict.fromkeys(["pool2d", "pool3d"], _pooled),
    "im2sequence": _patched,
    "pad": _padded,
    "pad2d": _padded2d,
}
