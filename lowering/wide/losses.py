"""For losses and metrics, which axes the results have: see ``rules``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from lowering.program import GRAD
from lowering.values import Array
from lowering.wide.fills import lowest
from lowering.wide.given import whole
from lowering.wide.shapes import Found, Rule

if TYPE_CHECKING:
    from lowering.wide.call import Call


def alike(call: Call) -> Found:
    """All inputs have the same shape."""
    every = [v for slot in call.values for v in call.each(slot)]
    axes = {getattr(v, "axes", ()) for v in every}
    shapes = {tuple(v.shape) for v in every}
    return {"*": axes.pop()} if len(axes) == len(shapes) == 1 else None


def _entropy(x: str, axis: Callable[[Call], int]) -> Rule:
    """X and its labels have the same positions; classes are along another dim."""

    def rule(call: Call) -> Found:
        along = axis(call) % len(call.shape(x))
        off = all(a.dim != along for a in call.axes(x))
        paired = off and call.axes(x) == call.axes("Label") and len(call.shape(x)) == len(call.shape("Label"))
        return {"*": call.axes(x), "XShape": call.axes(x)} if paired else None

    return rule


def _softmax_entropy(call: Call) -> Found:
    """As others, or with classes along an axis: what is no class has no chance, nor a label."""
    (slot,) = [slot for slot in ("Logits", "Softmax") if call.each(slot)]  # the gradient reads chances
    along, axes = int(call.attr("axis")) % len(call.shape(slot)), call.axes(slot)
    classes = [axis for axis in axes if axis.dim == along]
    if not classes:
        return _entropy(slot, lambda call: along)(call)
    (axis,), rest = classes, [axis for axis in axes if axis.dim != along]
    paired = axes if call.attr("soft_label") else tuple(rest)
    if not whole(axis, call.shape(slot)) or call.axes("Label") != paired or not call.attr("use_softmax"):
        return None
    if slot == "Logits":
        call.fills[slot, axis] = lowest(call.each(slot)[0].dtype)
        call.refilled = True
    if call.attr("soft_label"):
        call.fills["Label", axis] = 0
    else:
        call.moved["Label"] = partial(_of_classes, axis.label, int(call.attr("ignore_index")))
    return {"Softmax": axes, "Loss": rest}


def _of_classes(classes: Hashable, ignored: int, label: Array, counts: Mapping[Any, Array]) -> Array:
    """Labels, of which those that no class of the run has are negative, as no class ever has."""
    return jnp.where(
        (label >= counts[classes]) & (label != ignored), np.asarray(min(ignored, 0) - 1, label.dtype), label
    )


def _entropy_with_logits(call: Call) -> Found:
    return None if call.attr("normalize") else alike(call)


def _chains(*paired: str) -> Rule:
    """Padded sequences with given lengths: whatever follows them is ignored, and meaningless."""

    def rule(call: Call) -> Found:
        axes = call.axes("Emission")
        if not call.each("Length") or not call.only("Emission", "Label") or any(a.dim != 1 for a in axes):
            return None
        if any(call.axes(s) != axes for s in ("Emission", "Label") if call.each(s)):
            return None
        return {"*": (), **dict.fromkeys(paired, axes)}

    return rule


def _flat(call: Call, slot: str) -> set[tuple[int, int, Hashable]]:
    """Where the axes of a value are once all of its dims are merged."""
    shape = call.shape(slot)
    return {(axis.inner * prod(shape[axis.dim + 1 :]), axis.room, axis.label) for axis in call.axes(slot)}


def _counted_pairs(call: Call) -> Found:
    """Pairs of classes, whatever their shapes: an unused place has a class that is none."""
    pair = ("Predictions", "Labels")
    if not call.only(*pair) or _flat(call, pair[0]) != _flat(call, pair[1]):
        return None
    call.fills.update({(slot, axis): call.attr("num_classes") for slot in pair for axis in call.axes(slot)})
    return {"*": ()}


def _steps_judged(call: Call) -> Found:
    """Padded steps and labels with given lengths: whatever follows them is ignored."""
    logits, label = call.axes("Logits"), call.axes("Label")
    known = call.each("LogitsLength") and (call.each("LabelLength") or not call.each("Label"))
    if not known or not call.only("Logits", "Label", "WarpCTCGrad", "Loss" + GRAD):
        return None
    if any(axis.dim != 0 for axis in logits) or any(axis.dim != 1 for axis in label):
        return None
    return {"*": (), "WarpCTCGrad": logits}


def _summed_differences(call: Call) -> Found:
    """A sum for each row, over places that are the same in X and Y where they are unused."""
    slots = [slot for slot in ("X", "Y", "InsideWeight", "OutsideWeight") if call.each(slot)]
    axes, shapes = {call.axes(slot) for slot in slots}, {call.shape(slot) for slot in slots}
    if len(axes) != 1 or len(shapes) != 1:
        return None
    call.fills.update({(slot, axis): 0 for slot in ("X", "Y") for axis in call.axes(slot) if axis.dim})
    return {"Diff": call.axes("X"), "Out": [axis for axis in call.axes("X") if not axis.dim]}


LOSSES: dict[str, Rule] = {
    "softmax_with_cross_entropy": _softmax_entropy,
    "cross_entropy": _entropy("X", lambda call: -1),
    "cross_entropy2": _entropy("X", lambda call: -1),
    "sigmoid_focal_loss": _entropy("X", lambda call: -1),
    "sigmoid_cross_entropy_with_logits": _entropy_with_logits,
    "linear_chain_crf": _chains("Alpha", "EmissionExps"),
    "crf_decoding": _chains("ViterbiPath"),
    "mean_iou": _counted_pairs,
    "warpctc": _steps_judged,
    "smooth_l1_loss": _summed_differences,
}
