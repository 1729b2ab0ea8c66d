"""Corners of single ops as Paddle 1.8.5 has them, found by drawing attributes, shapes, dtypes and LoD."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import numpy as np
import pytest

import fluidjax as fluid
from lowering import get_op
from lowering.errors import OpError
from lowering.program import PADDLE_2
from lowering.values import LoDArray, SelectedRows

pytestmark = pytest.mark.usefixtures("compiled_quickly")

F = np.float32
BOXES = LoDArray(np.array([[2.5, 0.5, 4.5, 2.5]], F), (np.array([0, 1]),))


def rule(type, *args, **attrs):
    """The results of an op's rule, with int64 and float64 as they are."""
    with jax.enable_x64(True):
        return get_op(type).fn(*args, **attrs)


def call(type, *args, **attrs):
    """The results of an op's rule as arrays."""
    found = rule(type, *args, **attrs)
    return [np.asarray(v) for v in (found if isinstance(found, tuple) else (found,)) if v is not None]


# --- optimizers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nrows", [None, np.int32(0)])
def test_lamb_with_a_gradient_without_rows_changes_nothing(nrows):
    old = np.arange(6, dtype=F).reshape(3, 2) + 1
    room = 0 if nrows is None else 2
    grad = SelectedRows(np.zeros(room, np.int64), np.zeros((room, 2), F), 3, nrows)
    for new in call("lamb", old, grad, np.ones(1, F), old, old, np.ones(1, F), np.ones(1, F), weight_decay=0.1):
        np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize(
    ("decay", "param", "grad", "velocity"),
    [(0.0, 1, 1, 0.47), (-0.1, 1, 1, 0.47), (-0.1, 1, 0, 0.44), (0.0, 1, 0, 0.45), (0.0, 0, 1, 0.55)],
)
def test_layers_have_rates_of_their_own_without_weight_decay_too(decay, param, grad, velocity):
    def two(n):
        return np.full(2, n, F)

    attrs = {"mu": 0.9, "lars_coeff": 0.2, "lars_weight_decay": decay}
    new, moved = call("lars_momentum", two(param), two(grad), two(0.5), np.full(1, 0.1, F), **attrs)
    np.testing.assert_allclose(moved, two(velocity), rtol=1e-6)
    np.testing.assert_allclose(new, two(param) - moved, rtol=1e-6)


# --- activations, losses, tensors ---------------------------------------------------------------------------------


def test_the_gradient_of_mish_is_that_of_its_softplus():
    """Above the threshold softplus(x) is x, below minus the threshold exp(x), however small the threshold is."""
    x = np.array([2.0, -2.0, 0.3])
    softplus = np.array([2.0, np.exp(-2.0), np.log1p(np.exp(0.3))])
    t = np.tanh(softplus)
    (found,) = call("mish_grad", x, np.ones(3), threshold=0.5)
    np.testing.assert_allclose(found, t + x * (1 - t * t) * (1 - np.exp(-softplus)), rtol=1e-6)


@pytest.mark.parametrize("threshold", [0.0, -20.0])
def test_mish_has_a_threshold_only_if_it_is_positive(threshold):
    x = np.array([2.0, -2.0, 0.3, 800.0])
    with np.errstate(over="ignore"):
        softplus = np.array([*np.log1p(np.exp(x[:3])), 800])
    t = np.tanh(softplus)
    (out,) = call("mish", x, threshold=threshold)
    np.testing.assert_allclose(out, x * t, rtol=1e-6)
    (found,) = call("mish_grad", x, np.ones(4), threshold=threshold)
    np.testing.assert_allclose(found, t + x * (1 - t * t) * (1 - np.exp(-softplus)), rtol=1e-6)


def test_the_shape_of_a_grid_is_the_attribute_before_the_tensor():
    theta, sides = np.ones((2, 2, 3), F), np.array([2, 3, 4, 5], np.int32)
    for attribute, wanted in (([2, 3, 6, 7], (2, 6, 7, 2)), ([], (2, 4, 5, 2))):
        (grid,) = call("affine_grid", theta, sides, output_shape_=attribute)
        assert grid.shape == wanted
        (d_theta,) = call("affine_grid_grad", np.ones(wanted, F), sides, output_shape_=attribute, align_corners=True)
        assert d_theta.shape == theta.shape and d_theta[0, 0, 2] == wanted[1] * wanted[2]


