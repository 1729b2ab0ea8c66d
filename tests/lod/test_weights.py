"""Weights and padded batches that are themselves fed with a LoD: their rows of padding count nowhere."""

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers

CPU = fluid.CPUPlace()


def ragged(values, lengths):
    return fluid.create_lod_tensor(values, [lengths], CPU)


def run(type, inputs, lods, out, attrs, wrt=()):
    """The output of an op whose inputs of ``lods`` are fed with these lengths, and gradients of the sum of squares."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        data = {}
        for slot, value in inputs.items():
            shape = [None, *value.shape[1:]] if slot in lods else value.shape
            data[slot] = fluid.data(slot, shape, str(value.dtype), lod_level=int(slot in lods))
            data[slot].stop_gradient = False
        block = fluid.default_main_program().current_block()
        result = block.create_var(name="out", dtype="float32" if wrt else "int64", lod_level=1)
        block.append_op(
            type=type, inputs={slot: [var] for slot, var in data.items()}, outputs={out: [result]}, attrs=attrs
        )
        loss = layers.reduce_sum(layers.square(result)) if wrt else None
        fetches = [result, *(fluid.gradients(loss, [data[slot] for slot in wrt]) if wrt else [])]
        feed = {slot: ragged(value, lods[slot]) if slot in lods else value for slot, value in inputs.items()}
        return fluid.Executor(CPU).run(feed=feed, fetch_list=fetches, return_numpy=False)


@pytest.mark.parametrize("lengths", [[3], [1, 2]])
def test_a_ragged_filter_is_as_long_as_its_sequences(rng, lengths):
    inputs = {"X": rng.standard_normal((7, 4)).astype("f4"), "Filter": rng.standard_normal((3, 4)).astype("f4")}
    plain = run("row_conv", inputs, {"X": [3, 4]}, "Out", {}, ["X", "Filter"])
    found = run("row_conv", inputs, {"X": [3, 4], "Filter": lengths}, "Out", {}, ["X", "Filter"])
    for one, other in zip(plain, found, strict=True):
        np.testing.assert_allclose(np.array(other), np.array(one), rtol=1e-6, atol=1e-6)


def test_a_ragged_table_has_a_gradient_of_its_own_rows(rng):
    inputs = {"Ids": np.array([[0], [2], [5], [2]]), "W": rng.standard_normal((6, 5)).astype("f4")}
    attrs = {"combiner": "sum"}
    plain = run("fused_embedding_seq_pool", inputs, {"Ids": [1, 3]}, "Out", attrs, ["W"])
    found = run("fused_embedding_seq_pool", inputs, {"Ids": [1, 3], "W": [2, 4]}, "Out", attrs, ["W"])
    for one, other in zip(plain, found, strict=True):
        np.testing.assert_allclose(np.array(other), np.array(one), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("labelled", [False, True])
def test_the_best_tags_of_a_padded_batch_with_a_lod(rng, labelled):
    inputs = {
        "Emission": rng.standard_normal((3, 4, 3)).astype("f4"),
        "Transition": rng.standard_normal((5, 3)).astype("f4"),
    }
    inputs |= {"Length": np.array([4, 2, 3])} | ({"Label": rng.integers(0, 3, (3, 4))} if labelled else {})
    (plain,) = run("crf_decoding", inputs, {}, "ViterbiPath", {})
    lods = {"Emission": [1, 2]} | ({"Label": [1, 2]} if labelled else {})
    (found,) = run("crf_decoding", inputs, lods, "ViterbiPath", {})
    np.testing.assert_array_equal(np.array(found), np.array(plain))
    assert found.lod() == [[0, 1, 3]] and plain.lod() == []
