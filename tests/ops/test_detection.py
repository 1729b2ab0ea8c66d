"""Boxes, priors, matching, suppression, pyramids and regions against NumPy, on cases small enough to check by eye."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fluidjax as fluid
import lowering
from lowering.ops.detection import nms
from lowering.values import LoDArray

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def ragged(rows, *levels):
    return LoDArray(np.asarray(rows), tuple(np.asarray(level, np.int32) for level in levels))


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):
        yield


def run(type, *args, **attrs):
    return lowering.get_op(type)(*args, **attrs)


def overlap(a, b):
    sides = [max(0.0, min(a[i + 2], b[i + 2]) - max(a[i], b[i])) for i in (0, 1)]
    common = sides[0] * sides[1]
    return common / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common)


def boxes(rng, count):
    low = rng.uniform(0, 1, (count, 2))
    return np.concatenate([low, low + rng.uniform(0.1, 1, (count, 2))], axis=1)


# --- boxes and priors ---------------------------------------------------------------------------------------------


def test_iou_similarity(rng):
    x, y = boxes(rng, 4), boxes(rng, 5)
    found = run("iou_similarity", jnp.asarray(x), jnp.asarray(y))
    np.testing.assert_allclose(found, [[overlap(a, b) for b in y] for a in x], rtol=1e-6)


def test_box_coder_round_trip(rng):
    prior, target = boxes(rng, 6), boxes(rng, 6)
    variance = np.full((6, 4), 0.1)
    priors = LoDArray(jnp.asarray(prior))
    deltas = run("box_coder", priors, jnp.asarray(target), jnp.asarray(variance))
    assert deltas.shape == (6, 6, 4)
    back = run("box_coder", priors, jnp.asarray(deltas), jnp.asarray(variance), code_type="decode_center_size")
    np.testing.assert_allclose(back, np.broadcast_to(target[:, None], (6, 6, 4)), rtol=1e-5)


def test_prior_box_centres():
    feature, image = jnp.zeros((1, 2, 2, 3), jnp.float32), jnp.zeros((1, 3, 40, 60), jnp.float32)
    attrs = {"min_sizes": [10.0], "aspect_ratios": [1.0], "variances": [0.1, 0.1, 0.2, 0.2], "clip": False}
    found, variances = run("prior_box", feature, image, **attrs)
    assert found.shape == variances.shape == (2, 3, 1, 4)
    np.testing.assert_allclose(found[1, 2, 0], [45 / 60, 25 / 40, 55 / 60, 35 / 40], rtol=1e-6)
    np.testing.assert_allclose(variances[0, 0, 0], [0.1, 0.1, 0.2, 0.2])


@pytest.mark.parametrize("op", ["prior_box", "density_prior_box"])
def test_one_step_alone_does_not_count(op):
    """Where step_w or step_h is missing, both follow from the sizes of image and feature map."""
    feature, image = jnp.zeros((1, 2, 2, 3), jnp.float32), jnp.zeros((1, 3, 40, 60), jnp.float32)
    attrs = (
        {"min_sizes": [10.0], "aspect_ratios": [1.0]}
        if op == "prior_box"
        else {"fixed_sizes": [4.0], "fixed_ratios": [1.0]}
    )
    attrs |= {"densities": [2]} if op == "density_prior_box" else {}
    attrs["variances"] = [0.1, 0.1, 0.2, 0.2]
    free = run(op, feature, image, **attrs)[0]
    np.testing.assert_array_equal(run(op, feature, image, step_w=7.0, **attrs)[0], free)
    np.testing.assert_array_equal(run(op, feature, image, step_h=7.0, **attrs)[0], free)
    assert not np.array_equal(run(op, feature, image, step_w=7.0, step_h=7.0, **attrs)[0], free)


def test_boxes_are_clipped_to_their_own_image():
    rows = [[-2.0, -1.0, 50.0, 50.0], [1.0, 2.0, 3.0, 4.0], [-2.0, -1.0, 50.0, 50.0]]
    info = jnp.asarray([[30.0, 25.0, 1.5], [20.0, 21.0, 1.0]])
    found = run("box_clip", ragged(np.array(rows), [0, 1, 3]), info)
    want = [[0.0, 0.0, 16.0, 19.0], [1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 20.0, 19.0]]
    np.testing.assert_array_equal(found.data, want)


# --- matching -----------------------------------------------------------------------------------------------------

DIST = np.array([[0.9, 0.2, 0.0, 0.6], [0.8, 0.7, 0.1, 0.0]], np.float32)


def test_bipartite_match_is_greedy():
    rows, found = run("bipartite_match", DIST)
    np.testing.assert_array_equal(rows, [[0, 1, -1, -1]])
    np.testing.assert_allclose(found, [[0.9, 0.7, 0, 0]])


def test_an_image_without_boxes_matches_nothing():
    rows, found = run("bipartite_match", ragged(DIST, [0, 1, 1, 2]))
    np.testing.assert_array_equal(rows, [[0, -1, -1, -1], [-1] * 4, [0, -1, -1, -1]])
    np.testing.assert_allclose(found, [[0.9, 0, 0, 0], [0] * 4, [0.8, 0, 0, 0]])


def test_per_prediction_fills_the_rest():
    rows, _ = run("bipartite_match", DIST, match_type="per_prediction", dist_threshold=0.5)
    np.testing.assert_array_equal(rows, [[0, 1, -1, 0]])


def test_target_assign():
    x = ragged(np.arange(6, dtype=np.float32).reshape(3, 1, 2), [0, 1, 3])
    out, weight = run("target_assign", x, np.array([[0, -1], [1, 0]], np.int32), mismatch_value=9)
    np.testing.assert_array_equal(out, [[[0, 1], [9, 9]], [[4, 5], [2, 3]]])
    np.testing.assert_array_equal(weight[..., 0], [[1, 0], [1, 1]])


def test_hard_negatives():
    loss = np.array([[0.1, 0.9, 0.5, 0.7]], np.float32)
    match, dist = np.array([[0, -1, -1, -1]], np.int32), np.array([[0.9, 0.1, 0.2, 0.6]], np.float32)
    negatives, _ = run("mine_hard_examples", loss, match, dist, neg_pos_ratio=1.0, neg_dist_threshold=0.5)
    np.testing.assert_array_equal(negatives.data, [[1]])


# --- suppression --------------------------------------------------------------------------------------------------


def test_suppress_keeps_what_overlaps_no_better_one(rng):
    some, scores = boxes(rng, 30), rng.permutation(30).astype(float)
    kept = nms.suppress(some, scores, 0.3)
    assert scores[kept].tolist() == sorted(scores[kept], reverse=True)
    for i in range(30):
        better = [k for k in kept if scores[k] > scores[i]]
        assert (i in kept) == all(overlap(some[i], some[k]) <= 0.3 for k in better)


def test_polygons_overlap_as_boxes_do(rng):
    a, b = boxes(rng, 2)
    corners = [np.array([[x[0], x[1]], [x[2], x[1]], [x[2], x[3]], [x[0], x[3]]]) for x in (a, b)]
    assert nms.polygon_overlap(*corners) == pytest.approx(overlap(a, b))
    assert nms.polygon_overlap(corners[0][::-1], corners[1]) == pytest.approx(overlap(a, b))


NMS = {"score_threshold": 0.1, "nms_top_k": 10, "keep_top_k": 3, "nms_threshold": 0.5}
PAIR = np.array([[[0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3]]], np.float32)


def test_multiclass_nms():
    scores = np.array([[[0.9, 0.9, 0.9], [0.6, 0.8, 0.3], [0.05, 0.2, 0.7]]], np.float32)
    found = run("multiclass_nms", PAIR, scores, **NMS)
    np.testing.assert_allclose(found.data[:, :2], [[1, 0.8], [1, 0.3], [2, 0.7]])  # class 0 is the background
    np.testing.assert_allclose(found.data[0, 2:], PAIR[0, 1])
    np.testing.assert_array_equal(found.lod[0], [0, 3])


@pytest.mark.parametrize("keep_top_k", [-1, 10, 4])
def test_boxes_of_a_class_are_in_their_order_where_scores_have_a_lod(keep_top_k):
    """As Paddle 1.8.5 gives them, whether or not there are more than are kept."""
    corners = np.array([[0, 0, 2, 2], [3, 3, 5, 5], [6, 6, 8, 8], [0, 0, 2, 2.1]], np.float32)
    bboxes = ragged(np.repeat(corners[:, None], 2, axis=1), [0, 4])
    scores = ragged(np.array([[0.1, 0.3], [0.2, 0.9], [0.1, 0.5], [0.1, 0.4]], np.float32), [0, 4])
    attrs = {**NMS, "score_threshold": 0.05, "keep_top_k": keep_top_k, "background_label": -1}
    expected = [(0, 0.1), (0, 0.2), (0, 0.1), (1, 0.9), (1, 0.5), (1, 0.4)]
    if keep_top_k == 4:
        expected = [(0, 0.2), (1, 0.9), (1, 0.5), (1, 0.4)]
    np.testing.assert_allclose(run("multiclass_nms", bboxes, scores, **attrs).data[:, :2], expected)


def test_nothing_detected():
    none = np.zeros((1, 2, 3), np.float32)
    np.testing.assert_array_equal(run("multiclass_nms", PAIR, none, **NMS).data, [[-1]])
    out, index = run("multiclass_nms2", PAIR, none, **NMS)
    assert out.data.shape == (0, 6) and index.data.shape == (0, 1)


# --- pyramids -----------------------------------------------------------------------------------------------------


def test_pyramid_levels_there_and_back():
    sizes = np.array([10, 500, 120, 230], np.float32)
    rois = ragged(np.stack([0 * sizes, 0 * sizes, sizes, sizes], axis=1), [0, 3, 4])
    attrs = {"min_level": 2, "max_level": 5, "refer_level": 4, "refer_scale": 224}
    parts, restore, *_ = run("distribute_fpn_proposals", rois, **attrs)
    assert [len(p.data) for p in parts] == [1, 1, 1, 1]
    np.testing.assert_array_equal(np.concatenate([p.data for p in parts])[restore.data[:, 0]], rois.data)
    scores = [ragged(p.data[:, 2:3], p.lod[0]) for p in parts]
    best, _ = run("collect_fpn_proposals", parts, scores, post_nms_topN=2)
    np.testing.assert_array_equal(best.data[:, 2], [500, 230])
    np.testing.assert_array_equal(best.lod[0], [0, 1, 2])


# --- regions ------------------------------------------------------------------------------------------------------


def test_regions_of_a_plane_are_its_values():
    """Bilinear sampling of a linear map is exact, whatever the way to take the mean."""
    plane = jnp.asarray(np.add.outer(2.0 * np.arange(8), np.arange(8.0))[None, None])
    rois = ragged(np.array([[1.0, 2.0, 5.0, 6.0]]), [0, 1])
    bins = {"pooled_height": 2, "pooled_width": 2}
    centre = np.add.outer(2.0 * np.array([3, 5]), np.array([2.0, 4]))
    sampled = run("roi_align", LoDArray(plane), rois, **bins, sampling_ratio=2)
    for found in (sampled, run("prroi_pool", plane, rois, **bins)):
        np.testing.assert_allclose(np.asarray(found.data)[0, 0], centre)


def test_roi_pool_is_the_largest(rng):
    x = rng.standard_normal((2, 1, 6, 6))
    rois = ragged(np.array([[0.0, 0, 5, 5], [1, 2, 4, 5]]), [0, 1, 2])
    found, where = run("roi_pool", LoDArray(jnp.asarray(x)), rois, pooled_height=1, pooled_width=1)
    np.testing.assert_allclose(np.asarray(found.data).reshape(-1), [x[0].max(), x[1, 0, 2:6, 1:5].max()])
    assert int(where.data[0, 0, 0, 0]) == x[0, 0].argmax()


def test_perspective_of_an_upright_square_copies_it(rng):
    x = rng.standard_normal((1, 2, 6, 6))
    square = ragged(np.array([[1.0, 1, 4, 1, 4, 4, 1, 4]]), [0, 1])
    out, mask, matrix, *_ = run(
        "roi_perspective_transform", jnp.asarray(x), square, transformed_height=4, transformed_width=4
    )
    np.testing.assert_allclose(np.asarray(out.data)[0], x[0, :, 1:5, 1:5], atol=1e-4)
    np.testing.assert_array_equal(mask.data, np.ones((1, 1, 4, 4)))
    np.testing.assert_allclose(matrix.data, [[1, 0, 1, 0, 1, 1, 0, 0, 1]], atol=1e-4)


def test_yolo_box(rng):
    x = rng.standard_normal((1, 7, 2, 2))
    size = jnp.asarray(np.array([[64, 64]], np.int32))
    found, scores = run(
        "yolo_box", LoDArray(jnp.asarray(x)), size, class_num=2, anchors=[16, 32], conf_thresh=0.0, clip_bbox=False
    )
    s = 1 / (1 + np.exp(-x[0]))
    centre = (s[0, 1, 0] + 0) / 2 * 64, (s[1, 1, 0] + 1) / 2 * 64
    half = np.exp(x[0, 2, 1, 0]) * 16 / 64 * 64 / 2, np.exp(x[0, 3, 1, 0]) * 32 / 64 * 64 / 2
    wanted = [centre[0] - half[0], centre[1] - half[1], centre[0] + half[0], centre[1] + half[1]]
    np.testing.assert_allclose(np.asarray(found)[0, 2], wanted, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(scores)[0, 2], s[4, 1, 0] * s[5:, 1, 0], rtol=1e-5)


# --- one buffer for many tensors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("filled", [False, True])  # copy_data goes before set_constant
def test_coalesce(rng, filled):
    a, b = rng.standard_normal((3, 4)), rng.standard_normal(600)
    outs, fused = run("coalesce_tensor", [jnp.asarray(a), jnp.asarray(b)], dtype=6, copy_data=True, set_constant=filled)
    assert fused.shape == (512 + 1024,)  # pages of 4096 bytes
    np.testing.assert_array_equal(fused[:12], a.reshape(-1))
    np.testing.assert_array_equal(fused[512 : 512 + 600], b)
    np.testing.assert_array_equal(outs[0], a)


def test_coalesce_of_two_dtypes_is_refused():
    with pytest.raises(lowering.OpError, match=r"Input\[1\] has dtype int32, expected float32"):
        run("coalesce_tensor", [jnp.zeros(2, jnp.float32), jnp.zeros(2, jnp.int32)], dtype=5)


@pytest.mark.parametrize(
    ("boxes", "kept"),
    [
        ([[0.2, 0.2, 0.2, 0.2], [0.2, 0.2, 0.2, 0.2], [0.1, 0.1, 0.5, 0.5]], [0.9, 0.7]),
        ([[np.nan, 0.1, 0.5, 0.5], [0.1, 0.1, 0.5, 0.5], [0.2, 0.2, 0.7, np.nan]], [0.9]),
        ([[-np.inf, -np.inf, np.inf, np.inf], [-np.inf, 0.1, np.inf, 0.2], [0.1, 0.1, 0.5, 0.5]], [0.9, 0.7]),
    ],
)
def test_boxes_whose_overlap_is_not_a_number_are_suppressed(boxes, kept) -> None:
    """As Paddle 1.8.5 keeps: a box that cannot be compared with a better one is dropped."""
    found = nms.suppress(np.asarray(boxes, np.float32), np.asarray([0.9, 0.8, 0.7]), 0.3)
    assert [[0.9, 0.8, 0.7][i] for i in found] == kept


def test_priors_and_overlaps_are_rounded_as_fluid_rounds_them():
    """Priors that lie alike around a box overlap it alike or not by a last bit, which decides what training matches."""
    cells, step, image = 19, 16.0, 300
    main = fluid.Program()
    with fluid.program_guard(main):
        given = fluid.data("x", [1, 2, cells, cells]), fluid.data("image", [1, 3, image, image])
        priors, _ = fluid.layers.prior_box(
            *given, [60.0], [111.0], [2.0, 3.0], flip=True, steps=[step, step], min_max_aspect_ratios_order=True
        )
        overlaps = fluid.layers.iou_similarity(
            fluid.data("truth", [3, 4]), fluid.layers.reshape(priors, [-1, 4]), box_normalized=True
        )
    truth = np.array([[5, 6, 20, 30], [10, 10, 40, 50], [30, 20, 33, 25]], np.float32) / np.float32(64)
    feed = {"x": np.zeros((1, 2, cells, cells), "f4"), "image": np.zeros((1, 3, image, image), "f4"), "truth": truth}
    found, alike = fluid.Executor(fluid.CPUPlace()).run(main, feed=feed, fetch_list=[priors, overlaps])

    roots = [np.sqrt(float(np.float32(r))) for r in (2.0, 1 / 2.0, 3.0, np.float32(1) / np.float32(3))]
    sides = [(30.0, 30.0), (np.sqrt(60.0 * 111.0) / 2,) * 2, *((60.0 * r / 2, 60.0 / r / 2) for r in roots)]
    half = np.array(sides, np.float32)
    center = (np.arange(cells, dtype=np.float32) + np.float32(0.5)) * np.float32(step)
    x, y = center[None, :, None], center[:, None, None]
    corners = x - half[:, 0], y - half[:, 1], x + half[:, 0], y + half[:, 1]
    expected = np.stack(np.broadcast_arrays(*(c / np.float32(image) for c in corners)), -1)
    np.testing.assert_array_equal(found.view("i4"), expected.view("i4"))

    one, two = truth[:, None], expected.reshape(1, -1, 4)
    areas = [(b[..., 2] - b[..., 0]) * (b[..., 3] - b[..., 1]) for b in (one, two)]
    shared = np.maximum(np.minimum(one[..., 2:], two[..., 2:]) - np.maximum(one[..., :2], two[..., :2]), 0)
    common = shared[..., 0] * shared[..., 1]
    np.testing.assert_array_equal(alike.view("i4"), (common / (areas[0] + areas[1] - common)).view("i4"))


def test_steps_of_dense_priors_are_added_in_float32():
    """16.3 and 15.7 are 32 in float32, and less than that in float64; the places are Paddle 1.8.5's."""
    main = fluid.Program()
    with fluid.program_guard(main):
        given = fluid.data("x", [1, 2, 3, 4]), fluid.data("image", [1, 3, 64, 300])
        boxes, _ = fluid.layers.density_prior_box(*given, [4], [21.3], [1.0], steps=[16.3, 15.7])
    feed = {"x": np.zeros((1, 2, 3, 4), "f4"), "image": np.zeros((1, 3, 64, 300), "f4")}
    (found,) = fluid.Executor(fluid.CPUPlace()).run(main, feed=feed, fetch_list=[boxes])
    places = (found[1, 2, :4, 0] + found[1, 2, :4, 2]) / 2 * 300
    np.testing.assert_allclose(places, [34.75, 38.75, 42.75, 46.75], rtol=1e-6)


