"""Training targets of detectors, against values worked out by hand and the properties that define them."""

import jax
import numpy as np
import pytest

import lowering
from lowering.ops.detection.pixel_boxes import decode, encode, pairwise
from lowering.ops.detection.polygon import polygon_mask
from lowering.values import LoDArray


def ragged(rows, *levels):
    return LoDArray(np.asarray(rows), tuple(np.asarray(level, np.int32) for level in levels))


def boxes(rng, count, extent=60.0):
    low = rng.uniform(0, extent, (count, 2))
    return np.concatenate([low, low + rng.uniform(2, 30, (count, 2))], axis=1).astype(np.float32)


def test_deltas_round_trip(rng):
    some, targets = boxes(rng, 20), boxes(rng, 20)
    np.testing.assert_allclose(decode(some, encode(some, targets), bounded=False), targets, rtol=1e-4, atol=1e-4)


def test_overlap_counts_pixels():
    one, two = np.array([[0.0, 0.0, 3.0, 3.0]]), np.array([[2.0, 2.0, 5.0, 5.0], [4.0, 0.0, 5.0, 1.0]])
    np.testing.assert_allclose(pairwise(one, two), [[4 / 28, 0]])


# --- region proposal networks -------------------------------------------------------------------------------------

ANCHORS = np.array([[0, 0, 9, 9], [0, 0, 9, 4], [20, 20, 29, 29], [90, 90, 109, 109], [40, 40, 49, 49]], np.float32)
TRUTH = ragged(np.array([[0, 0, 9, 9], [21, 20, 30, 29], [70, 70, 79, 79]], np.float32), [0, 3])
CROWD = ragged(np.array([0, 0, 1], np.int32), [0, 3])
INFO = np.array([[100, 100, 1]], np.float32)


def rpn(**attrs):
    options = {
        "rpn_batch_size_per_im": 8,
        "rpn_straddle_thresh": 0.0,
        "rpn_positive_overlap": 0.7,
        "rpn_negative_overlap": 0.3,
        "rpn_fg_fraction": 0.5,
        "use_random": False,
    }
    found = lowering.get_op("rpn_target_assign")(ANCHORS, TRUTH, CROWD, INFO, **{**options, **attrs}, key=None)
    return [v.data for v in found]


def test_rpn_targets():
    location, score, target, label, weight = rpn()
    np.testing.assert_array_equal(location, [0, 2])  # anchor 3 sticks out, and 1 is neither near nor far
    np.testing.assert_array_equal(score, [0, 2, 4])
    np.testing.assert_array_equal(label.reshape(-1), [1, 1, 0])
    np.testing.assert_allclose(target, [[0, 0, 0, 0], [0.1, 0, 0, 0]], atol=1e-6)
    np.testing.assert_array_equal(weight, np.ones((2, 4)))


def test_rpn_takes_anchors_that_stick_out_when_told():
    assert 3 in rpn(rpn_straddle_thresh=-1.0)[1]


def test_rpn_quota():
    location, score, *_ = rpn(rpn_batch_size_per_im=2)
    np.testing.assert_array_equal(location, [0])
    np.testing.assert_array_equal(score, [0, 4])


