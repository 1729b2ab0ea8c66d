"""For detectors' ops on maps of any size, which axes the results have: see ``rules``."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from lowering.program import GRAD
from lowering.values import Axis
from lowering.wide.given import whole
from lowering.wide.shapes import Found, Rule

if TYPE_CHECKING:
    from lowering.wide.call import Call


def _cells(call: Call, slot: str) -> list[Axis] | None:
    """The axes of the height and width of maps; None if these are not whole dims."""
    axes = [axis for axis in call.axes(slot) if axis.dim >= 2]
    return axes if all(whole(axis, call.shape(slot)) for axis in axes) else None


def _boxes_of_cells(*sized: str) -> Rule:
    """Boxes [H, W, P, 4] around the cells of Input; the op reads the used sizes of these slots."""

    def rule(call: Call) -> Found:
        cells = _cells(call, "Input")
        if cells is None or (call.each("Image") and _cells(call, "Image") is None):
            return None
        call.kept.update(sized)
        return {"*": [axis._replace(dim=axis.dim - 2) for axis in cells]}

    return rule


def _dense_boxes(call: Call) -> Found:
    """As others, or [H W P, 4]."""
    found = _boxes_of_cells("Input", "Image")(call)
    if found is None or not call.attr("flatten_to_2d"):
        return found
    each = len(call.attr("fixed_ratios")) * sum(int(n) ** 2 for n in call.attr("densities"))
    inner = {0: call.shape("Input")[3] * each, 1: each}
    return {"*": [axis._replace(dim=0, inner=inner[axis.dim]) for axis in found["*"]]}


def _predicted(call: Call) -> Found:
    """Boxes and scores [N, A H W, ...] of maps: the op divides by the used sizes."""
    cells = _cells(call, "X")
    if cells is None or not call.only("X") or any(axis.dim == 1 for axis in call.axes("X")):
        return None
    call.kept.add("X")
    inner = {2: call.shape("X")[3], 3: 1}
    batch = [axis for axis in call.axes("X") if axis.dim == 0]
    return {"*": [*batch, *(axis._replace(dim=1, inner=inner[axis.dim]) for axis in cells)]}


def _predictions_judged(call: Call) -> Found:
    """A loss for each image, of the cells that are used; the mask is kept for the gradient."""
    cells = _cells(call, "X")
    if cells is None or not call.only("X", "ObjectnessMask", "Loss" + GRAD) or len(cells) < len(call.axes("X")):
        return None
    call.kept.add("X")
    return {"*": (), "ObjectnessMask": cells}


def _coded(call: Call) -> Found:
    """Each target with each prior, or those along one dim of the targets."""
    axes = {slot: call.axes(slot) for slot in ("PriorBox", "PriorBoxVar", "TargetBox")}
    shape = call.shape("TargetBox")
    priors = set(axes["PriorBox"])
    spread = set(axes["PriorBoxVar"])
    if any(a.dim for a in priors | spread) or any(a.dim == len(shape) - 1 for a in axes["TargetBox"]):
        return None
    if call.each("PriorBoxVar") and prod(call.shape("PriorBoxVar")) > 4 and spread != priors:
        return None
    encodes = call.attr("code_type") in ("encode_center_size", "EncodeCenterSize")
    along = 1 if encodes else 1 - int(call.attr("axis"))
    placed = {axis._replace(dim=along) for axis in priors}
    if encodes:
        return {"*": [*axes["TargetBox"], *placed]}
    return {"*": axes["TargetBox"]} if placed == {a for a in axes["TargetBox"] if a.dim == along} else None


def _geometry(call: Call) -> Found:
    """Corners, from each cell's place and its own offsets."""
    return {"*": call.axes("Input")}


BOXES: dict[str, Rule] = {
    "polygon_box_transform": _geometry,
    "anchor_generator": _boxes_of_cells(),
    "prior_box": _boxes_of_cells("Input", "Image"),
    "density_prior_box": _dense_boxes,
    "yolo_box": _predicted,
    "yolov3_loss": _predictions_judged,
    "box_coder": _coded,
}
COUNTED_BOXES = frozenset(["yolov3_loss"])  # their gradients need the rule, too
