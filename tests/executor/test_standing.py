"""Feeds in memory that stays: what runs leave does not depend on it, and what is fed is looked at as ever."""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.execution.runs import settled
from fluidjax.execution.steps.in_place import MOST
from tests.executor.conftest import Net

RUNS = 6  # the first compiles, the second settles, the fourth finds memory for its feeds


def summing() -> Net:
    """Adds up what is fed, returns it, and keeps the last of it."""
    net = Net()
    net.data("x", [-1, 3])
    net.parameter("total", np.zeros((2, 3), np.float32))
    net.parameter("last", np.zeros((2, 3), np.float32))
    net.op("elementwise_add", {"X": ["total"], "Y": ["x"]}, "total")
    net.op("scale", {"X": ["last"]}, "zeros", scale=0.0)
    net.op("elementwise_add", {"X": ["zeros"], "Y": ["x"]}, "last")
    net.op("assign", {"X": ["x"]}, "copy")
    return net


def fed(number: int, dtype: type = np.float32) -> np.ndarray:
    return np.full((2, 3), number, dtype)


def standing(net: Net) -> object:
    (prepared,) = net.program.__dict__["_prepared_cache"].values()
    return prepared._compilations.state().standing


def test_what_was_fetched_and_kept_does_not_change_with_later_feeds() -> None:
    net = summing()
    fetched = [net.run({"x": fed(n)}, ["copy", "x"], return_numpy=False) for n in range(RUNS)]
    assert standing(net).ran  # type: ignore[attr-defined]
    assert [np.array(value).max() for pair in fetched for value in pair] == [n for n in range(RUNS) for _ in "ab"]
    kept = net.scope.find_var("last").get_tensor()
    before = np.array(kept)
    assert before.max() == RUNS - 1
    net.run({"x": fed(40)}, ["copy", "x"])
    assert before.max() == RUNS - 1
    assert np.array(kept).max() == 40
    assert net.get("total").max() == sum(range(RUNS)) + 40


def test_the_callers_array_is_read_in_each_run() -> None:
    net, x = summing(), fed(0)
    for n in range(RUNS):
        x[...] = n
        (copy,) = net.run({"x": x}, ["copy"])
        assert copy.max() == copy.min() == n


@pytest.mark.parametrize("other", [np.full((2, 6), 7, np.float32)[:, ::2], [[7.0] * 3] * 2], ids=["strided", "list"])
def test_other_feeds_between(other: object) -> None:
    net = summing()
    for n in range(RUNS):
        net.run({"x": fed(n)}, ["copy"])
    place = standing(net)
    assert net.run({"x": other}, ["copy"])[0].tolist() == [[7.0] * 3] * 2
    assert net.run({"x": fed(8)}, ["copy"])[0].max() == 8
    assert standing(net) is place
    assert net.get("total").max() == sum(range(RUNS)) + 15


def test_another_shape_gives_the_memory_up() -> None:
    net = summing()
    for n in range(RUNS):
        net.run({"x": fed(n)}, ["copy"])
    for n in range(3):
        assert net.run({"x": np.full((1, 3), n, np.float32)}, ["copy"])[0].tolist() == [[float(n)] * 3]
    assert net.get("total").max() == sum(range(RUNS)) + 3
    assert net.get("last").tolist() == [[2.0] * 3] * 2


def test_large_feeds_are_left_to_xla() -> None:
    net = Net()
    rows = MOST // 12 + 1
    net.data("x", [-1, 3])
    net.parameter("total", np.zeros(3, np.float32))
    net.op("reduce_sum", {"X": ["x"]}, "sum", dim=[0])
    net.op("elementwise_add", {"X": ["total"], "Y": ["sum"]}, "total")
    for _ in range(RUNS):
        net.run({"x": np.ones((rows, 3), np.float32)}, ["sum"])
    assert standing(net) is None
    assert net.get("total").tolist() == [rows * RUNS] * 3


def test_faults_of_feeds_are_found() -> None:
    """A row number that no table has: nothing changes, and a later run goes on."""
    net = Net()
    net.data("ids", [-1, 1], "int64")
    net.parameter("table", np.arange(8, dtype=np.float32).reshape(4, 2))
    net.parameter("total", np.zeros((1, 2), np.float32))
    net.op("lookup_table", {"W": ["table"], "Ids": ["ids"]}, "row")
    net.op("elementwise_add", {"X": ["total"], "Y": ["row"]}, "total")
    for _ in range(RUNS):
        net.run({"ids": np.array([[1]])}, ["row"])
    assert standing(net).ran  # type: ignore[attr-defined]
    with pytest.raises(fluid.core.EnforceNotMet, match="4"):
        net.run({"ids": np.array([[4]])}, ["row"])
    assert net.get("total").tolist() == [[12.0, 18.0]]
    assert net.run({"ids": np.array([[3]])}, ["row"])[0].tolist() == [[6.0, 7.0]]
    assert net.get("total").tolist() == [[18.0, 25.0]]


