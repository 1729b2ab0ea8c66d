"""Detectors' ops on the host run together, after all that does not wait for them: few parts are compiled."""

from __future__ import annotations

from typing import Any

import fluidjax as fluid
from fluidjax import layers
from fluidjax.framework.view import program_view
from lowering.engine.plan import Segment, make_plan


def parts_of(fetches: list[Any]) -> tuple[Segment, ...]:
    return make_plan(program_view(fluid.default_main_program()), [f.name for f in fetches]).segments


def proposed(maps: Any, info: Any, stride: float) -> tuple[Any, Any]:
    anchor, spread = layers.anchor_generator(maps, [4 * stride], [1.0], stride=[stride, stride])
    score, delta = layers.sigmoid(layers.conv2d(maps, 1, 1)), layers.conv2d(maps, 4, 1)
    return layers.generate_proposals(score, delta, info, anchor, spread, 40, 20)  # type: ignore[no-any-return]


def test_proposals_of_several_maps_are_made_after_all_maps() -> None:
    image, info = fluid.data("image", [None, 3, 32, 32]), fluid.data("info", [None, 3])
    fine = layers.conv2d(image, 4, 3, 4, 1)
    found = [proposed(fine, info, 4.0), proposed(layers.pool2d(fine, 2, "max", 2), info, 8.0)]
    rois = layers.collect_fpn_proposals([r for r, _ in found], [p for _, p in found], 2, 3, 20)
    pooled = layers.roi_align(fine, rois, 2, 2, 0.25)
    before, hosted, after = parts_of([pooled])
    assert [op.type for op in hosted.ops] == ["generate_proposals"] * 2 + ["collect_fpn_proposals"]
    assert hosted.host
    assert {op.type for op in before.ops} >= {"conv2d", "pool2d", "sigmoid"}
    assert [op.type for op in after.ops] == ["roi_align"]


def test_none_passes_what_changes_its_input() -> None:
    image, info = fluid.data("image", [None, 3, 32, 32]), fluid.data("info", [None, 3])
    fine = layers.conv2d(image, 4, 3, 4, 1)
    rois, _ = proposed(fine, info, 4.0)
    layers.assign(layers.fill_constant([1, 3], "float32", 1.0), info)
    assert [(part.host, part.ops[-1].type) for part in parts_of([rois, info])] == [
        (False, "fill_constant"),
        (True, "generate_proposals"),
        (False, "assign"),
    ]
