"""``paddle.nn``, ``paddle.imperative`` and the other modules of Paddle 2's alpha."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import paddle
from fluidjax.paddle import imperative, nn

functional = nn.functional
IMAGES = np.linspace(-1, 1, 2 * 4 * 5 * 5).reshape(2, 4, 5, 5).astype("float32")
SCORES = np.array([[1.0, 2.0, 0.5], [0.1, 0.2, 3.0]], "float32")
LABELS = np.array([[1], [0]], "int64")


@pytest.mark.parametrize("name", "nn nn.functional tensor imperative io framework optimizer metric complex".split())
def test_every_name_is_there(name: str) -> None:
    module = importlib.import_module(f"fluidjax.paddle.{name}")
    assert [n for n in module.__all__ if not hasattr(module, n)] == []
    assert [n for n in paddle.__all__ if not hasattr(paddle, n)] == []


@pytest.mark.parametrize("kind", ["conv2d", "conv2d_transpose"])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_with_given_filters_are_those_of_layers(kind: str, groups: int) -> None:
    channels = [4, 6 // groups] if "transpose" in kind else [6, 4 // groups]
    filters = np.linspace(-1, 1, int(np.prod(channels)) * 9).reshape(*channels, 3, 3).astype("float32")
    bias = np.arange(6, dtype="float32")
    given = {"stride": 2, "padding": 1, "groups": groups, "act": "relu"}
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [2, 4, 5, 5])
        by_layer = getattr(fluid.layers, kind)(
            x, 6, filter_size=3, param_attr=_holding(filters), bias_attr=_holding(bias), **given
        )
        found = getattr(functional, kind)(x, fluid.layers.assign(filters), fluid.layers.assign(bias), **given)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fluid.default_startup_program())
        expected, static = exe.run(feed={"x": IMAGES}, fetch_list=[by_layer, found])
    np.testing.assert_allclose(static, expected, rtol=1e-5, atol=1e-5)
    with fluid.dygraph.guard():
        kinds = {"conv2d": nn.Conv2D, "conv2d_transpose": nn.Conv2DTranspose}
        layer = kinds[kind](4, 6, 3, param_attr=_holding(filters), bias_attr=_holding(bias), **given)
        eager = layer(imperative.to_variable(IMAGES)).numpy()
    np.testing.assert_allclose(eager, expected, rtol=1e-5, atol=1e-5)


def _holding(array: np.ndarray) -> fluid.ParamAttr:
    return fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(array))


def test_convolutions_of_volumes_and_channels_last() -> None:
    with imperative.guard():
        volume = imperative.to_variable(np.ones((1, 2, 4, 4, 4), "float32"))
        assert nn.Conv3D(2, 3, 2)(volume).shape == [1, 3, 3, 3, 3]
        assert nn.Conv3DTranspose(2, 3, 2, stride=2)(volume).shape == [1, 3, 8, 8, 8]
        last = imperative.to_variable(IMAGES.transpose(0, 2, 3, 1).copy())
        assert nn.Conv2D(4, 3, 3, padding="SAME", data_format="NHWC", bias_attr=False)(last).shape == [2, 5, 5, 3]
        with pytest.raises(ValueError, match="groups"):
            nn.Conv2D(4, 3, 3, groups=3)


def _cross_entropy(weights: np.ndarray) -> np.ndarray:
    exponents = np.exp(SCORES)
    rows = -np.log(exponents / exponents.sum(1, keepdims=True))[[0, 1], LABELS[:, 0]]
    return rows * weights[LABELS[:, 0]]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(reduction: str, weighted: bool) -> None:
    weights = np.array([0.5, 2.0, 1.0] if weighted else [1, 1, 1], "float32")
    rows = _cross_entropy(weights)
    expected = {"mean": rows.sum() / weights[LABELS[:, 0]].sum(), "sum": rows.sum(), "none": rows}[reduction]
    with imperative.guard():
        loss = nn.CrossEntropyLoss(imperative.to_variable(weights) if weighted else None, reduction)
        found = loss(imperative.to_variable(SCORES), imperative.to_variable(LABELS[:, 0])).numpy()
    np.testing.assert_allclose(found, np.reshape(expected, found.shape), rtol=1e-5)
    assert found.shape == (np.shape(expected) or (1,))
    with pytest.raises(ValueError, match="reduction"):
        nn.CrossEntropyLoss(reduction="median")


@pytest.mark.parametrize("kind", ["CrossEntropyLoss", "NLLLoss"])
@pytest.mark.parametrize("rest", [(), (4,), (2, 3)])
def test_losses_of_scores_at_each_place(kind: str, rest: tuple[int, ...]) -> None:
    rng = np.random.RandomState(0)
    scores, labels = rng.uniform(-1, 1, (2, 3, *rest)), rng.randint(0, 3, (2, *rest))
    if kind == "NLLLoss":
        scores -= np.log(np.exp(scores).sum(1, keepdims=True))
    weights = np.array([0.5, 2.0, 1.0])
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 3, *rest], "float64")
        y = fluid.data("y", [None, *rest], "int64")
        w = fluid.data("w", [3], "float64")
        made = [getattr(nn.loss, kind)(w, r, ignore_index=1)(x, y) for r in ("none", "sum", "mean")]
        exe = fluid.Executor(fluid.CPUPlace())
        none, total, mean = exe.run(feed={"x": scores, "y": labels, "w": weights}, fetch_list=made)
    log = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    counted = np.where(labels == 1, 0, weights[labels])
    expected = -np.take_along_axis(log, labels[:, None], 1)[:, 0] * counted
    np.testing.assert_allclose(none, expected, rtol=1e-6)
    np.testing.assert_allclose([*total, *mean], [expected.sum(), expected.sum() / counted.sum()], rtol=1e-6)


def test_cross_entropy_leaves_rows_out() -> None:
    with imperative.guard():
        loss = nn.CrossEntropyLoss(ignore_index=0)
        found = loss(imperative.to_variable(SCORES), imperative.to_variable(LABELS)).numpy()
    np.testing.assert_allclose(found, _cross_entropy(np.ones(3))[:1], rtol=1e-5)


def test_activations_and_resizing() -> None:
    with imperative.guard():
        x = imperative.to_variable(SCORES)
        np.testing.assert_allclose(nn.ReLU()(-x).numpy(), np.maximum(-SCORES, 0))
        np.testing.assert_allclose(nn.Sigmoid()(x).numpy(), 1 / (1 + np.exp(-SCORES)), rtol=1e-6)
        exponents = np.exp(SCORES)
        np.testing.assert_allclose(
            nn.LogSoftmax()(x).numpy(), np.log(exponents / exponents.sum(1, keepdims=True)), 1e-5
        )
        larger = nn.UpSample(out_shape=[10, 10], resample="NEAREST")(imperative.to_variable(IMAGES))
        assert larger.shape == [2, 4, 10, 10]


def test_hierarchical_sigmoid_is_that_of_layers() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, label = fluid.data("x", [2, 3]), fluid.data("label", [2, 1], "int64")
        weights = np.linspace(-1, 1, 15).reshape(5, 3).astype("float32")
        by_layer = fluid.layers.hsigmoid(x, label, 6, param_attr=_holding(weights), bias_attr=False)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fluid.default_startup_program())
        (expected,) = exe.run(feed={"x": SCORES, "label": LABELS}, fetch_list=[by_layer])
    with imperative.guard():
        layer = nn.HSigmoid(3, 6, param_attr=_holding(weights), bias_attr=False)
        found = layer(imperative.to_variable(SCORES), imperative.to_variable(LABELS)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_net_trains_by_the_names_of_the_alpha() -> None:
    def losses() -> list[float]:
        paddle.manual_seed(7)
        net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3))
        optimizer = paddle.optimizer.Adam(0.05, parameter_list=net.parameters())
        found = []
        for _ in range(5):
            loss = nn.CrossEntropyLoss()(net(imperative.to_variable(SCORES)), imperative.to_variable(LABELS))
            loss.backward()
            optimizer.minimize(loss)
            net.clear_gradients()
            found.append(float(loss.numpy()[0]))
        return found

    with imperative.guard():
        first = losses()
        assert first[-1] < first[0]
        assert losses() == first


def test_a_program_by_the_names_of_the_alpha(tmp_path: Any) -> None:
    main, startup = paddle.Program(), paddle.Program()
    with paddle.program_guard(main, startup), paddle.scope_guard(fluid.Scope()):
        x = paddle.data("x", [None, 3], "float32")
        loss = paddle.mean(functional.fc(functional.dropout(x, 0.0), 1))
        (pair,) = [p for p in paddle.append_backward(loss) if "w" in p[0].name]
        exe = paddle.Executor(paddle.CPUPlace())
        exe.run(startup)
        (grad,) = exe.run(main, feed={"x": SCORES}, fetch_list=[pair[1]])
        np.testing.assert_allclose(grad, SCORES.mean(0)[:, None], rtol=1e-5)
        paddle.io.save_inference_model(str(tmp_path), ["x"], [loss], exe, main)
        _, feeds, _ = paddle.io.load_inference_model(str(tmp_path), exe)
        assert feeds == ["x"] and not paddle.in_imperative_mode()