@pytest.mark.parametrize(("offset", "wanted"), [(2, [2 + 15, 6 + 19, 10 + 23]), (-1, [12, 16, 20])])
def test_the_offset_of_a_trace_is_along_the_later_dim(offset, wanted):
    x = np.arange(24, dtype=F).reshape(2, 3, 4)
    for dims in ((0, 2), (-1, 0)):
        (found,) = call("trace", x, offset=offset, dim1=dims[0], dim2=dims[1])
        np.testing.assert_array_equal(found, wanted)


def test_bpr_loss_of_more_dims_is_that_of_its_rows(rng):
    x, label = rng.random((3, 2, 4)), rng.integers(0, 4, (3, 2, 1))
    (whole,) = call("bpr_loss", x, label)
    (rows,) = call("bpr_loss", x.reshape(6, 4), label.reshape(6, 1))
    np.testing.assert_allclose(whole, rows.reshape(3, 2, 1), rtol=1e-6)
    (whole,) = call("bpr_loss_grad", x, label, np.ones((3, 2, 1)))
    (rows,) = call("bpr_loss_grad", x.reshape(6, 4), label.reshape(6, 1), np.ones((6, 1)))
    np.testing.assert_allclose(whole, rows.reshape(3, 2, 4), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_accuracy_is_float32(dtype):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        scores, label = fluid.data("scores", [2, 1], dtype), fluid.data("label", [2, 1], "int64")
        chosen = fluid.data("chosen", [2, 1], "int64")
        outs = {s: main.global_block().create_var(name=s) for s in ("Accuracy", "Correct", "Total")}
        ins = {"Out": scores, "Indices": chosen, "Label": label}
        main.global_block().append_op("accuracy", inputs=ins, outputs=outs)
    feed = {"scores": np.ones((2, 1), dtype), "chosen": np.array([[1], [2]]), "label": np.array([[1], [0]])}
    (found,) = fluid.Executor(fluid.CPUPlace()).run(main, feed=feed, fetch_list=[outs["Accuracy"]])
    assert found.dtype == np.float32 and found.tolist() == [0.5]


# --- sparse gradients ---------------------------------------------------------------------------------------------


def test_a_sparse_gradient_of_pooled_embeddings_has_the_padding_rows_too():
    ids = LoDArray(np.array([[3], [1]]), (np.array([0, 2]),))
    found = rule(
        "fused_embedding_seq_pool_grad", np.zeros((5, 1), F), ids, np.full((1, 1), 7, F), padding_idx=3, is_sparse=True
    )
    assert np.asarray(found.rows).tolist() == [3, 1] and np.asarray(found.values).tolist() == [[7], [7]]


# --- halves -------------------------------------------------------------------------------------------------------


def test_images_of_half_a_pixel_are_rounded_up():
    """25 / 2 and 21 / 2: boxes end at 12 and 10, one less than the rounded size."""
    boxes, info = np.array([[5, 5, 30, 30]], F), np.array([[21, 25, 2]], F)
    found = rule("box_clip", LoDArray(boxes, (np.array([0, 1]),)), info)
    assert np.asarray(found.data).tolist() == [[5, 5, 12, 10]]
    args = ([np.zeros((1, 1, 4), F)], [np.full((1, 1, 1), 0.9, F)], [np.array([[0, 0, 40, 40]], F)], info)
    limits = {"score_threshold": 0.05, "nms_top_k": 9, "keep_top_k": 9, "nms_threshold": 0.9, "nms_eta": 1.0}
    found = rule("retinanet_detection_output", *args, **limits)
    assert np.asarray(found.data)[0, 2:].tolist() == [0, 0, 12, 10]


def test_regions_of_half_a_pixel_are_rounded_away_from_zero():
    x = np.arange(36, dtype=F).reshape(1, 1, 6, 6)
    attrs = {"no_trans": True, "spatial_scale": 1.0, "output_dim": 1, "group_size": [1, 1], "pooled_height": 2}
    attrs |= {"pooled_width": 2, "part_size": [2, 2], "sample_per_part": 2, "trans_std": 0.1}
    _, found = call("deformable_psroi_pooling", x, BOXES, np.zeros((1, 2, 2, 2), F), **attrs)
    np.testing.assert_allclose(found[0, 0], [[8.125, 9.625], [17.125, 18.625]], rtol=1e-6)


# --- ragged rows --------------------------------------------------------------------------------------------------


def ragged(dims, lengths, lod_level, written):
    """What the variables that ``written(x)`` returns hold after a run over rows of ones of these lengths."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, *dims], lod_level=lod_level)
        x.stop_gradient = False
        fetches = written(x)
    place = fluid.CPUPlace()
    rows = fluid.create_lod_tensor(np.ones((sum(lengths[-1]), *dims), F), lengths, place)
    return fluid.Executor(place).run(main, feed={"x": rows}, fetch_list=fetches, return_numpy=False)


def test_the_gradient_of_leaky_relu_has_the_lod_of_its_input():
    (grad,) = ragged([2], [[2, 3]], 1, lambda x: fluid.gradients(fluid.layers.mean(fluid.layers.leaky_relu(x)), x))
    assert grad.lod() == [[0, 2, 5]] and np.asarray(grad).shape == (5, 2)


def test_the_rows_of_maxima_are_as_many_as_sequences():
    def written(x):
        fluid.layers.sequence_pool(x, "max")
        return x.block.ops[-1].output("MaxIndex")

    (index,) = ragged([2], [[1, 1], [2, 3]], 2, written)
    assert np.asarray(index).tolist() == [[0, 0], [2, 2]] and index.lod() == []


def test_the_forward_variables_of_a_chain_have_no_lod():
    def written(x):
        label = fluid.layers.cast(fluid.layers.slice(x, [1], [0], [1]), "int64")
        fluid.layers.linear_chain_crf(x, label)
        return [x.block.ops[-1].output(slot)[0] for slot in ("Alpha", "EmissionExps")]

    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, 3], lod_level=1)
        fetches, exe = written(x), fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        rows = fluid.create_lod_tensor(np.ones((5, 3), F), [[2, 3]], fluid.CPUPlace())
        alpha, exps = exe.run(main, feed={"x": rows}, fetch_list=fetches)
    assert alpha.shape == (5, 3) and exps.tolist() == np.ones((5, 3)).tolist()


def test_a_size_of_ragged_rows_is_int64():
    (size,) = ragged([2], [[2, 3]], 1, lambda x: [fluid.layers.size(x)])
    assert np.asarray(size).dtype == np.int64 and np.asarray(size).tolist() == [10]


def test_a_sparse_gradient_of_hierarchical_sigmoid_has_each_visited_node_once():
    table, code = np.array([[3, 2, -1], [-1, -1, -1], [3, 1, -1]]), np.array([[0, 1, -1], [-1, -1, -1], [1, 1, -1]])
    args = np.ones((3, 2), F), np.ones((5, 2), F), np.array([[1], [2], [4]])
    rest = np.full((3, 3), 0.5, F), np.ones((3, 1), F), table, code
    _, sparse, _ = rule("hierarchical_sigmoid_grad", *args, *rest, num_classes=5, is_sparse=True)
    _, dense, _ = rule("hierarchical_sigmoid_grad", *args, *rest, num_classes=5, is_sparse=False)
    assert int(sparse.nrows) == 3 and np.asarray(sparse.rows)[:3].tolist() == [1, 2, 3]
    np.testing.assert_allclose(sparse.values[:3], dense[1:4], rtol=1e-6)


# --- detection ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_mean_average_precision_has_the_dtype_of_the_detections(dtype):
    found = LoDArray(np.array([[1, 0.6, 0, 0, 0.5, 0.5]], dtype), (np.array([0, 1]),))
    label = LoDArray(np.array([[1, 0, 0, 0.5, 0.5]], dtype), (np.array([0, 1]),))
    _, true, false, mean = rule("detection_map", found, label, class_num=2)
    assert {true.data.dtype, false.data.dtype, mean.dtype} == {np.dtype(dtype)} and mean.tolist() == [1]


def test_collected_regions_stay_with_their_images_where_one_has_none():
    offsets = [np.array([0, 1, 1, 2]), np.array([0, 0, 0, 1])]
    rois = [LoDArray(np.full((o[-1], 4), k, F), (o,)) for k, o in enumerate(offsets)]
    scores = [LoDArray(np.ones((o[-1], 1), F), (o,)) for o in offsets]
    found, _ = rule("collect_fpn_proposals", rois, scores, post_nms_topN=9)
    assert found.lod[0].tolist() == [0, 1, 1, 3] and found.data[:, 0].tolist() == [0, 0, 1]


def test_negatives_of_wide_targets_weigh_one():
    x, negatives = LoDArray(np.ones((1, 1, 3), F), (np.array([0, 1]),)), LoDArray(np.array([[2]]), (np.array([0, 1]),))
    out, weight = rule("target_assign", x, np.array([[0, -1, -1]]), negatives, mismatch_value=7)
    assert out[0, :, 0].tolist() == [1, 7, 7] and weight[0, :, 0].tolist() == [1, 0, 1]


# --- weights and axes ---------------------------------------------------------------------------------------------


def test_an_outside_weight_alone_is_not_looked_at():
    x, zeros, weight = np.array([[1, 2], [3, 4]], F), np.zeros((2, 2), F), np.array([[1, 0], [1, 2]], F)
    diff, out = call("smooth_l1_loss", x, zeros, None, weight)
    assert out.tolist() == [[2], [6]]
    dx, _ = call("smooth_l1_loss_grad", diff, np.ones((2, 1), F), None, weight, sigma=1.0)
    np.testing.assert_array_equal(dx, np.ones((2, 2)))


def test_a_smooth_l1_loss_without_sigma_is_zero():
    x, y = np.array([[3.0, -1.0]], F), np.zeros((1, 2), F)
    diff, loss = call("smooth_l1_loss", x, y, sigma=0.0)
    (dx, _) = call("smooth_l1_loss_grad", diff, np.ones((1, 1), F), sigma=0.0)
    assert loss.tolist() == [[0]] and not dx.any()


def test_the_slope_of_smooth_l1_at_no_number_is_zero():
    (dx, dy) = call("smooth_l1_loss_grad", np.array([[np.nan, -3.0, 0.5]], F), np.ones((1, 1), F), sigma=1.0)
    assert dx.tolist() == [[0, -1, 0.5]] and dy.tolist() == [[0, 1, -0.5]]


def test_a_first_cell_without_a_first_state_is_not_looked_at(rng):
    x = LoDArray(rng.standard_normal((5, 4)).astype(F), (np.array([0, 2, 5]),))
    weights = [rng.standard_normal(shape).astype(F) for shape in ((4, 12), (3, 12), (1, 12))]
    cell = np.ones((2, 3), F)
    bare, given, both = (
        np.asarray(rule("fusion_lstm", x, *weights, *states, use_peepholes=False)[1].data)
        for states in ((None, None), (None, cell), (0 * cell, cell))
    )
    assert (bare == given).all() and (bare != both).any()


def test_fractions_of_an_image_size_do_not_count():
    images, sizes = np.arange(18, dtype=F).reshape(2, 1, 3, 3), np.array([[4, 6], [2, 5]], F)
    window = {"kernels": [2, 2], "paddings": [1, 0, 1, 0], "out_stride": [2, 2]}
    whole, more = (rule("im2sequence", LoDArray(images), size, **window) for size in (sizes, sizes + F(0.4)))
    assert (whole.lod[0] == more.lod[0]).all() and (whole.data == more.data).all()


def test_a_row_of_zeros_is_like_no_other():
    x, y = np.array([[0, 0], [3, 4]], F), np.ones((2, 2), F)
    out, x_norm, y_norm = call("cos_sim", x, y)
    assert out[0] == 0 and x_norm[0] == F(1e-4) and x_norm[1] == 5
    d_x, d_y = call("cos_sim_grad", x, y, out, x_norm, y_norm, np.ones((2, 1), F))
    np.testing.assert_allclose(d_x[0], [1e4 / 2**0.5] * 2, rtol=1e-6)
    assert not d_y[0].any()


def test_an_axis_named_twice_is_reversed_once():
    (found,) = call("reverse", np.arange(6).reshape(2, 3), axis=[0, -1, 1])
    assert found.tolist() == [[5, 4, 3], [2, 1, 0]]


def test_the_axes_of_unsqueeze_are_rather_its_attribute():
    x = np.zeros((2, 3), F)
    for slots in ((np.array([0], np.int32), None), (None, [np.array([0], np.int32)])):
        assert rule("unsqueeze2", LoDArray(x), *slots, axes=[2])[0].shape == (2, 3, 1)
        assert rule("unsqueeze2", LoDArray(x), *slots)[0].shape == (1, 2, 3)


def test_masks_of_ragged_lengths_have_no_rows_of_padding():
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x = fluid.data("x", [None, 1], "int64", lod_level=1)
        mask = fluid.layers.sequence_mask(x, maxlen=3)
    lengths = fluid.create_lod_tensor(np.array([[1], [3], [0]]), [[2, 1]], fluid.CPUPlace())
    (found,) = fluid.Executor().run(program, feed={"x": lengths}, fetch_list=[mask])
    np.testing.assert_array_equal(found[:, 0], [[1, 0, 0], [1, 1, 1], [0, 0, 0]])


def test_chunks_of_labels_below_zero_are_divided_as_in_c():
    """-1 is of kind 0, with a tag that ends chunks."""
    labels = LoDArray(np.array([[-1], [0], [1], [-1], [2], [-1], [-1], [0]]), (np.array([0, 8]),))
    *_, inferred, labelled, correct = call("chunk_eval", labels, labels, num_chunk_types=2, chunk_scheme="IOB")
    assert (inferred, labelled, correct) == (6, 6, 6)


def test_chunks_are_those_of_the_sequences_of_labels():
    """Lengths count for nothing beside a LoD, which counts ids, in rows of several too."""
    ids, whole = np.array([[0, 1], [1, 1], [1, 2]]), (np.array([0, 3]),)
    flat = LoDArray(ids.reshape(6, 1)[:3], whole)
    attrs = {"num_chunk_types": 2, "chunk_scheme": "IOB"}
    for labels, lengths, count in ((flat, np.array([1]), 1), (LoDArray(ids, whole), np.array([1, 2, 2]), 1)):
        assert [v.item() for v in call("chunk_eval", labels, labels, lengths, **attrs)[3:]] == [count] * 3
    assert call("chunk_eval", LoDArray(ids), LoDArray(ids), np.array([2, 1, 2]), **attrs)[3].item() == 4


def test_a_norm_to_clip_by_leaves_padding_out():
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        clipped = fluid.layers.clip_by_norm(fluid.data("x", [None, 2], lod_level=1), 1.0)
    rows = np.array([[3, 0], [0, 4], [0, 0]], F)
    feed = {"x": fluid.create_lod_tensor(rows, [[2, 1]], fluid.CPUPlace())}
    (found,) = fluid.Executor().run(program, feed, [clipped], return_numpy=False)
    np.testing.assert_allclose(np.asarray(found), rows / 5, rtol=1e-6)
    assert found.lod() == [[0, 2, 3]]


def test_a_norm_is_of_what_was_cast():
    x = LoDArray(np.full((5, 2), 1.9, F))
    ctx = SimpleNamespace(release=0)
    assert rule("frobenius_norm", x, dim=[0], out_dtype=3, ctx=ctx).tolist() == [2, 2]  # sqrt(5) of ones
    assert rule("frobenius_norm", x, dim=[0], out_dtype=6, ctx=ctx).dtype == np.float64


def test_labels_that_fit_but_are_never_reached_have_an_infinite_loss():
    """Labels 1 1 do not fit into 2 frames. Labels 1 2 0 fit into 3, but need one more for the blank among them."""
    for labels, frames, wanted in (([1, 1], 2, 0), ([1, 2, 0], 3, np.inf), ([1, 2, 0], 4, 4.394449)):
        logits = LoDArray(np.zeros((frames, 3), F), (np.array([0, frames]),))
        label = LoDArray(np.array(labels, np.int32)[:, None], (np.array([0, len(labels)]),))
        np.testing.assert_allclose(rule("warpctc", logits, label, blank=0)[1].data, [[wanted]], rtol=1e-6)


def test_a_cast_to_half_precision_rounds_to_the_nearest():
    x = np.array([0.55504394, 1.0009, -1.0009, 2049.0], F)
    (found,) = call("cast", x, in_dtype=5, out_dtype=4)
    assert found.tolist() == [0.55517578125, 1.0009765625, -1.0009765625, 2048.0]


@pytest.mark.parametrize("type", ["nearest_interp", "bicubic_interp"])
def test_an_image_is_resized_by_the_method_that_the_attribute_says(type: str):
    """Fluid's four types run one kernel; 2 pixels become 4, of which the second and third are between them."""
    x = LoDArray(np.array([0.0, 3.0], F).reshape(1, 1, 1, 2))
    for attrs, between in (({}, [1, 2]), ({"interp_method": "nearest"}, [0, 3]), ({"interp_method": "bicubic"}, None)):
        found = np.asarray(rule(type, x, out_h=1, out_w=4, **attrs).data)
        if between:
            np.testing.assert_allclose(found.ravel(), [0, *between, 3], rtol=1e-6)
        else:
            assert 0 < found[..., 1] < 1 and 2 < found[..., 2] < 3  # the cubic overshoots to the nearer pixel
    with (
        fluid.program_guard(fluid.Program()),
        pytest.raises(OpError, match="interp_method must be one of 'bilinear'"),
    ):
        image = fluid.data("x", [1, 1, 1, 2])
        out = image.block.create_var(name="out", dtype="float32")
        image.block.append_op(type, {"X": image}, {"Out": out}, {"out_h": 1, "out_w": 4, "interp_method": "trilinear"})


def test_images_whose_size_a_tensor_gives_keep_their_sequences():
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x, size = fluid.data("x", [None, 1, 1, 2], lod_level=1), fluid.data("size", [2], "int32")
        kept = fluid.layers.resize_nearest(x, out_shape=size, align_corners=False)
        lost = fluid.layers.resize_nearest(x, out_shape=[1, 2], align_corners=False)
    rows = np.arange(6, dtype=F).reshape(3, 1, 1, 2)
    feed = {"x": fluid.create_lod_tensor(rows, [[2, 1]], fluid.CPUPlace()), "size": np.array([1, 2], np.int32)}
    found = fluid.Executor().run(program, feed, [kept, lost], return_numpy=False)
    assert [v.lod() for v in found] == [[[0, 2, 3]], []] and all((np.array(v) == rows).all() for v in found)


def test_thresholds_below_zero():
    """Both sides of a shrinking count where they overlap; nothing is within a negative delta."""
    x, ones = np.array([-2.0, 0.5, 2.0], F), np.ones(3, F)
    np.testing.assert_allclose(call("softshrink", x, lambda_=-1.0)[0], [-3, 1, 3])
    np.testing.assert_allclose(call("softshrink_grad", x, ones, lambda_=-1.0)[0], [1, 2, 1])
    np.testing.assert_allclose(call("hard_shrink", x, threshold=-1.0)[0], [1, 2, 1] * x)
    np.testing.assert_allclose(call("hard_shrink_grad", x, ones, threshold=-1.0)[0], [1, 2, 1])
    np.testing.assert_allclose(call("huber_loss", 0 * x, x, delta=-1.0)[1], [-2.5, -1, -2.5])
    np.testing.assert_allclose(call("huber_loss_grad", x, ones, delta=-1.0)[1], [1, -1, -1])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"channels": 31}, "dim 1 of X must be 30"),
        ({"anchor_mask": [0, 3]}, "anchor_mask must be"),
        ({"anchors": [10, 13, 16]}, "anchors must be pairs"),
        ({"class_num": 0}, "class_num must be at least 1"),
        ({"width": 5}, "height and width of X must agree"),
    ],
)
def test_what_a_yolo_head_must_have(wrong, message: str):
    given = {"channels": 30, "width": 4, "class_num": 10, "anchors": [10, 13, 16, 30, 33, 23], "anchor_mask": [0, 1]}
    given |= wrong
    with fluid.program_guard(fluid.Program()), pytest.raises(OpError, match=message):
        x = fluid.data("x", [None, given.pop("channels"), 4, given.pop("width")])
        boxes, labels = fluid.data("boxes", [None, 6, 4]), fluid.data("labels", [None, 6], "int32")
        fluid.layers.yolov3_loss(x, boxes, labels, ignore_thresh=0.7, downsample_ratio=32, **given)


