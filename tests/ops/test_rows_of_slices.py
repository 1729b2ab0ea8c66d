"""The last rows of rows whose number only the run knows, and their gradients."""

from __future__ import annotations

import numpy as np

import fluidjax as fluid
from fluidjax import layers


def test_the_last_of_cut_rows_take_their_gradients(rng: np.random.Generator) -> None:
    with fluid.scope_guard(fluid.Scope()), fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 3], lod_level=1)
        x.stop_gradient = False
        offset, length = (fluid.data(name, [2, 1], "int64") for name in ("offset", "length"))
        last = layers.slice(layers.sequence_slice(x, offset, length), [0], [-2], [100])
        gradient = fluid.gradients([layers.reduce_sum(layers.square(last))], [x])[0]
        rows = rng.standard_normal((7, 3)).astype("float32")
        feed = {
            "x": fluid.create_lod_tensor(rows, [[4, 3]], fluid.CPUPlace()),
            "offset": np.array([[1], [0]]),
            "length": np.array([[2], [1]]),  # rows 1 and 2 of the first sequence, row 4 of all
        }
        cut, got = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[last, gradient], return_numpy=False)
    np.testing.assert_array_equal(np.array(cut), rows[[2, 4]])
    expected = np.zeros_like(rows)
    expected[[2, 4]] = 2 * rows[[2, 4]]
    np.testing.assert_allclose(np.array(got), expected, rtol=1e-6)


def test_rows_reshaped_to_computed_sizes_are_no_sequences(rng: np.random.Generator) -> None:
    with fluid.scope_guard(fluid.Scope()), fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 3], lod_level=1)
        x.stop_gradient = False
        width = layers.fill_constant([1], "int32", 3)
        plain, kept = layers.reshape(x, [-1, width]), layers.reshape(x, [-1, 3])
        gradient = fluid.gradients([layers.reduce_mean(layers.square(plain))], [x])[0]
        rows = rng.standard_normal((7, 3)).astype("float32")
        feed = {"x": fluid.create_lod_tensor(rows, [[4, 3]], fluid.CPUPlace())}
        found = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[plain, kept, gradient], return_numpy=False)
    assert (plain.lod_level, kept.lod_level) == (0, 1)
    assert (found[0].lod(), found[1].lod()) == ([], [[0, 4, 7]])
    np.testing.assert_array_equal(np.array(found[0]), rows)
    np.testing.assert_allclose(np.array(found[2]), 2 * rows / rows.size, rtol=1e-6)
