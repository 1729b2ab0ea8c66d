"""Detectors on images of any size: boxes around the cells of several maps, and proposals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from tests.lod.detection_nets import faster_rcnn
from tests.stream.test_wide import Feed, compare
from tests.stream.test_wide_images import image, images
from tests.stream.test_wide_sizes import equal_to_exact_sizes

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SIZES = ((16, 24), (24, 32), (16, 32))


def maps() -> tuple[Any, Any, Any]:
    """Images, and maps of two scales."""
    x = image()
    fine = layers.conv2d(x, 4, 3, 2, 1, act="tanh")
    return x, fine, layers.conv2d(fine, 4, 3, 2, 1, act="tanh")


def single_shot() -> Sequence[Any]:
    """SSD's heads, whose boxes of two scales follow each other, decoded."""
    x, fine, coarse = maps()
    sizes = {"min_sizes": [4.0, 8.0], "max_sizes": [8.0, 14.0]}
    moves, scores, priors, spread = layers.multi_box_head(
        [fine, coarse], x, base_size=16, num_classes=3, aspect_ratios=[[2.0], [2.0]], flip=True, **sizes
    )
    boxes = layers.box_coder(priors, spread, moves, "decode_center_size")
    chances = layers.softmax(scores)
    loss = layers.mean(layers.square(moves)) + layers.mean(layers.square(chances))
    return [loss, boxes, chances, layers.transpose(chances, [0, 2, 1]), priors]


def test_boxes_of_two_scales(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    equal_to_exact_sizes(monkeypatch, single_shot, images(rng, SIZES), 2)


def proposals() -> Sequence[Any]:
    """Faster R-CNN: three steps between what runs on the host, each of which is compiled."""
    x = fluid.data("image", [None, 3, None, None], "float32")
    info, boxes = fluid.data("info", [None, 3], "float32"), fluid.data("boxes", [None, 4], "float32", lod_level=1)
    classes, crowd = (fluid.data(name, [None, 1], "int32", lod_level=1) for name in ("classes", "crowd"))
    return faster_rcnn(fluid, x, info, boxes, classes, crowd)


def scenes(rng: np.random.Generator, sizes: Sequence[tuple[int, int]]) -> list[Feed]:
    found: list[Feed] = []
    for height, width in sizes:
        counts = rng.integers(1, 4, 2).tolist()
        corner = rng.uniform(0, 12, (sum(counts), 2))
        boxes = np.concatenate([corner, corner + rng.uniform(4, 11, corner.shape)], 1).astype(np.float32)
        classes, crowd = rng.integers(1, 3, (sum(counts), 1)), np.zeros((sum(counts), 1))
        feed: Feed = {
            "image": rng.normal(size=(2, 3, height, width)).astype(np.float32),
            "info": np.array([[height, width, 1.0]] * 2, np.float32),
        }
        ragged = {"boxes": boxes, "classes": classes.astype(np.int32), "crowd": crowd.astype(np.int32)}
        lod = {name: fluid.create_lod_tensor(rows, [counts], fluid.CPUPlace()) for name, rows in ragged.items()}
        found.append({**feed, **lod})
    return found


def test_proposals_in_images_of_any_size(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(monkeypatch, proposals, scenes(rng, [(32, 40), (40, 48), (40, 40)]), 6)


def detected() -> Sequence[Any]:
    """Faster R-CNN at work: boxes of two levels of proposals, decoded by these and cut to the image."""
    x = fluid.data("image", [None, 3, None, None], "float32")
    info = fluid.data("info", [None, 3], "float32")
    fine = layers.conv2d(x, 4, 3, 4, 1, act="relu")
    anchor, spread = layers.anchor_generator(fine, [8.0, 16.0], [1.0], stride=[4.0, 4.0])
    score, delta = layers.sigmoid(layers.conv2d(fine, 2, 1)), layers.conv2d(fine, 8, 1)
    rois, _ = layers.generate_proposals(score, delta, info, anchor, spread, 40, 20, nms_thresh=0.6, min_size=1.0)
    head = layers.fc(layers.roi_align(fine, rois, 2, 2, 0.25, 2), 8, act="relu")
    moves = layers.reshape(layers.fc(head, 12), [-1, 3, 4])
    boxes = layers.box_coder(rois, [0.1, 0.1, 0.2, 0.2], moves, "decode_center_size", False, axis=1)
    found = layers.multiclass_nms(
        layers.box_clip(boxes, info), layers.softmax(layers.fc(head, 3)), 0.1, -1, 10, 0.5, normalized=False
    )
    return [layers.mean(head), layers.sequence_pool(found, "sum"), layers.reduce_mean(layers.abs(boxes))]


def shifted() -> Sequence[Any]:
    """What only exact rows can be given to: channels of a region beside those of the ones before and after it."""
    x = fluid.data("image", [None, 3, None, None], "float32")
    info = fluid.data("info", [None, 3], "float32")
    fine = layers.conv2d(x, 4, 3, 4, 1, act="relu")
    anchor, spread = layers.anchor_generator(fine, [8.0, 16.0], [1.0], stride=[4.0, 4.0])
    score, delta = layers.sigmoid(layers.conv2d(fine, 2, 1)), layers.conv2d(fine, 8, 1)
    rois, _ = layers.generate_proposals(score, delta, info, anchor, spread, 40, 20, nms_thresh=0.6, min_size=1.0)
    moved = layers.temporal_shift(layers.roi_align(fine, rois, 2, 2, 0.25, 2), seg_num=1)
    return [layers.mean(layers.fc(moved, 8)), layers.mean(fine)]


def test_exact_regions_leave_room_to_images(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is behind the host's proposals is compiled for each number of these."""
    compare(monkeypatch, shifted, photographs(rng, [(32, 40), (40, 48), (40, 40), (24, 40)]), 6)


def photographs(rng: np.random.Generator, sizes: Sequence[tuple[int, int]]) -> list[Feed]:
    return [
        {
            "image": rng.normal(size=(2, 3, height, width)).astype(np.float32),
            "info": np.array([[height, width, 1.0]] * 2, np.float32),
        }
        for height, width in sizes
    ]


def test_detections_in_images_of_any_size(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers of proposals change, too."""
    compare(monkeypatch, detected, photographs(rng, [(32, 40), (40, 48), (40, 40), (24, 40)]), 6)