def test_the_only_row_of_a_sequence_is_squeezed():
    x = fluid.data("x", [None, 3, 2], "float32", lod_level=1)
    x.stop_gradient = False
    out = fluid.layers.squeeze(x, [0])
    (gradient,) = fluid.gradients(fluid.layers.reduce_sum(out * out), [x])
    rows = np.arange(6, dtype=F).reshape(1, 3, 2)
    feed = {"x": fluid.create_lod_tensor(rows, [[0, 1, 0]], fluid.CPUPlace())}
    found, slope = fluid.Executor().run(feed=feed, fetch_list=[out, gradient], return_numpy=False)
    assert found.lod() == []
    np.testing.assert_array_equal(found, rows[0])
    np.testing.assert_array_equal(slope, 2 * rows)


def test_the_norm_of_a_vector_is_a_number():
    for shape, attrs, wanted in (
        ([4], {}, ()),
        ([4], {"keepdim": True}, (1,)),
        ([4], {"asvector": True}, (1,)),
        ([2, 2], {"axis": 0}, (2,)),
    ):
        (found,) = call("p_norm", np.ones(shape, F), **attrs)
        assert found.shape == wanted, (shape, attrs)


SEEN, ALL = np.array([True, False, True]), np.ones(3, bool)


@pytest.mark.parametrize("type", ["logical_and", "logical_or", "logical_xor"])
@pytest.mark.parametrize(("x", "y"), [((3,), (3, 1)), ((3, 1), (3,)), ((3, 1), (1, 3)), ((1, 3), (3, 1, 1))])
def test_logic_goes_by_the_number_of_elements(type: str, x: tuple[int, ...], y: tuple[int, ...]) -> None:
    """In Fluid; operands of Paddle 2 broadcast."""
    compute = getattr(np, type)
    old, new = SimpleNamespace(release=0), SimpleNamespace(release=PADDLE_2)
    operands = LoDArray(SEEN.reshape(x)), LoDArray(ALL.reshape(y))
    (found,) = call(type, *operands, ctx=old)
    np.testing.assert_array_equal(found, compute(SEEN, ALL).reshape(x))
    (found,) = call(type, *operands, ctx=new)
    np.testing.assert_array_equal(found, compute(SEEN.reshape(x), ALL.reshape(y)))


def test_logic_of_rows_has_the_shape_of_the_first():
    x, y = (fluid.data(name, shape, "bool", lod_level=1) for name, shape in (("x", [None, 1]), ("y", [None])))
    out = fluid.layers.logical_and(x, y)
    assert out.shape == (-1, 1)
    place = fluid.CPUPlace()
    feed = {"x": SEEN.reshape(3, 1), "y": ALL}
    feed = {name: fluid.create_lod_tensor(rows, [[1, 2]], place) for name, rows in feed.items()}
    (found,) = fluid.Executor().run(feed=feed, fetch_list=[out], return_numpy=False)
    assert found.lod() == [[0, 1, 3]]
    np.testing.assert_array_equal(found, SEEN.reshape(3, 1))