def test_rpn_draws_by_key():
    anchors = np.concatenate([ANCHORS[[0, 2]], np.tile(ANCHORS[4:], (50, 1))])
    attrs = {"rpn_batch_size_per_im": 8, "rpn_straddle_thresh": 0.0, "rpn_fg_fraction": 0.5}
    op = lowering.get_op("rpn_target_assign")
    drawn = [op(anchors, TRUTH, CROWD, INFO, **attrs, key=jax.random.key(k))[1].data for k in (1, 1, 2)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert len(set(drawn[0])) == 8
    assert not np.array_equal(drawn[0], drawn[2])


def test_retinanet_targets_are_classes():
    labels = ragged(np.array([[5], [7], [2]], np.int32), [0, 3])
    op = lowering.get_op("retinanet_target_assign")
    location, score, _, label, _, count = op(ANCHORS, TRUTH, labels, CROWD, INFO)
    np.testing.assert_array_equal(location.data, [0, 1, 2])
    np.testing.assert_array_equal(score.data, [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(label.data.reshape(-1), [5, 5, 7, 0, 0])
    np.testing.assert_array_equal(count.data, [[4]])


# --- proposals ----------------------------------------------------------------------------------------------------


def propose(rng, **attrs):
    anchors = boxes(rng, 24).reshape(2, 4, 3, 4)
    scores = rng.permutation(48).reshape(2, 3, 2, 4).astype(np.float32)
    deltas = rng.normal(0, 0.2, (2, 12, 2, 4)).astype(np.float32)
    info = np.array([[70, 80, 1], [50, 90, 2]], np.float32)
    options = {"pre_nms_topN": 20, "post_nms_topN": 6, "nms_thresh": 0.5, "min_size": 4.0, "eta": 1.0}
    op = lowering.get_op("generate_proposals")
    return info, op(scores, deltas, info, anchors, np.ones_like(anchors), **{**options, **attrs})


def test_proposals_are_what_they_promise(rng):
    info, (rois, probs, ends, *_) = propose(rng)
    offsets = rois.lod[0]
    np.testing.assert_array_equal(ends, offsets[1:])
    for i, (start, end) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        own = rois.data[start:end]
        assert 0 < len(own) <= 6
        assert (np.diff(probs.data[start:end, 0]) <= 0).all()
        assert (own >= 0).all() and (own[:, [2, 3]] <= info[i, [1, 0]] - 1).all()
        assert ((own[:, 2:] - own[:, :2]) / info[i, 2] + 1 >= 4).all()
        overlap = pairwise(own, own)
        assert (overlap[~np.eye(len(own), dtype=bool)] <= 0.5).all()


def test_no_proposal_is_large_enough(rng):
    _, (rois, probs, ends, *_) = propose(rng, min_size=500.0)
    assert rois.data.shape == (0, 4) and probs.data.shape == (0, 1)
    np.testing.assert_array_equal(ends, [0, 0])


# --- second stage -------------------------------------------------------------------------------------------------


def label_regions(**attrs):
    rois = ragged(np.array([[0, 0, 18, 18], [42, 40, 60, 58], [100, 100, 120, 120]], np.float32), [0, 3])
    classes = ragged(np.array([[3], [1], [2]], np.int32), [0, 3])
    options = {
        "batch_size_per_im": 16, "fg_fraction": 0.5, "fg_thresh": 0.5, "bg_thresh_hi": 0.5, "bg_thresh_lo": 0.0,
        "bbox_reg_weights": [0.1, 0.1, 0.2, 0.2], "class_nums": 4, "use_random": False,
    }  # fmt: skip
    info = np.array([[200, 200, 2]], np.float32)
    found = lowering.get_op("generate_proposal_labels")(
        rois, classes, CROWD, TRUTH, info, **{**options, **attrs}, key=None
    )
    return [v.data for v in found]


def test_regions_get_class_and_targets():
    rois, labels, targets, inside, outside = label_regions()
    np.testing.assert_array_equal(labels.reshape(-1), [3, 1, 3, 1, 0])  # two truths, two near regions, one far
    np.testing.assert_allclose(rois[2], [0, 0, 18, 18])
    np.testing.assert_array_equal(inside, outside)
    np.testing.assert_array_equal(inside.sum(axis=1), [4, 4, 4, 4, 0])
    assert inside[2, 12:].all() and inside[3, 4:8].all()
    assert not targets[inside == 0].any()
    np.testing.assert_allclose(targets[3, 4:8], [0, 0, 0, 0], atol=1e-5)


def test_regions_without_regard_to_class():
    inside = label_regions(is_cls_agnostic=True, class_nums=2)[3]
    np.testing.assert_array_equal(inside.sum(axis=1), [4, 4, 4, 4, 0])
    assert not inside[:, :4].any()


def test_region_quota():
    _, labels, *_ = label_regions(batch_size_per_im=2)
    np.testing.assert_array_equal(labels.reshape(-1), [3, 0])


def test_where_no_region_is_sampled_the_columns_are_those_of_the_classes():
    found = label_regions(is_cascade_rcnn=True, fg_thresh=2.0, bg_thresh_hi=0.0)
    assert [v.shape for v in found] == [(0, 4), (0, 1), (0, 16), (0, 16), (0, 16)]


@pytest.mark.parametrize("turned", [False, True])
def test_polygon_mask_of_a_rectangle(turned):
    corners = np.array([[2, 1], [7, 1], [7, 4], [2, 4]], np.float64)
    expected = np.zeros((8, 9), bool)
    expected[1:4, 2:7] = True
    np.testing.assert_array_equal(polygon_mask(corners[::-1] if turned else corners, 8, 9), expected)


def test_mask_labels():
    square = [[0, 0], [8, 0], [8, 4], [0, 4]]
    segments = ragged(np.array(square, np.float32), [0, 1], [0, 1], [0, 4])
    one = ragged(np.array([[1]], np.int32), [0, 1])
    rois = ragged(np.array([[20, 20, 30, 30], [0, 0, 16, 16]], np.float32), [0, 2])
    labels = ragged(np.array([[0], [2]], np.int32), [0, 2])
    op = lowering.get_op("generate_mask_labels")
    options = {"num_classes": 3, "resolution": 4}
    info = np.array([[64, 64, 2]], np.float32)
    boxes, rows, masks = op(info, one, ragged([[0]], [0, 1]), segments, rois, labels, **options)
    np.testing.assert_array_equal(boxes.data, rois.data[1:])
    np.testing.assert_array_equal(rows.data, [[1]])
    by_class = masks.data.reshape(3, 4, 4)
    assert (by_class[:2] == -1).all()
    np.testing.assert_array_equal(by_class[2], [[1] * 4] * 2 + [[0] * 4] * 2)


def test_mask_labels_without_foreground():
    segments = ragged(np.zeros((3, 2), np.float32), [0, 1], [0, 1], [0, 3])
    one = ragged(np.array([[1]], np.int32), [0, 1])
    rois = ragged(np.array([[20, 20, 30, 30]], np.float32), [0, 1])
    op = lowering.get_op("generate_mask_labels")
    info = np.array([[64, 64, 1]], np.float32)
    labels = ragged(np.array([[0]], np.int32), [0, 1])
    _, rows, masks = op(info, one, one, segments, rois, labels, num_classes=2, resolution=2)
    np.testing.assert_array_equal(rows.data, [[0]])
    np.testing.assert_array_equal(masks.data, np.full((1, 8), -1))


# --- RetinaNet ----------------------------------------------------------------------------------------------------


def test_retinanet_detections():
    anchors = [ANCHORS[:2], ANCHORS[2:3]]
    deltas = [np.zeros((1, 2, 4), np.float32), np.zeros((1, 1, 4), np.float32)]
    scores = [np.array([[[0.9, 0.1], [0.8, 0.2]]], np.float32), np.array([[[0.05, 0.7]]], np.float32)]
    options = {"score_threshold": 0.15, "nms_top_k": 10, "nms_threshold": 0.4, "nms_eta": 1.0, "keep_top_k": 10}
    op = lowering.get_op("retinanet_detection_output")
    found = op(deltas, scores, anchors, np.array([[100, 100, 1]], np.float32), **options).data
    # Class 1: the second anchor half covers the first; the last level needs no score_threshold.
    np.testing.assert_allclose(found[:, :2], [[1, 0.9], [2, 0.7], [2, 0.2], [1, 0.05]])
    np.testing.assert_allclose(found[0, 2:], ANCHORS[0])
