"""Corners of ops on ragged rows, and on ties and integers, beside what Paddle 1.8.5 does."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid

pytestmark = pytest.mark.usefixtures("compiled_quickly")

F = np.float32


def ragged(rows, *lengths):
    return fluid.create_lod_tensor(rows, list(lengths), fluid.CPUPlace())


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
@pytest.mark.parametrize("first", ["x", "y"])
def test_logic_of_ragged_rows_and_a_vector_goes_by_their_number(name: str, first: str) -> None:
    x, y = fluid.data("x", [None, 1], "bool", lod_level=1), fluid.data("y", [None], "bool")
    out = getattr(fluid.layers, name)(*((x, y) if first == "x" else (y, x)))
    a, b = np.array([True, False, True]), np.array([True, True, False])
    feed = {"x": ragged(a.reshape(3, 1), [2, 1]), "y": b}
    (found,) = fluid.Executor().run(feed=feed, fetch_list=[out], return_numpy=False)
    assert found.lod() == ([[0, 2, 3]] if first == "x" else [])
    np.testing.assert_array_equal(found, getattr(np, name)(a, b).reshape((3, 1) if first == "x" else 3))


def test_a_beam_search_over_the_inner_level_has_as_many_sources_as_that_level():
    block = fluid.default_main_program().global_block()
    rows = {
        "pre_ids": np.array([[1], [2], [3], [0]]),
        "pre_scores": np.array([[0.1], [0.2], [0.3], [0.4]], F),
        "ids": np.array([[7, 6, 5], [6, 5, 2], [7, 1, 2], [2, 5, 6]]),
        "scores": np.array([[0.63, 0.95, 0.94], [0.45, 0.73, 0.74], [0.31, 0.12, 0.44], [0.39, 0.53, 0.85]], F),
    }
    given = {name: fluid.data(name, [None, v.shape[1]], v.dtype, lod_level=2) for name, v in rows.items()}
    outs = {name: block.create_var(name=name) for name in ("selected_ids", "selected_scores", "parent_idx")}
    block.append_op("beam_search", given, outs, {"level": 1, "beam_size": 2, "end_id": 2})
    feed = {name: ragged(v, [2, 2], [1, 1, 1, 1]) for name, v in rows.items()}
    ids, scores, parents = fluid.Executor().run(feed=feed, fetch_list=list(outs.values()), return_numpy=False)
    assert ids.lod() == scores.lod() == [[0, 1, 2, 3, 4], [0, 2, 2, 4, 6]]
    np.testing.assert_array_equal(np.ravel(ids), [6, 5, 2, 7, 6, 5])
    np.testing.assert_array_equal(np.ravel(parents), [0, 0, 2, 2, 3, 3])


@pytest.mark.parametrize(
    ("axis", "stack", "shape"), [(-1, False, (3, 2, 4)), (-2, False, (3, 4, 2)), (-1, True, (3, 2, 2, 2))]
)
def test_the_axis_of_a_joined_array_may_be_counted_from_the_last(axis, stack, shape):
    x, y = (fluid.data(name, [3, 2, 2]) for name in "xy")
    x.stop_gradient = y.stop_gradient = False
    array = fluid.layers.array_write(x, fluid.layers.fill_constant([1], "int64", 0))
    fluid.layers.array_write(y, fluid.layers.fill_constant([1], "int64", 1), array)
    out, sizes = fluid.layers.tensor_array_to_tensor(array, axis, use_stack=stack)
    gradients = fluid.gradients(fluid.layers.reduce_sum(out * out), [x, y])
    feed = {name: np.arange(12, dtype=F).reshape(3, 2, 2) + shift for name, shift in (("x", 0), ("y", 20))}
    joined, counts, *slopes = fluid.Executor().run(feed=feed, fetch_list=[out, sizes, *gradients])
    np.testing.assert_array_equal(joined, (np.stack if stack else np.concatenate)([feed["x"], feed["y"]], axis))
    assert joined.shape == shape and counts.tolist() == ([1, 1] if stack else [2, 2])
    for name, slope in zip("xy", slopes, strict=True):
        np.testing.assert_array_equal(slope, 2 * feed[name])


# --- where the answer is not that of 1.8.5 -----------------------------------------------------------------------


def run_op(type: str, rows, attrs, outs, fetch=None):
    block = fluid.default_main_program().global_block()
    feed, given = {}, {}
    for slot, value in rows.items():
        lod = value.recursive_sequence_lengths() if isinstance(value, fluid.LoDTensor) else []
        array = np.array(value)
        given[slot] = fluid.data(slot.lower(), array.shape, array.dtype, lod_level=len(lod))
        feed[slot.lower()] = value
    made = {slot: block.create_var(name=f"out_{slot}") for slot in outs}
    block.append_op(type, given, made, attrs)
    found = fluid.Executor().run(feed=feed, fetch_list=list(made.values())[:fetch], return_numpy=False)
    return [np.array(v) for v in found]


def test_a_fused_convolution_of_a_context_ahead_is_the_convolution():
    rows, weight = np.array([[1], [2], [3]], F), np.array([[1], [10]], F)
    given = {"X": ragged(rows, [3]), "Filter": weight, "Bias": np.zeros((1, 1), F)}
    out, contexts = run_op(
        "fusion_seqconv_eltadd_relu", given, {"contextLength": 2, "contextStart": 1}, ["Out", "ColMat"]
    )
    np.testing.assert_array_equal(contexts, [[2, 3], [3, 0], [0, 0]])
    np.testing.assert_array_equal(out, [[32], [3], [0]])


def test_an_attention_lstm_may_leave_its_cell_as_it_is():
    """With weights of zero each gate is 1/2, and h is half of c."""
    given = {"X": ragged(np.ones((2, 1), F), [2]), "C0": np.full((1, 1), 4, F), "AttentionWeight": np.zeros((2, 1), F)}
    given |= {"LSTMWeight": np.zeros((2, 4), F), "LSTMBias": np.array([[0, 0, 0, 1]], F)}
    outs = ["Hidden", "Cell", "AttentionedX", "AttentionFCOut", "LSTMX", "LSTMOUT"]
    hidden, cell = run_op("attention_lstm", given, {"cell_activation": "identity"}, outs, fetch=2)
    wanted = 2 + np.tanh(1) / 2
    np.testing.assert_allclose(cell, [[wanted], [wanted / 2 + np.tanh(1) / 2]], rtol=1e-6)
    np.testing.assert_allclose(hidden, cell / 2, rtol=1e-6)


def test_the_first_of_equal_values_is_on_top():
    x = np.array([[-0.5, 2, -1.5, 2], [0, -0.5, 1.5, 1.5]])
    _, places = run_op("top_k", {"X": x}, {"k": 2}, ["Out", "Indices"])
    np.testing.assert_array_equal(places, [[1, 3], [2, 3]])


@pytest.mark.parametrize("type", ["roi_align", "prroi_pool"])
def test_regions_of_integers_are_pooled_in_floats(type: str) -> None:
    x, rois = np.arange(16, dtype=np.int32).reshape(1, 1, 4, 4), ragged(np.array([[0, 0, 3, 3]], np.int32), [1])
    (found,) = run_op(type, {"X": x, "ROIs": rois}, {"pooled_height": 1, "pooled_width": 1}, ["Out"])
    np.testing.assert_allclose(found.reshape(-1), [7.5])


def test_what_an_optimizer_updates_has_no_offsets():
    block = fluid.default_main_program().global_block()
    shapes = {"Param": [3, 2], "Grad": [3, 2], "LearningRate": [1], "Velocity": [None, 2]}
    given = {slot: fluid.data(slot, shape, lod_level=int(slot == "Velocity")) for slot, shape in shapes.items()}
    outs = {"ParamOut": given["Param"], "VelocityOut": given["Velocity"]}
    block.append_op("momentum", given, outs, {"mu": 0.5})
    feed = {slot: np.ones([n or 3 for n in shape], F) for slot, shape in shapes.items()}
    feed["Velocity"] = ragged(feed["Velocity"], [1, 2])
    found = fluid.Executor().run(feed=feed, fetch_list=list(outs.values()), return_numpy=False)
    assert [v.lod() for v in found] == [[], []]
    np.testing.assert_array_equal(found[1], np.full((3, 2), 1.5))


def test_the_only_row_stays_where_no_dim_to_squeeze_is_named():
    out = fluid.layers.squeeze(fluid.data("x", [None, 1, 3], lod_level=1), [])
    for count in (1, 2):
        rows = np.ones((count, 1, 3), F)
        (found,) = fluid.Executor().run(feed={"x": ragged(rows, [0, count])}, fetch_list=[out], return_numpy=False)
        assert found.lod() == [[0, 0, count]] and np.array(found).shape == (count, 3)