def test_the_first_run_is_one_without_interrupts_whatever_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    net, deferred = summing(), []

    def run(section: Callable[[], Any], stopped: bool) -> Any:
        deferred.append(section)
        if stopped:
            raise KeyboardInterrupt
        return section()

    for _ in range(4):
        net.run({"x": fed(1)}, ["copy"])
    place = standing(net)
    assert place is not None and not place.ran  # type: ignore[attr-defined]
    before = net.get("total")
    monkeypatch.setattr(settled, "uninterrupted", partial(run, stopped=True))
    with pytest.raises(KeyboardInterrupt):
        net.run({"x": fed(1)}, ["copy"])
    np.testing.assert_array_equal(net.get("total"), before)
    monkeypatch.setattr(settled, "uninterrupted", partial(run, stopped=False))
    for _ in range(2):
        net.run({"x": fed(1)}, ["copy"])
    assert standing(net) is place and len(deferred) == 2
    np.testing.assert_array_equal(net.get("total"), before + 2)


def test_draws_are_those_of_runs_without() -> None:
    def drawn(between: bool) -> list[np.ndarray]:
        net = Net()
        net.program.random_seed = 5
        net.data("x", [-1, 3])
        net.parameter("count", np.zeros(3, np.float32))
        net.op("scale", {"X": ["count"]}, "count", bias=1.0)
        net.op("gaussian_random", {}, "drawn", shape=[2, 3], mean=0.0, std=1.0, seed=0)
        net.op("elementwise_add", {"X": ["x"], "Y": ["drawn"]}, "out")
        x = np.ones((2, 3), np.float32)
        found = [net.run({"x": x.tolist() if between else x}, ["out"])[0] for _ in range(8)]
        assert (standing(net) is None) == between
        return found

    stood, looked_up = drawn(False), drawn(True)
    np.testing.assert_array_equal(stood, looked_up)
    assert len({each.tobytes() for each in stood}) > 1


OVERTAKING = """
import numpy as np
import fluidjax as fluid

x = fluid.data("x", [256, 256])
weight = fluid.layers.create_parameter([256, 256], "float32", default_initializer=fluid.initializer.Constant(1.0))
y = x
for _ in range(12):
    y = fluid.layers.scale(fluid.layers.matmul(y, weight), 1 / 256)
fluid.layers.assign(fluid.layers.elementwise_add(fluid.layers.scale(y, 0.0), weight), weight)
total = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True)
fluid.layers.assign(fluid.layers.elementwise_add(total, fluid.layers.mean(y)), total)
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
for n in range(40):
    exe.run(feed={"x": np.full((256, 256), n, "float32")}, fetch_list=[])
print(float(np.array(fluid.global_scope().find_var(total.name).get_tensor())[0]))
"""


@pytest.mark.parametrize("ahead", [{}, {"JAX_CPU_ENABLE_ASYNC_DISPATCH": "0"}, {"JAX_CPU_ENABLE_ASYNC_DISPATCH": "1"}])
def test_steps_that_xla_computes_later_have_their_own_feeds(ahead: dict[str, str]) -> None:
    """The first ones, whose feeds XLA copies in a thread, and those after them are computed there: nothing waits."""
    environment = {k: v for k, v in os.environ.items() if k != "JAX_CPU_ENABLE_ASYNC_DISPATCH"} | ahead
    done = subprocess.run([sys.executable, "-c", OVERTAKING], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == sum(range(40))


def test_steps_that_take_parts_of_what_they_only_read(rng: np.random.Generator) -> None:
    net, whole = Net(), rng.standard_normal((128, 64)).astype(np.float32)
    net.data("x", [-1, 64])
    net.parameter("total", np.zeros((2, 64), np.float32))
    net.parameter("frozen", whole)
    net.op("slice", {"Input": ["frozen"]}, "half", axes=[0], starts=[64], ends=[128])
    net.op("matmul", {"X": ["x"], "Y": ["half"]}, "product")
    net.op("elementwise_add", {"X": ["total"], "Y": ["product"]}, "total")
    x, total = rng.standard_normal((2, 64)).astype(np.float32), np.zeros((2, 64), np.float32)
    for run in range(2 * RUNS):
        if run == RUNS:
            whole = whole + 1
            net.set("frozen", whole)
        (found,) = net.run({"x": x}, ["product"])
        np.testing.assert_allclose(found, x @ whole[64:], rtol=1e-4, atol=1e-4)
        total += found
    assert standing(net).compiled.parts and standing(net).ran  # type: ignore[attr-defined]
    np.testing.assert_allclose(net.get("total"), total, rtol=1e-5)
