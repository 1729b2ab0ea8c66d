"""State that a first run adds or leaves in another form: the step is compiled once all the same."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.execution.runs.mode import interpret_mode
from tests.executor.conftest import ragged

layers = fluid.layers
X = np.linspace(0, 1, 24, dtype=np.float32).reshape(6, 4)
Y = np.array([0, 1, 1, 0, 1, 0]).reshape(-1, 1)
TAGS = ragged(np.array([0, 1, 0, 0, 1, 1]).reshape(-1, 1), [4, 2])


def classifier() -> tuple[Any, Any, Any]:
    x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1], "int64")
    probability = layers.fc(x, 2, act="softmax", param_attr=fluid.initializer.Constant(0.1))
    return probability, y, layers.mean(layers.cross_entropy(probability, y))


def area() -> list[Any]:
    probability, y, loss = classifier()
    value, batch_value, _ = layers.auc(probability, y, num_thresholds=31, slide_steps=0)
    fluid.optimizer.Adam(0.1).minimize(loss)
    return [loss, value, batch_value]


def shuffled() -> list[Any]:
    x = fluid.data("x", [None, 4])
    rows = fluid.contrib.layers.shuffle_batch(x, seed=3)
    loss = layers.mean(layers.fc(rows, 2, act="tanh", param_attr=fluid.initializer.Constant(0.1)) * rows[:, :2])
    fluid.optimizer.SGD(0.1).minimize(loss)
    return [loss, rows]


def reshaped() -> list[Any]:
    _, _, loss = classifier()
    table = layers.create_global_var([2, 3], 0.5, "float32", persistable=True, name="table")
    layers.assign(table * 2, table)
    layers.reshape(table, [6], inplace=True)
    loss = loss + layers.mean(table)
    fluid.optimizer.SGD(0.1).minimize(loss)
    return [loss, layers.reduce_sum(table)]


def not_reset() -> list[Any]:
    _, _, loss = classifier()
    tags = fluid.data("tags", [None, 1], "int64", lod_level=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluator = fluid.evaluator.ChunkEvaluator(tags, tags, "IOB", 1)
    fluid.optimizer.SGD(0.1).minimize(loss)
    return [loss, *evaluator.states]


def two_forms_to_the_end() -> list[Any]:
    _, _, loss = classifier()
    table = layers.create_global_var([2, 3], 0.5, "float32", persistable=True, name="table")
    doubled = layers.scale(table, 2.0)
    layers.reshape(table, [6], inplace=True)
    fluid.optimizer.SGD(0.1).minimize(loss)
    return [loss, doubled]


class Run:
    def __init__(self, build: Callable[[], list[Any]]):
        self.main, self.startup = fluid.Program(), fluid.Program()
        with fluid.unique_name.guard(), fluid.program_guard(self.main, self.startup):
            self.fetches = build()
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.scope = self.begin()

    def begin(self) -> fluid.Scope:
        scope = fluid.Scope()
        self.exe.run(self.startup, scope=scope)
        return scope

    def step(self, **feed: Any) -> list[np.ndarray]:
        names = {v.name for v in self.main.list_vars()}
        feed = {n: v for n, v in {"x": X, "y": Y, "tags": TAGS, **feed}.items() if n in names}
        return self.exe.run(self.main, feed=feed, fetch_list=self.fetches, scope=self.scope)

    def state(self) -> dict[str, np.ndarray]:
        variables = {v.name: self.scope.find_var(v.name) for v in self.main.list_vars() if v.persistable}
        tensors = {n: v.get_tensor() for n, v in variables.items() if v is not None}
        return {n: np.array(t) for n, t in tensors.items() if t._is_initialized()}

    @property
    def compilations(self) -> int:
        return sum(p.compilations for p in self.main.__dict__["_prepared_cache"].values())


def assert_equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.shape == other[name].shape and value.dtype == other[name].dtype, name
        np.testing.assert_allclose(value, other[name], rtol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("build", "compilations"),
    [(area, 1), (shuffled, 1), (reshaped, 1), (not_reset, 1), (two_forms_to_the_end, 2)],
)
def test_the_step_is_compiled_once_and_does_what_its_ops_do(build: Callable[[], list[Any]], compilations: int) -> None:
    whole, stepwise = Run(build), Run(build)
    for _ in range(3):
        found = whole.step()
        with interpret_mode():
            wanted = stepwise.step()
        for one, other in zip(found, wanted, strict=True):
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        assert_equal(whole.state(), stepwise.state())
    assert whole.compilations == compilations
    # From the start in another scope, and on in the first one.
    first, whole.scope = whole.scope, whole.begin()
    stepwise.scope = stepwise.begin()
    found = whole.step()
    with interpret_mode():
        wanted = stepwise.step()
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
    assert_equal(whole.state(), stepwise.state())
    whole.scope = first
    whole.step()
    assert whole.compilations == compilations or compilations > 1


@pytest.mark.parametrize("build", [area, reshaped, not_reset])
def test_a_first_step_that_fails_leaves_the_state(build: Callable[[], list[Any]]) -> None:
    run = Run(build)
    before = run.state()
    with pytest.raises(fluid.core.EnforceNotMet, match="the value 2 of 'y'"):
        run.step(y=Y + 1)
    assert_equal(run.state(), before)
    calm = Run(build)
    np.testing.assert_array_equal(run.step()[0], calm.step()[0])
    assert_equal(run.state(), calm.state())


def test_a_first_step_that_finds_a_fault_itself_leaves_the_state() -> None:
    def build() -> list[Any]:
        fetches = area()
        return [*fetches, layers.embedding(fluid.data("ids", [None, 1], "int64") + 0, [2, 3])]

    run = Run(build)
    before = run.state()
    with pytest.raises(fluid.core.EnforceNotMet, match="the value 2 of"):
        run.step(ids=Y + 1)
    assert_equal(run.state(), before)
    run.step(ids=Y)
    assert run.compilations == 1


def test_a_state_of_the_size_of_the_batch_is_followed() -> None:
    def build() -> list[Any]:
        x = fluid.data("x", [None, 4])
        last = layers.create_global_var([1, 4], 0.0, "float32", persistable=True, name="last")
        total = layers.reduce_sum(last)
        layers.assign(x, last)
        return [total]

    run = Run(build)
    totals = [run.step(x=np.full((rows, 4), rows, np.float32))[0].item() for rows in (2, 3, 2, 3, 3)]
    assert totals == [0, 16, 36, 16, 36]
