"""Boxes of images, as many as there are, against priors: padded, and as exact rows give them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import fluidjax as fluid

from .conftest import ragged, train

layers = fluid.layers
PRIORS, IMAGES = 6, 2


def boxes(rng: np.random.Generator, count: int) -> np.ndarray:
    corners = np.sort(rng.uniform(0, 1, (count, 2, 2)), axis=1)
    corners[:, 1] += 0.1
    return corners.reshape(count, 4).astype(np.float32)


def matched() -> Sequence[Any]:
    """The location loss of SSD, and the targets turned back into boxes."""
    truth = fluid.data("truth", [None, 4], "float32", lod_level=1)
    image = fluid.data("image", [IMAGES, 5], "float32")
    prior = layers.assign(boxes(np.random.default_rng(3), PRIORS))
    spread = layers.assign(np.full((PRIORS, 4), 0.2, np.float32))
    encoded = layers.box_coder(prior, spread, truth, "encode_center_size")
    rows, _ = layers.bipartite_match(layers.iou_similarity(truth, prior))
    target, weight = layers.target_assign(encoded, rows, mismatch_value=0)
    found = layers.reshape(layers.fc(image, PRIORS * 4), [-1, PRIORS, 4])
    loss = layers.reduce_sum(layers.square(found - target) * weight)
    return [loss, encoded, layers.box_coder(prior, spread, encoded, "decode_center_size")]


def feeds(rng: np.random.Generator, counts: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    return [
        {"truth": ragged(boxes(rng, sum(c)), c), "image": rng.normal(size=(IMAGES, 5)).astype(np.float32)}
        for c in counts
    ]


def test_boxes_are_coded_row_by_row(rng, train_exact) -> None:
    """Totals below, at and above a capacity."""
    steps = feeds(rng, [[4, 3], [5, 3], [3, 6]])
    trained = train(matched, steps)
    trained.assert_close(train_exact(matched, steps))
    for step, (_, _, decoded) in zip(steps, trained.fetches, strict=True):
        want = np.broadcast_to(np.asarray(step["truth"])[:, None], decoded.shape)
        np.testing.assert_allclose(decoded, want, rtol=1e-4, atol=1e-5)


def test_a_stream_of_boxes_compiles_for_rooms(rng) -> None:
    trained = train(matched, feeds(rng, [[total - 2, 2] for total in rng.permutation(np.arange(4, 20))]))
    assert trained.compilations <= 8


def test_boxes_decoded_against_proposals_keep_their_images(rng) -> None:
    """As Faster R-CNN evaluates: the proposals know their images, the offsets that a head computed do not."""
    counts, classes = [3, 2], 2
    rois = fluid.data("rois", [None, 4], "float32", lod_level=1)
    offsets = fluid.data("offsets", [None, classes, 4], "float32")
    sizes = fluid.data("sizes", [None, 3], "float32")
    found = layers.box_coder(rois, [1.0] * 4, offsets, "decode_center_size", box_normalized=False, axis=1)
    assert found.lod_level == 1
    clipped = layers.box_clip(found, sizes)
    proposals = 10 * boxes(rng, sum(counts))
    feed = {
        "rois": ragged(proposals, counts),
        "offsets": np.zeros((sum(counts), classes, 4), np.float32),
        "sizes": np.array([[100, 100, 1], [4, 4, 1]], np.float32),
    }
    decoded, inside = fluid.Executor().run(feed=feed, fetch_list=[found, clipped], return_numpy=False)
    assert decoded.lod() == inside.lod() == [[0, 3, 5]]
    want = np.repeat(proposals[:, None], classes, axis=1)
    np.testing.assert_allclose(decoded, want, rtol=1e-5)
    np.testing.assert_allclose(inside, np.concatenate([want[:3], np.minimum(want[3:], 3)]), rtol=1e-5)
