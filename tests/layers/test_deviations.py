"""Deviations from Paddle 1.8.5 in docs/deviations.md that no other test shows."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers


def run(build: Callable[[], Sequence[Any]], feed: dict[str, Any]) -> list[Any]:
    """The values of what ``build`` returns, as a run of a program of its own fetches them."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        fetches = list(build())
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup, scope=scope)
    return exe.run(main, feed=feed, fetch_list=fetches, scope=scope, return_numpy=False)


def test_negative_indices_count_from_the_end(rng):
    """Where values are not checked; checked, they are refused."""
    x = rng.random((3, 4), np.float32)

    def last() -> list:
        return run(
            lambda: [layers.gather_nd(fluid.data("x", [3, 4]), fluid.data("i", [1, 1], "int32"))],
            {"x": x, "i": np.array([[-1]], np.int32)},
        )

    with pytest.raises(fluid.core.EnforceNotMet, match="value -1 of 'i'"):
        last()
    fluid.set_flags({"FLAGS_check_values": False})
    try:
        (row,) = last()
    finally:
        fluid.set_flags({"FLAGS_check_values": True})
    np.testing.assert_array_equal(np.array(row), x[-1:])


def test_a_result_is_declared_as_what_its_op_writes():
    """Also where a script made the variable with another dtype."""
    with fluid.program_guard(fluid.Program()):
        x, y = fluid.data("x", [2, 3]), fluid.data("b", [2, 3], "bool")
        into = [fluid.default_main_program().global_block().create_var(dtype="float32", shape=[2, 3]) for _ in "ab"]
        layers.equal(x, x, cond=into[0])
        layers.logical_and(y, y, out=into[1])
    assert [var.dtype for var in into] == [fluid.core.VarDesc.VarType.BOOL] * 2


def test_the_background_of_detections_is_the_argument():
    with fluid.program_guard(fluid.Program()):
        loc, scores = fluid.data("loc", [2, 8, 4]), fluid.data("scores", [2, 8, 3])
        prior, spread = fluid.data("prior", [8, 4]), fluid.data("spread", [8, 4])
        rows, index = layers.detection_output(
            loc, scores, prior, spread, background_label=2, nms_eta=0.5, return_index=True
        )
    assert (rows.op.attr("background_label"), rows.op.attr("nms_eta")) == (2, 0.5)
    assert index.dtype == fluid.core.VarDesc.VarType.INT64


def test_gradient_of_a_ragged_input_has_its_lod(rng):
    x = fluid.create_lod_tensor(rng.random((5, 4), np.float32), [[2, 3]], fluid.CPUPlace())

    def build():
        rows = fluid.data("x", [None, 4], lod_level=1)
        rows.stop_gradient = False
        return fluid.gradients(layers.mean(layers.row_conv(rows, 1)), rows)

    (gradient,) = run(build, {"x": x})
    assert gradient.recursive_sequence_lengths() == [[2, 3]]


@pytest.mark.parametrize("build", [lambda i: 2 / i, lambda i: 2**i])
def test_a_number_on_the_left_of_integers_is_an_integer(build):
    (result,) = run(lambda: [build(fluid.data("i", [None], "int64"))], {"i": np.array([1, 2])})
    np.testing.assert_array_equal(np.array(result), build(np.array([1, 2])).astype(np.int64))


def test_steps_of_data_need_no_gradient(rng):
    steps = rng.random((3, 2, 4), np.float32)

    def build():
        rnn = layers.StaticRNN()
        with rnn.step():
            step = rnn.step_input(fluid.data("x", [3, 2, 4]))
            memory = rnn.memory(shape=[-1, 4], batch_ref=step)
            weight = layers.create_parameter([4], "float32", name="w")
            new = layers.elementwise_add(memory, layers.elementwise_mul(step, weight))
            rnn.update_memory(memory, new)
            rnn.step_output(new)
        loss = layers.reduce_sum(rnn())
        return [gradient for _, gradient in fluid.backward.append_backward(loss)]

    (gradient,) = run(build, {"x": steps})
    np.testing.assert_allclose(np.array(gradient), (steps * [[[3]], [[2]], [[1]]]).sum((0, 1)), rtol=1e-5)


