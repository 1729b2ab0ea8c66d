"""The contrib layers of click-through, ranking and tree models, run."""

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.contrib import layers


def run(build, feed, times=1):
    """What the variables that ``build`` returns hold after ``times`` runs of its program."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        found = build()
    scope = fluid.Scope()
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(scope):
        exe.run(startup)
        for _ in range(times):
            result = exe.run(main, feed=feed, fetch_list=list(found))
    return result


def test_ctr_metric_bundle_adds_up_over_batches(rng):
    x = rng.random((4, 1), dtype=np.float32)
    y = np.array([[0], [1], [1], [0]], np.float32)

    def build():
        return layers.ctr_metric_bundle(fluid.data("x", [-1, 1]), fluid.data("y", [-1, 1]))

    expected = [((x - y) ** 2).sum(), abs(x - y).sum(), x.sum(), (1 / (1 + np.exp(-x))).sum(), y.sum(), 4]
    found = run(build, {"x": x, "y": y}, times=2)
    np.testing.assert_allclose(np.concatenate(found), 2 * np.array(expected), rtol=1e-5)


def test_partial_columns(rng):
    x, y = (rng.random((2, 5), dtype=np.float32) for _ in range(2))

    def build():
        pair = [fluid.data("x", [2, 5]), fluid.data("y", [2, 5])]
        return layers.partial_concat(pair, 1, 2), layers.partial_sum(pair, start_index=3)

    side, total = run(build, {"x": x, "y": y})
    np.testing.assert_array_equal(side, np.concatenate([x[:, 1:3], y[:, 1:3]], 1))
    np.testing.assert_allclose(total, x[:, 3:] + y[:, 3:], rtol=1e-6)


def test_shuffle_batch_permutes_rows_differently_each_run():
    x = np.arange(64, dtype=np.float32).reshape(32, 2)

    def build():
        return (layers.shuffle_batch(fluid.data("x", [-1, 2]), seed=3),)

    (once,) = run(build, {"x": x})
    (twice,) = run(build, {"x": x}, times=2)
    for found in (once, twice):
        np.testing.assert_array_equal(found[np.argsort(found[:, 0])], x)
    assert (once != twice).any()


def test_fused_elemwise_activation(rng):
    x, y = (rng.standard_normal((2, 3)).astype(np.float32) for _ in range(2))

    def build():
        pair = fluid.data("x", [2, 3]), fluid.data("y", [2, 3])
        outer = layers.fused_elemwise_activation(*pair, "relu,elementwise_add")
        return outer, layers.fused_elemwise_activation(*pair, ["elementwise_mul", "scale"], scale=2.0)

    relu, product = run(build, {"x": x, "y": y})
    np.testing.assert_allclose(relu, np.maximum(x + y, 0), rtol=1e-6)
    np.testing.assert_allclose(product, x * (2 * y), rtol=1e-6)


def test_the_gradient_of_the_value_between_is_bound():
    """Though nothing computes it and the backward pass needs none: Paddle's maker asks no no-grad set about outputs."""
    x = fluid.data("x", [2, 3])
    loss = fluid.layers.mean(layers.fused_elemwise_activation(fluid.layers.fc(x, 3), x, ["elementwise_add", "relu"]))
    fluid.backward.append_backward(loss)
    ops = {op.type: op for op in fluid.default_main_program().global_block().ops}
    (between,) = ops["fused_elemwise_activation"].output("IntermediateOut")
    assert ops["fused_elemwise_activation_grad"].output("IntermediateOut@GRAD") == [between + "@GRAD"]


def test_rank_attention_adds_the_chosen_blocks():
    x = np.array([[1, 2], [3, 4]], np.float32)
    # Both rows are shown together; row 0 has rank 1, row 1 has rank 2.
    offset = np.array([[1, 1, 0, 2, 1], [2, 1, 0, 2, 1]], np.int32)
    weight = np.arange(8, dtype=np.float32).reshape(8, 1)

    def build():
        attr = fluid.ParamAttr("w", initializer=fluid.initializer.NumpyArrayInitializer(weight))
        return (layers.rank_attention(fluid.data("x", [-1, 2]), fluid.data("r", [-1, 5], "int32"), [8, 1], attr, 2),)

    (found,) = run(build, {"x": x, "r": offset})
    blocks = weight.reshape(2, 2, 2)
    expected = [[sum(x[j] @ blocks[i, j] for j in range(2))] for i in range(2)]
    np.testing.assert_allclose(found, expected)


def test_multiclass_nms2_gives_positions():
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 1.01], [2, 2, 3, 3]]], np.float32)
    scores = np.array([[[0, 0, 0], [0.9, 0.8, 0.7]]], np.float32)

    def build():
        inputs = fluid.data("b", [1, 3, 4]), fluid.data("s", [1, 2, 3])
        return layers.multiclass_nms2(*inputs, 0.1, 10, 10, normalized=False, return_index=True)

    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        found = build()
    exe = fluid.Executor(fluid.CPUPlace())
    out, index = exe.run(main, feed={"b": boxes, "s": scores}, fetch_list=list(found), return_numpy=False)
    np.testing.assert_array_equal(np.array(index).ravel(), [0, 2])
    np.testing.assert_allclose(np.array(out)[:, 1], [0.9, 0.7], rtol=1e-6)


def _tree(name, values):
    return fluid.ParamAttr(name, initializer=fluid.initializer.NumpyArrayInitializer(np.array(values, np.int32)))


