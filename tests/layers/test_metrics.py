"""fluid.metrics, average and evaluator: results, states, and complaints."""

import warnings

import numpy as np
import pytest

import fluidjax as fluid

M = fluid.metrics
PREDS = np.array([[0.9], [0.6], [0.2], [0.7]])
TRUTH = np.array([[1], [0], [1], [1]])


def test_precision_and_recall():
    both = M.CompositeMetric()
    both.add_metric(M.Precision())
    both.add_metric(M.Recall())
    both.update(PREDS, TRUTH)
    assert both.eval() == [2 / 3, 2 / 3]


def test_reset_zeroes_states():
    metric = M.Precision()
    metric.update(PREDS, TRUTH)
    assert metric.get_config() == {"name": "Precision", "states": {"tp": 2, "fp": 1}}
    metric.reset()
    assert metric.get_config()["states"] == {"tp": 0, "fp": 0}
    assert metric.eval() == 0.0


def test_accuracy_is_weighted():
    metric = M.Accuracy()
    metric.update(0.5, 2)
    metric.update(np.array([1.0]), 6)
    assert metric.eval() == pytest.approx(0.875)


def test_chunks():
    metric = M.ChunkEvaluator()
    metric.update(10, 9, 8)
    precision, recall, f1 = metric.eval()
    assert (precision, recall) == (0.8, 8 / 9)
    assert f1 == pytest.approx(2 * 0.8 * (8 / 9) / (0.8 + 8 / 9))


def test_edit_distance():
    metric = M.EditDistance("edits")
    metric.update(np.array([[0.0], [2.0], [4.0]]), 3)
    assert metric.eval() == (2.0, pytest.approx(2 / 3))
    metric.update(np.array([[6.0], [0.0]]), np.array([2]))  # as layers.edit_distance counts them
    mean, wrong = metric.eval()
    np.testing.assert_allclose(np.concatenate([mean, wrong]), [2.4, 0.6])


def test_auc_matches_pair_counting(rng):
    scores, labels = rng.random(200), rng.integers(0, 2, 200)
    metric = M.Auc("auc", num_thresholds=2**14)
    metric.update(np.stack([1 - scores, scores], 1), labels[:, None])
    pos, neg = scores[labels == 1], scores[labels == 0]
    assert metric.eval() == pytest.approx(np.mean(pos[:, None] > neg[None]), abs=1e-3)
    metric.reset()
    assert metric.eval() == 0.0


WRONG = {
    "no data": (lambda: M.Accuracy().eval(), ValueError, "no data"),
    "no sequences": (lambda: M.EditDistance("x").eval(), ValueError, "no data"),
    "list": (lambda: M.Precision().update([1], TRUTH), ValueError, "numpy ndarray"),
    "negative": (lambda: M.Accuracy().update(1.0, -1), ValueError, "negative"),
    "base": (lambda: M.MetricBase("x").update(1, 2), TypeError, "extend it"),
    "no metric": (lambda: M.CompositeMetric().add_metric(3), ValueError, "MetricBase"),
    "range": (lambda: M.Auc("x").update(np.array([[0.0, 1.5]]), np.array([[1]])), ValueError, r"\[0, 1\]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_message(name):
    act, kind, text = WRONG[name]
    with pytest.raises(kind, match=text):
        act()


def test_weighted_average():
    with pytest.warns(Warning, match="deprecated"):
        average = fluid.average.WeightedAverage()
    with pytest.raises(ValueError, match="no data"):
        average.eval()
    average.add(np.array([1.0, 2.0]), 2)
    average.add(np.array([4.0, 5.0]), 1)
    np.testing.assert_allclose(average.eval(), [2.0, 3.0])


def lod_ids(values, lengths):
    return fluid.create_lod_tensor(np.array(values, np.int64).reshape(-1, 1), [lengths], fluid.CPUPlace())


def test_edit_distance_evaluator_accumulates():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = fluid.data("x", [None, 1], "int64", lod_level=1)
        y = fluid.data("y", [None, 1], "int64", lod_level=1)
        evaluator = fluid.evaluator.EditDistance(x, y)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(startup)
        evaluator.reset(exe)
        for truth in ([1, 2, 3, 4], [1, 2, 9, 9]):
            exe.run(main, feed={"x": lod_ids([1, 2, 3, 4], [2, 2]), "y": lod_ids(truth, [2, 2])})
        mean, share = evaluator.eval(exe)
    # Normalised by the reference's length: one sequence of four is wrong, wholly.
    assert (float(mean), float(share)) == (pytest.approx(0.25), pytest.approx(0.25))


def test_chunk_evaluator_accumulates():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tags = [fluid.data(name, [None, 1], "int64", lod_level=1) for name in ("guess", "truth")]
        evaluator = fluid.evaluator.ChunkEvaluator(*tags, chunk_scheme="IOB", num_chunk_types=1)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        evaluator.reset(exe)
        for truth in ([0, 1, 2, 0], [0, 2, 2, 2]):  # 3 chunks in truth, 4 guessed, 2 of them right
            exe.run(main, feed={"guess": lod_ids([0, 1, 2, 0], [2, 2]), "truth": lod_ids(truth, [2, 2])})
        precision, recall, f1 = map(float, evaluator.eval(exe))
    assert (precision, recall, f1) == (pytest.approx(2 / 4), pytest.approx(2 / 3), pytest.approx(4 / 7))


def test_auc_layer_without_a_window():
    """slide_steps=0: both results are of all batches, the statistics become [1, bins]; recorded from Paddle 1.8.5."""
    L, draw = fluid.layers, np.random.RandomState(0)
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup):
        p, y = fluid.data("p", [None, 2]), fluid.data("y", [None, 1], "int64")
        area, batch_area, states = L.auc(p, y, slide_steps=0, num_thresholds=7)
    assert [s.shape for s in states] == [(1, 8)] * 4
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup, scope=scope)
    for expected in (1.0, 0.4714285714285714, 0.537037037037037):
        score = draw.uniform(0, 1, (6, 1))
        feed = {"p": np.concatenate([1 - score, score], 1).astype("float32"), "y": draw.randint(0, 2, (6, 1))}
        got = exe.run(main, feed=feed, fetch_list=[area, batch_area, *states], scope=scope)
        np.testing.assert_allclose(got[:2], [[expected]] * 2, rtol=1e-12)
    np.testing.assert_array_equal(got[2], [[1, 0, 1, 2, 0, 3, 2, 0]])
    np.testing.assert_array_equal(got[3], [[0, 0, 1, 3, 2, 2, 1, 0]])