def test_a_case_needs_a_pair():
    with fluid.program_guard(fluid.Program()), pytest.raises(ValueError, match="case"):
        layers.case([])


def test_both_directions_of_an_lstm_are_declared():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        x, start = fluid.data("x", [3, 2, 4]), fluid.data("start", [2, 2, 5])
        out, *_ = layers.lstm(x, start, start, 3, 5, 1, is_bidirec=True)
    assert out.shape[-1] == 10


def test_proposals_without_suppression_are_sorted(rng):
    scores = rng.permutation(8).astype(np.float32).reshape(1, 2, 2, 2) / 8
    corners = rng.uniform(0, 20, (2, 2, 2, 2)).astype(np.float32)
    feed = {
        "scores": scores,
        "deltas": np.zeros((1, 8, 2, 2), np.float32),
        "im_info": np.array([[64, 64, 1]], np.float32),
        "anchors": np.concatenate([corners, corners + 20], -1),
        "variances": np.ones((2, 2, 2, 4), np.float32),
    }

    def build():
        inputs = [fluid.data(name, list(value.shape)) for name, value in feed.items()]
        return layers.generate_proposals(*inputs, 8, 8, nms_thresh=0.0)

    _, probabilities = run(build, feed)
    np.testing.assert_array_equal(np.array(probabilities).ravel(), np.sort(scores.ravel())[::-1])


def test_swish_uses_its_beta():
    x = np.array([[-1.0, 0.5, 2.0]], np.float32)
    (y,) = run(lambda: [layers.swish(fluid.data("x", [1, 3]), 2.0)], {"x": x})
    np.testing.assert_allclose(np.array(y), x / (1 + np.exp(-2 * x)), rtol=1e-6)


def test_group_norm_alone_has_its_gradient(rng):
    """The gradient of X sums up to zero over each group, whether or not Scale and Bias get one."""
    feed = {name: rng.standard_normal((2, 4, 3, 3)).astype(np.float32) for name in "xw"}

    def build():
        x, w = fluid.data("x", [2, 4, 3, 3]), fluid.data("w", [2, 4, 3, 3])
        x.stop_gradient = False
        return fluid.gradients(layers.reduce_sum(layers.group_norm(x, 2, param_attr=False, bias_attr=False) * w), x)

    (gradient,) = run(build, feed)
    sums = np.array(gradient).reshape(2, 2, -1).sum(-1)
    np.testing.assert_allclose(sums, np.zeros((2, 2)), atol=1e-4)


WITHOUT_LOD = {
    "slice": lambda x: layers.slice(x, [1], [0], [2]),
    "matmul": lambda x: layers.matmul(x, layers.fill_constant([4, 2], "float32", 0.5)),
    "softmax": layers.softmax,
    "expand": lambda x: layers.expand(x, [1, 2]),
    "pad": lambda x: layers.pad(x, [0, 0, 1, 1]),
    "layer_norm": layers.layer_norm,
    "clip": lambda x: layers.clip(x, -1.0, 1.0),
    "norm": lambda x: layers.l2_normalize(x, 1),
    "cos_sim": lambda x: layers.cos_sim(x, layers.ones_like(x)),
    "batch_norm": layers.batch_norm,
    "cross_entropy": lambda x: layers.cross_entropy(x, _labels(x)),
    "softmax_with_cross_entropy": lambda x: layers.softmax_with_cross_entropy(x, _labels(x)),
    "prelu": lambda x: layers.prelu(x, "all"),
    "huber_loss": lambda x: layers.huber_loss(x, layers.zeros_like(x), 1.0),
    "sigmoid_cross_entropy_with_logits": lambda x: layers.sigmoid_cross_entropy_with_logits(x, layers.ones_like(x)),
}