def test_tdm_child_reads_the_tree():
    # Node 1 is the root, 2 and 3 its leaves with items 10 and 11.
    tree = [[0, 0, 0, 0, 0], [0, 0, 0, 2, 3], [10, 1, 1, 0, 0], [11, 1, 1, 0, 0]]

    def build():
        return layers.tdm_child(fluid.data("x", [-1, 1], "int32"), 4, 2, _tree("tree", tree))

    child, leaf = run(build, {"x": np.array([[1], [2]], np.int32)})
    np.testing.assert_array_equal(child.reshape(2, 2), [[2, 3], [0, 0]])
    np.testing.assert_array_equal(leaf.reshape(2, 2), [[1, 1], [0, 0]])


def test_tdm_sampler_samples_each_layer():
    travel = [[1, 3], [1, 4], [2, 5], [2, 6]]
    nodes = [[1], [2], [3], [4], [5], [6]]

    def build():
        x = fluid.data("x", [-1, 1], "int32")
        found = layers.tdm_sampler(x, [1, 2], [2, 4], 4, _tree("travel", travel), _tree("layer", nodes))
        return [var for column in found for var in column]

    top, bottom, top_label, bottom_label, top_mask, bottom_mask = run(build, {"x": np.array([[0], [3]], np.int32)})
    np.testing.assert_array_equal(top[:, 0, 0], [1, 2])
    np.testing.assert_array_equal(bottom[:, 0, 0], [3, 6])
    assert all(len(set(row)) == 3 and set(row) <= {3, 4, 5, 6} for row in bottom[:, :, 0].tolist())
    np.testing.assert_array_equal(top[:, 1, 0], [2, 1])
    np.testing.assert_array_equal(top_label[0, :, 0], [1, 0])
    np.testing.assert_array_equal(bottom_label[0, :, 0], [1, 0, 0])
    assert top_mask.all() and bottom_mask.all()


PYRAMID_TABLE = [
    0, 1, 0, 1, 2, 3, 6, 5, 6, 5, 4, 7, 8, 11, 14, 15, 14, 15, 16, 15, 18, 19, 20, 23,
]  # fmt: skip


def _pyramid(ids_need_gradient, is_training=1):
    """A program that sums the embeddings of n-grams, weighted; its startup program."""
    main, startup = fluid.Program(), fluid.Program()
    table = fluid.initializer.NumpyArrayInitializer(np.arange(24, dtype=np.float32).reshape(24, 1))
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = fluid.data("ids", [-1, 1], "int32", lod_level=1)
        ids.stop_gradient = not ids_need_gradient
        attr = fluid.ParamAttr("table", initializer=table)
        found = layers.search_pyramid_hash(ids, 8, 20, 3, 4, 0.5, is_training, False, 10, 10, 3, 0.5, attr)
        pooled = fluid.layers.sequence_pool(found, "sum")
        loss = fluid.layers.reduce_sum(fluid.layers.scale(pooled, 2.0))
        fluid.optimizer.SGD(0.1).minimize(loss)
    return main, startup, [found, pooled, loss]


def _train(main, startup, fetches, steps):
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    ids = fluid.create_lod_tensor(np.arange(7, dtype=np.int32).reshape(-1, 1), [[3, 1, 0, 3]], fluid.CPUPlace())
    with fluid.scope_guard(scope):
        exe.run(startup)
        for _ in range(steps):
            results = exe.run(main, feed={"ids": ids}, fetch_list=fetches, return_numpy=False)
        return results, np.array(scope.find_var("table").get_tensor()).ravel()


def test_search_pyramid_hash_trains_its_own_table():
    """Each kept block moves by -lr * 2; numbers of two steps recorded from Paddle 1.8.5, with seed 3."""
    (found, pooled, loss), table = _train(*_pyramid(True), steps=2)
    assert found.lod() == [[0, 1, 2, 3, 5]]
    assert np.array(found)[:, 0].tolist() == [7, 0, 0, 15, 1]
    np.testing.assert_allclose(np.array(pooled)[:, 0], [7, 0, 0, 16])
    np.testing.assert_allclose(np.array(loss), [500])
    assert table.tolist() == PYRAMID_TABLE


def test_search_pyramid_hash_keeps_its_table_when_ids_stop_gradients():
    _, table = _train(*_pyramid(False), steps=1)
    np.testing.assert_array_equal(table, np.arange(24))


def test_search_pyramid_hash_for_inference():
    (found, *_), table = _train(*_pyramid(False, is_training=0), steps=1)
    assert found.lod() == [[0, 3, 4, 5, 8]]
    rows = np.array(found)
    assert not rows[3:5].any() and set(rows[[0, 1, 2, 5, 6, 7], 0] / 0.5) <= set(table[:20])


def test_arguments_that_do_not_fit():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [-1, 2])
        with pytest.raises(ValueError, match="list of 2 op types"):
            layers.fused_elemwise_activation(x, x, ["relu"])
        with pytest.raises(ValueError, match="= 18"):
            layers.rank_attention(x, x, [4, 1], None, 3)
        with pytest.raises(ValueError, match="layer 1 has 2 nodes"):
            layers.tdm_sampler(x, [0, 2], [1, 2], 2)
        with pytest.raises(ValueError, match="has shape"):
            layers.ctr_metric_bundle(x, fluid.data("y", [-1, 1]))
        with pytest.raises(ValueError, match="distribute_update_vars has 'b'"):
            attr = fluid.ParamAttr("a")
            layers.search_pyramid_hash(x, 4, 8, 2, 4, 0, 0, 0, 0, -1, 1, 0.1, attr, distribute_update_vars=["b"])
        with pytest.warns(UserWarning, match="list of Variables"):
            layers.partial_concat(x, 0, 1)