def test_accuracy_of_ragged_rows_carries_their_lod():
    L = fluid.layers
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x, y = fluid.data("x", [None, 2], lod_level=1), fluid.data("y", [None, 1], "int64", lod_level=1)
        accuracy = L.accuracy(x, y)
        double = accuracy * 2.0
    place = fluid.CPUPlace()
    feed = {
        "x": fluid.create_lod_tensor(np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]], "float32"), [[1, 2]], place),
        "y": fluid.create_lod_tensor(np.array([[1], [0], [0]]), [[1, 2]], place),
    }
    got = fluid.Executor(place).run(main, feed=feed, fetch_list=[accuracy, double], return_numpy=False)
    assert [v.lod() for v in got] == [[[0, 1, 3]]] * 2
    np.testing.assert_allclose(np.concatenate([np.array(v) for v in got]), [2 / 3, 4 / 3], rtol=1e-6)


def test_precision_recall_accumulates_in_place():
    main, scope = fluid.Program(), fluid.Scope()
    block = main.global_block()
    with fluid.program_guard(main, fluid.Program()):
        indices, labels = fluid.data("indices", [None, 1], "int32"), fluid.data("labels", [None, 1], "int32")
        probabilities = fluid.data("probabilities", [None, 1], "float32")
        states = block.create_var(name="states", dtype="float32", shape=[2, 4], persistable=True)
        metrics = [block.create_var(name=name, dtype="float64") for name in ("batch", "all")]
        slots = {"MaxProbs": [probabilities], "Indices": [indices], "Labels": [labels], "StatesInfo": [states]}
        results = {"BatchMetrics": [metrics[0]], "AccumMetrics": [metrics[1]], "AccumStatesInfo": [states]}
        block.append_op("precision_recall", slots, results, {"class_number": 2})
    scope.var("states").get_tensor().set(np.zeros((2, 4), "f"), fluid.CPUPlace())
    feed = {"indices": np.array([[0], [1], [1]], "int32"), "labels": np.array([[0], [1], [0]], "int32")}
    feed["probabilities"] = np.ones((3, 1), "f")
    for times in (1, 2):
        batch, whole = fluid.Executor(fluid.CPUPlace()).run(main, feed, metrics, scope=scope)
        np.testing.assert_array_equal(
            np.array(scope.find_var("states").get_tensor()), times * np.array([[1, 0, 1, 1], [1, 1, 1, 0]])
        )
        np.testing.assert_array_equal(batch, whole)