def _labels(x):
    return layers.cast(layers.reduce_sum(x, 1, keep_dim=True) * 0.0, "int64")


@pytest.mark.parametrize("name", WITHOUT_LOD)
def test_gradients_have_the_lod_of_what_they_are_the_gradients_of(rng, name):
    """Where Paddle's have none."""
    x = fluid.create_lod_tensor(rng.random((5, 4), np.float32), [[2, 3]], fluid.CPUPlace())

    def build():
        rows = fluid.data("x", [None, 4], lod_level=1)
        rows.stop_gradient = False
        return fluid.gradients(layers.mean(layers.square(WITHOUT_LOD[name](rows))), rows)

    (gradient,) = run(build, {"x": x})
    assert gradient.shape() == [5, 4] and gradient.lod() == [[0, 2, 5]]


def test_a_stack_has_no_lod(rng):
    """Paddle gives it that of its first input, whose offsets count other rows."""
    x = fluid.create_lod_tensor(rng.random((5, 4), np.float32), [[2, 3]], fluid.CPUPlace())
    (stacked,) = run(lambda: [layers.stack([fluid.data("x", [None, 4], lod_level=1)] * 2)], {"x": x})
    assert stacked.shape() == [2, 5, 4] and stacked.lod() == []


EXTREMES = {
    "reduce_max": (lambda x: layers.reduce_max(x, [1, 2, 3]), np.max, np.nanmax),
    "reduce_min": (lambda x: layers.reduce_min(x, [1, 2, 3]), np.min, np.nanmin),
    "max_pool": (lambda x: layers.pool2d(x, 4, "max", 4), np.max, np.nanmax),
    "maxout": (lambda x: layers.reduce_max(layers.maxout(x, 2), [1, 2, 3]), np.max, np.nanmax),
}


@pytest.mark.parametrize("name", EXTREMES)
def test_an_extreme_keeps_a_nan_or_leaves_it_out(rng, name):
    """Paddle leaves it out; in either case no other number changes."""
    build, kept, dropped = EXTREMES[name]
    x = rng.random((2, 2, 4, 4), np.float32)
    x[0, 0, 1, 2] = np.nan
    (result,) = run(lambda: [build(fluid.data("x", [2, 2, 4, 4]))], {"x": x})
    shape = (2, 2, -1) if name == "max_pool" else (2, -1)
    found, parts = np.array(result).reshape(shape[:-1]), x.reshape(shape)
    either = [np.array_equal(found, way(parts, -1), equal_nan=True) for way in (kept, dropped)]
    assert any(either), found


def test_empty_results_keep_their_shape_and_dtype():
    """Paddle fetches None, or with return_numpy=False a tensor of shape [0] without memory; both have the LoD."""
    x = fluid.create_lod_tensor(np.array([[1], [1], [2]]), [[2, 1]], fluid.CPUPlace())

    def build():
        tokens = fluid.data("x", [None, 1], "int64", lod_level=1)
        out = tokens.block.create_var(name="out", dtype="int64")
        tokens.block.append_op("sequence_erase", inputs={"X": tokens}, outputs={"Out": out}, attrs={"tokens": [1, 2]})
        return [out, layers.relu(fluid.data("dense", [None, 3]))]

    erased, dense = run(build, {"x": x, "dense": np.zeros((0, 3), np.float32)})
    assert erased.shape() == [0, 1] and erased.lod() == [[0, 0, 0]] and np.array(erased).dtype == np.int64
    assert np.array(dense).shape == (0, 3)