@pytest.mark.parametrize("size", [(0, 0), (0, 3), (2, 0)])
@pytest.mark.parametrize("steps", [[0.0, 0.0], [2.0, 2.0]])
def test_a_map_without_cells_has_no_boxes(size, steps):
    with fluid.program_guard(main := fluid.Program()):
        x, image = fluid.data("x", [1, 2, None, None]), fluid.data("image", [1, 3, 8, 8])
        boxes, _ = fluid.layers.prior_box(x, image, [2.0], [4.0], [2.0], steps=steps)
        dense, _ = fluid.layers.density_prior_box(x, image, [2], [2.0], [1.0], steps=steps)
        flat, _ = fluid.layers.density_prior_box(x, image, [2], [2.0], [1.0], steps=steps, flatten_to_2d=True)
        anchors, _ = fluid.layers.anchor_generator(x, [2.0], [1.0, 2.0], stride=[4.0, 4.0])
    feed = {"x": np.zeros((1, 2, *size), "f4"), "image": np.zeros((1, 3, 8, 8), "f4")}
    found = fluid.Executor(fluid.CPUPlace()).run(main, feed=feed, fetch_list=[boxes, dense, flat, anchors])
    assert [v.shape for v in found] == [(*size, 3, 4), (*size, 4, 4), (0, 4), (*size, 2, 4)]
