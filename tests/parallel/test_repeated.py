"""Runs under with_data_parallel that ask for the same as the one before look nothing up, and give the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import executor
from fluidjax.execution.devices.several import SeveralDevices
from tests.parallel.nets import mlp, own_rates
from tests.parallel.test_data_parallel import Training, assert_same

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A run that looks up what it is asked for adds to this list."""
    found: list[int] = []
    begin, names = SeveralDevices.begin, executor.fetch_names

    def begun(*args: Any, **options: Any) -> Any:
        found.append(1)
        return begin(*args, **options)

    def named(*args: Any) -> Any:
        found.append(0)
        return names(*args)

    monkeypatch.setattr(SeveralDevices, "begin", begun)
    monkeypatch.setattr(executor, "fetch_names", named)
    return found


def tensors(feed: dict[str, np.ndarray]) -> dict[str, fluid.LoDTensor]:
    found = {}
    for name, array in feed.items():
        found[name] = fluid.LoDTensor()
        found[name].set(array, fluid.CPUPlace())
    return found


def as_fed(feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return feed


@pytest.mark.parametrize("given", [as_fed, tensors])
def test_one_device_trains_as_the_program_alone(given: Callable[..., Any], looks: list[int]) -> None:
    """Batches of any size are alike to one device; a name is the same name as another string."""
    one, plain = Training(mlp, 1), Training(mlp)
    looks.clear()
    for step, rows in enumerate([8, 8, 5, 8]):
        feed, names = one.feed(step, rows), [one.loss.name, one.more[2].name]
        for found, wanted in zip(one.run(given(feed), names), plain.run(feed, names), strict=True):
            np.testing.assert_array_equal(found, wanted)
    assert looks.count(1) == 1 and looks.count(0) == 2  # the first runs of both
    assert_same(one.values(), plain.values(), 0)


@pytest.mark.parametrize("devices", [0, 1])
def test_a_compiled_program_repeats_runs(devices: int, looks: list[int]) -> None:
    training = Training(mlp, devices)
    if not devices:
        training.program = fluid.CompiledProgram(training.main)
    looks.clear()
    losses = [training.run(training.feed(0), return_merged=merged) for merged in (True, True, False, False)]
    assert looks.count(0) == (1 if devices == 0 else 2)
    assert [np.shape(loss[0]) for loss in losses] == [(1,), (1,), (1, 1), (1, 1)]


def test_what_differs_is_looked_up(looks: list[int]) -> None:
    training = Training(mlp, 1)
    feed = training.feed(0)

    def looked(change: Callable[[], Any]) -> bool:
        training.run(feed)
        training.run(feed)
        looks.clear()
        change()
        return bool(looks)

    fetched = training.more[2]
    assert not looked(lambda: training.run(feed))
    assert looked(lambda: training.run(feed, [training.loss, fetched]))
    assert looked(lambda: training.run(feed, [fetched]))
    assert looked(lambda: training.run({k: v.tolist() for k, v in feed.items()}))
    assert looked(lambda: training.run([feed]))
    assert looked(lambda: training.run(feed, return_merged=False))
    assert looked(lambda: training.run(feed, (training.loss,)))
    fluid.set_flags({"FLAGS_check_nan_inf": True})
    try:
        assert looked(lambda: training.run(feed))
    finally:
        fluid.set_flags({"FLAGS_check_nan_inf": False})
    training.main.global_block().append_op("scale", {"X": [fetched]}, {"Out": [fetched]}, {"scale": 2.0})
    before = training.run(feed, [fetched])[0]
    np.testing.assert_allclose(before.sum(1), 2, rtol=1e-5)  # of probabilities


def test_another_scope_or_a_closed_executor_is_refused_as_before() -> None:
    training = Training(mlp, 1)
    feed = training.feed(0)
    training.run(feed)
    training.run(feed)
    with pytest.raises(ValueError, match="different scope"):
        training.executor.run(training.program, feed, [training.loss], scope=fluid.Scope())
    training.executor.close()
    with pytest.raises(RuntimeError, match="closed"):
        training.run(feed)


def test_a_fed_persistable_variable_stays(looks: list[int]) -> None:
    """Each run stores it, and may be fed it for the last time."""
    training = Training(own_rates, 1)
    feed = training.feed(0)
    for rate in (0.5, 0.25):
        training.run({**feed, "rate": np.float32([rate])})
        assert training.value("rate").item() == rate
    before = training.value("w0")
    training.run({"x": feed["x"]})
    assert looks.count(1) == 3 and np.abs(training.value("w0") - before).max() > 0