def test_a_part_of_a_concat_that_needs_no_gradient_keeps_its_rows() -> None:
    """Paddle's sequence_concat_grad gives the other part the gradients of the first rows of Out."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, y = (fluid.data(name, [None, 1], lod_level=1) for name in "xy")
        x.stop_gradient = False
        weights = fluid.data("w", [None, 1], lod_level=1)
        loss = fluid.layers.reduce_sum(fluid.layers.sequence_concat([x, y]) * weights)
        (gradient,) = fluid.gradients(loss, x)
        rows = {"x": (4, [1, 3]), "y": (3, [2, 1]), "w": (7, [3, 4])}
        feed = {
            name: fluid.create_lod_tensor(np.arange(n, dtype="float32")[:, None], [lengths], fluid.CPUPlace())
            for name, (n, lengths) in rows.items()
        }
        got = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[gradient], return_numpy=False)[0]
    assert np.array(got).ravel().tolist() == [0, 3, 4, 5]


def test_two_tensors_of_one_array_have_the_sum_of_their_gradients() -> None:
    """Paddle's gradient of a stacked array, summed with that of a concatenated one, is wrong."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [2, 2])
        x.stop_gradient = False
        array = fluid.layers.array_write(x, fluid.layers.fill_constant([1], "int64", 0))
        fluid.layers.array_write(x * 2.0, fluid.layers.fill_constant([1], "int64", 1), array)
        joined, _ = fluid.layers.tensor_array_to_tensor(array, axis=1)
        stacked, _ = fluid.layers.tensor_array_to_tensor(array, axis=0, use_stack=True)
        loss = fluid.layers.reduce_sum(joined) + fluid.layers.reduce_sum(fluid.layers.square(stacked))
        (gradient,) = fluid.gradients(loss, x)
        value = np.arange(4, dtype="float32").reshape(2, 2)
        got = fluid.Executor(fluid.CPUPlace()).run(feed={"x": value}, fetch_list=[gradient])[0]
    np.testing.assert_allclose(got, 3 + 2 * value + 8 * value, rtol=1e-6)  # of x and 2x, once and squared


def test_an_array_that_a_loop_wrote_and_read_is_joined_with_its_derivative() -> None:
    """What the loop read again has both gradients; Paddle's adds the one behind the loop up with each step."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        layers = fluid.layers
        x = fluid.data("x", [2, 2])
        x.stop_gradient = False
        step, last = (layers.fill_constant([1], "int64", v) for v in (0, 2))
        array = layers.array_write(x, layers.fill_constant([1], "int64", 0))
        going = layers.less_than(step, last)
        with layers.While(going).block():
            doubled = layers.scale(layers.array_read(array, step), 2.0)
            layers.increment(step)
            layers.array_write(doubled, step, array)
            layers.less_than(step, last, cond=going)
        joined, _ = layers.tensor_array_to_tensor(array, axis=0)
        (gradient,) = fluid.gradients(layers.reduce_sum(layers.square(joined)), x)
        value = np.arange(4, dtype="float32").reshape(2, 2)
        got = fluid.Executor(fluid.CPUPlace()).run(feed={"x": value}, fetch_list=[gradient])[0]
    np.testing.assert_allclose(got, 2 * (1 + 4 + 16) * value, rtol=1e-6)  # of x, 2x and 4x, squared


def test_inplace_abn_gives_its_activation_after_the_backward_pass_too(rng):
    """Paddle's gradient op overwrites the activation by what it takes the input to be, and that is fetched."""
    x = rng.random((2, 4, 3, 3), np.float32)

    def build() -> Sequence[Any]:
        image = fluid.data("x", [2, 4, 3, 3])
        image.stop_gradient = False
        y = layers.inplace_abn(layers.scale(image, 2.0), act="leaky_relu", act_alpha=0.2)
        loss = layers.mean(y * y)
        fluid.backward.append_backward(loss)
        return y, loss

    y, loss = (np.asarray(value) for value in run(build, {"x": x}))
    np.testing.assert_allclose(loss, [np.mean(y * y)], rtol=1e-5)


