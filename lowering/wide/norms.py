"""For ops that treat the places of each row, channel or group together, which axes the results have: see ``rules``."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from lowering.program import GRAD
from lowering.wide.given import whole
from lowering.wide.shapes import Found, Rule, off_last

if TYPE_CHECKING:
    from lowering.wide.call import Call


def _layer_norm(call: Call) -> Found:
    x, begin = call.shape("X"), int(call.attr("begin_norm_axis"))
    if not call.only("X") or any(axis.dim >= begin for axis in call.axes("X")):
        return None
    rows = [a._replace(dim=0, inner=a.inner * prod(x[a.dim + 1 : begin])) for a in call.axes("X")]
    return {"Y": call.axes("X"), "Mean": rows, "Variance": rows}


def _prelu(call: Call) -> Found:
    """A slope for each channel, or for all places alike."""
    wise = call.only("X", "Out" + GRAD) and call.attr("mode") != "element" and all(a.dim != 1 for a in call.axes("X"))
    return {"*": call.axes("X")} if wise else None


def _batch_norm(call: Call) -> Found:
    """Means over all dims but the channels: the op counts the used positions."""
    rank = len(call.shape("X"))
    channels = rank - 1 if call.attr("data_layout") == "NHWC" and rank > 2 else 1
    if not call.only("X", "Y" + GRAD) or any(axis.dim == channels for axis in call.axes("X")):
        return None
    call.kept.add("X")
    return {"Y": call.axes("X")}


def _instance_norm(call: Call) -> Found:
    """Means over the places of each plane: the op counts the used ones."""
    planes, x = ("SavedMean", "SavedVariance"), call.shape("X")
    if not call.only("X", *planes, "Y" + GRAD) or any(axis.dim == 1 for axis in call.axes("X")):
        return None
    call.kept.add("X")
    rows = [axis._replace(inner=axis.inner * x[1]) for axis in call.axes("X") if axis.dim == 0]
    return {"Y": call.axes("X"), **dict.fromkeys(planes, rows)}


def _group_norm(call: Call) -> Found:
    """Means over the places of each group of channels, which the op counts; its gradient reads Y in place of X."""
    (slot,) = [slot for slot in ("X", "Y") if call.each(slot)]
    axes, shape = call.axes(slot), call.shape(slot)
    channels = len(shape) - 1 if call.attr("data_layout") == "NHWC" else 1
    if not call.only(slot, "Mean", "Variance", "Y" + GRAD) or any(axis.dim == channels for axis in axes):
        return None
    call.kept.add(slot)
    rows = [axis for axis in axes if axis.dim == 0]
    return {"Y": axes, "Mean": rows, "Variance": rows}


def _off_channels(call: Call) -> Found:
    """Maps whose channels are taken together; one after the other where something is given for each."""
    layouts = {call.op.attrs.get(name, "NCHW") for name in ("data_layout", "data_format")}
    plain = layouts <= {"NCHW", "AnyLayout"} and int(call.op.attrs.get("axis", 1)) == 1
    wise = plain and call.only("X", "Out", "MidOut", "Out" + GRAD) and all(axis.dim != 1 for axis in call.axes("X"))
    return {"*": call.axes("X")} if wise else None


def _contexts(call: Call) -> Found:
    """What follows a place of padded sequences, zero where nothing is used."""
    if not call.only("X", "Out" + GRAD) or any(
        axis.dim > 1 or not whole(axis, call.shape("X")) for axis in call.axes("X")
    ):
        return None
    call.fills.update({("X", axis): 0 for axis in call.axes("X") if axis.dim == 1})
    return {"*": call.axes("X")}


NORMS: dict[str, Rule] = {
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "group_norm": _group_norm,
    "prelu": _prelu,
    "add_position_encoding": off_last,
    "row_conv": _contexts,
    **dict.fromkeys(["affine_channel", "lrn", "maxout", "shuffle_channel"], _off_channels),
}