def test_a_pooling_into_one_channel_is_computed(rng):
    x = rng.random((1, 4, 6, 6), np.float32)
    (pooled,) = run(
        lambda: [layers.psroi_pool(fluid.data("x", x.shape), fluid.data("r", [None, 4], lod_level=1), 1, 1.0, 2, 2)],
        {"x": x, "r": fluid.create_lod_tensor(np.array([[0, 0, 5, 5]], np.float32), [[1]], fluid.CPUPlace())},
    )
    corners = [x[0, 0, :3, :3], x[0, 1, :3, 3:], x[0, 2, 3:, :3], x[0, 3, 3:, 3:]]
    np.testing.assert_allclose(np.ravel(pooled), [corner.mean() for corner in corners], rtol=1e-5)


def test_flat_density_priors_declare_their_number():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        image, features = fluid.data("image", [1, 3, 8, 8]), fluid.data("features", [1, 3, 2, 2])
        boxes, variances = layers.density_prior_box(
            features, image, densities=[2], fixed_sizes=[4.0], fixed_ratios=[1.0], flatten_to_2d=True
        )
    assert boxes.shape == variances.shape == (16, 4)


def test_labels_of_boxes_may_be_int64(rng):
    corners = np.sort(rng.random((4, 2, 2), np.float32), axis=1).reshape(4, 4)  # x0, y0, x1, y1
    feed = {"at": rng.random((2, 4, 4), np.float32), "of": rng.random((2, 4, 3), np.float32), "priors": corners}
    feed["boxes"] = fluid.create_lod_tensor(corners[:2], [[1, 1]], fluid.CPUPlace())

    def loss(dtype: str) -> np.ndarray:
        def build() -> Sequence[Any]:
            at, of = fluid.data("at", [2, 4, 4]), fluid.data("of", [2, 4, 3])
            boxes, labels = fluid.data("boxes", [None, 4], lod_level=1), fluid.data("labels", [None, 1], dtype, 1)
            return [layers.ssd_loss(at, of, boxes, labels, fluid.data("priors", [4, 4]))]

        labels = fluid.create_lod_tensor(np.array([[1], [2]], dtype), [[1, 1]], fluid.CPUPlace())
        return np.array(run(build, {**feed, "labels": labels})[0])

    narrow = loss("int32")
    assert (narrow > 0).all()
    np.testing.assert_array_equal(loss("int64"), narrow)


def test_a_rank_one_index_is_one_place():
    """Paddle wants an index of rank two or more."""
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    feed = {"x": x, "i": np.array([1, 2])}
    (row,) = run(lambda: [layers.gather_nd(fluid.data("x", [2, 3, 4]), fluid.data("i", [2], "int64"))], feed)
    np.testing.assert_array_equal(np.array(row), x[1, 2])


def test_ids_of_a_scatter_may_be_a_column():
    """Paddle wants a vector."""

    def build():
        ids = fluid.data("i", [None, 1], "int64")
        return [layers.scatter(fluid.data("x", [3, 2]), ids, fluid.data("u", [None, 2]))]

    feed = {"x": np.zeros((3, 2), np.float32), "i": np.array([[2], [0]]), "u": np.ones((2, 2), np.float32)}
    (rows,) = run(build, feed)
    np.testing.assert_array_equal(np.array(rows), [[1, 1], [0, 0], [1, 1]])


@pytest.mark.parametrize("shape", [[None, 3, None, 8], [None, 3, None, None], [None, 3, 4, 5]])
def test_a_pool_over_whole_images_is_declared_as_one_pixel(shape):
    """Also where their sides are unknown: Paddle declares -1 for these."""
    with fluid.program_guard(fluid.Program()):
        assert layers.pool2d(fluid.data("x", shape), global_pooling=True).shape == (-1, 3, 1, 1)


@pytest.mark.parametrize("at", [1, 2])
def test_scores_to_be_ranked_are_variables(at):
    """Paddle takes a list of one for the right ones alone, by accident."""
    with fluid.program_guard(fluid.Program()):
        given = [fluid.data(name, [None, 1]) for name in ("label", "left", "right")]
        given[at] = [given[at]]
        with pytest.raises(TypeError, match="received <class 'list'>"):
            layers.margin_rank_loss(*given)


def test_a_refused_run_leaves_the_scope_as_it_was():
    """Paddle has made the variables of feeds and fetches by then."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup):
        out = layers.fc(fluid.data("x", [None, 2]), 2, param_attr="weight", bias_attr=False)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup, scope=scope)
    with pytest.raises(fluid.core.EnforceNotMet, match="add 'x' to the feed"):
        exe.run(main, feed={}, fetch_list=[out], scope=scope)
    assert scope.local_var_names() == ["weight"]


@pytest.mark.parametrize("act, expected", [(None, [-1, 2, -3]), ("relu", [0, 2, 0])])
def test_an_activation_of_scale_applies_in_eager_mode_too(act, expected):
    """Paddle's eager mode leaves it out."""
    with fluid.dygraph.guard():
        x = fluid.dygraph.to_variable(np.array([1, -2, 3], np.float32))
        np.testing.assert_array_equal(layers.scale(x, -1.0, act=act).numpy(), expected)


def test_unknown_sizes_stand_beside_known_ones():
    """Where Paddle compares -1 with them and refuses; a run holds the real ones against each other."""
    with fluid.program_guard(fluid.Program()):
        known, unknown = fluid.data("k", [2, 3]), fluid.data("u", [None, 3])
        assert layers.stack([known, unknown]).shape == (2, 2, 3)
        assert layers.mul(known, fluid.data("w", [None, 4])).shape == (2, 4)


def test_a_loss_of_labels_none_of_which_counts_is_zero():
    def build() -> list:
        x, label = fluid.data("x", [2, 3]), fluid.data("label", [2, 3])
        x.stop_gradient = False
        loss = layers.sigmoid_cross_entropy_with_logits(x, label, ignore_index=-1, normalize=True)
        return [loss, *fluid.gradients(loss, x)]

    for value in run(build, {"x": np.ones((2, 3), "float32"), "label": -np.ones((2, 3), "float32")}):
        np.testing.assert_array_equal(value, np.zeros((2, 3), "float32"))


@pytest.mark.parametrize("dims", [[1], [0, 4], [1, 2, 3]])
def test_tensors_of_five_dimensions_are_reduced(rng, dims):
    x = rng.random((2, 1, 3, 4, 5), np.float32)
    functions = {"reduce_sum": np.sum, "reduce_mean": np.mean, "reduce_max": np.max, "reduce_prod": np.prod}
    found = run(lambda: [getattr(layers, name)(fluid.data("x", x.shape), dims) for name in functions], {"x": x})
    for out, function in zip(found, functions.values(), strict=True):
        np.testing.assert_allclose(np.array(out), function(x, tuple(dims)), rtol=1e-5)


def test_sequences_of_sequences_are_joined_in_their_innermost_rows():
    rows = fluid.create_lod_tensor(np.float32([[0], [1], [2], [3], [4], [5]]), [[2, 1], [2, 1, 3]], fluid.CPUPlace())

    def build() -> list:
        x = fluid.data("x", [None, 1], lod_level=2)
        return [layers.sequence_concat([x, x])]

    (joined,) = run(build, {"x": rows})
    assert joined.recursive_sequence_lengths() == [[2, 1], [4, 2, 6]]
    assert np.array(joined)[:, 0].tolist() == [0, 1, 0, 1, 2, 2, 3, 4, 5, 3, 4, 5]


def test_the_momentum_of_a_batch_norm_may_be_a_variable(rng):
    x = rng.random((4, 3), np.float32)

    def build():
        momentum = layers.fill_constant([1], "float32", 0.25)
        out = layers.batch_norm(fluid.data("x", [4, 3]), momentum=momentum, moving_mean_name="mean")
        return [out, "mean"]

    np.testing.assert_allclose(np.array(run(build, {"x": x})[1]), 0.75 * x.mean(0), rtol=1e-5)
