"""Threads on one scope: those that change it take turns, those that read it see whole steps."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.execution.steps import traceable
from tests.executor.test_interrupts import FEED, SHAPES, counting
from tests.executor.test_resident import over, prepared_of


@pytest.fixture(autouse=True)
def quick_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(*functions: Callable[[], None]) -> None:
    """Run in a thread each; the first error of any is raised."""
    errors: list[BaseException] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(f,)) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


def times(count: int, function: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(count):
            function()

    return run


def reading(scope: fluid.Scope):
    """What an evaluator does: a program that computes from all variables. They hold one number, so all is zero."""
    net = over(scope, ("elementwise_sub", {"X": ["a"], "Y": ["b"]}, "ab", {}))
    net.op("elementwise_sub", {"X": ["p"], "Y": ["q"]}, "pq")
    net.op("scale", {"X": ["p"]}, "p2", scale=1.0)

    def check() -> None:
        ab, pq, p = net.run(fetch=["ab", "pq", "p2"])
        assert not ab.any() and not pq.any() and p.min() == p.max()

    return check


def test_trainers_take_turns():
    net = counting()
    net.run(FEED)
    together(*[times(150, lambda: net.run(FEED, fetch=["out"]))] * 4)
    assert all(net.get(name).min() == net.get(name).max() == 601 for name in SHAPES)


@pytest.mark.parametrize("last", [False, True])
def test_an_evaluator_beside_a_trainer(last):
    net = counting(last)
    checks = [reading(net.scope), reading(net.scope)]
    together(times(150, lambda: net.run(FEED, fetch=["out"])), *(times(150, check) for check in checks))
    assert net.get("a")[0] == 150


def test_a_tensor_is_read_whole_beside_a_trainer():
    net = counting()

    def read() -> None:
        for name in SHAPES:
            value = net.get(name)
            assert value.min() == value.max()

    together(times(400, lambda: net.run(FEED, fetch=["out"])), times(200, read), times(200, read))


def test_a_checkpoint_beside_a_trainer_is_one_step(tmp_path):
    net = counting()
    net.run(FEED)
    steps = set()

    def save() -> None:
        with fluid.scope_guard(net.scope):
            fluid.io.save_persistables(net.executor, str(tmp_path), net.program)
        with pytest.warns(UserWarning, match="not found"):
            state = fluid.io.load_program_state(str(tmp_path))
        numbers = {float(x) for value in state.values() for x in value.reshape(-1)}
        assert len(numbers) == 1 and len(state) == len(SHAPES)
        steps.update(numbers)

    stop = threading.Event()

    def train() -> None:
        while not stop.is_set():
            net.run(FEED, fetch=["out"])

    def save_often() -> None:
        try:
            times(20, save)()
        finally:
            stop.set()

    together(train, save_often)
    assert len(steps) > 1


def test_a_fetched_parameter_is_of_one_step():
    net = counting()

    def run() -> None:
        a, p, out = net.run(FEED, fetch=["a", "p", "out"])
        assert a.min() == a.max() == p.min() == p.max() == out[0, 0] - 1

    together(times(150, run), times(150, run), times(150, lambda: net.run(FEED)))


def test_a_value_set_beside_a_trainer_stays():
    """A learning rate that another thread lowers: every step sees the old or the new one, and later ones the new."""
    net = over(fluid.Scope())
    for name in ("rate", "sum"):
        net.parameter(name, np.zeros(3, np.float32))
    net.op("elementwise_add", {"X": ["sum"], "Y": ["rate"]}, "sum")
    for step in range(100):
        together(
            times(5, lambda: net.run()), lambda s=step: net.set("rate", np.full(3, s, np.float32)), lambda: net.run()
        )
        before = net.get("sum")
        net.run()
        np.testing.assert_array_equal(net.get("sum") - before, np.full(3, step, np.float32))


def test_inference_runs_side_by_side(monkeypatch):
    """Two runs of one program are inside the compiled function at the same time."""
    net = over(fluid.Scope())
    net.data("x", [-1, 3])
    net.parameter("rate", np.ones(3, np.float32))
    net.op("elementwise_add", {"X": ["x"], "Y": ["rate"]}, "y")
    for _ in range(2):
        net.run(FEED, fetch=["y"])
    prepared = next(p for p in net.program.__dict__["_prepared_cache"].values())
    state = prepared._compilations.state()
    both = threading.Barrier(2, timeout=120)
    [(form, ready)] = state.compiled.items()
    call = ready.executable.call
    slow = SimpleNamespace(call=lambda *args: (both.wait(), call(*args))[1], arrived=ready.executable.arrived)
    state.compiled[form] = ready._replace(executable=slow)
    together(*[lambda: net.run(FEED, fetch=["y"])] * 2)
    assert prepared_of(net.program).compilations == 1


def test_one_program_over_a_scope_for_each_thread():
    net = counting()

    def own() -> None:
        mine = counting()
        mine.program = net.program
        for step in range(60):
            mine.run({"x": np.ones((2 + step % 3, 3), np.float32)}, fetch=["out"])
        assert mine.get("p")[0, 0] == 60

    together(own, own, own)


def test_a_program_is_compiled_once_for_all_threads(monkeypatch):
    net = counting()
    slow = traceable.Runner.run_ops
    monkeypatch.setattr(traceable.Runner, "run_ops", lambda *args: (time.sleep(0.05), slow(*args))[1])
    together(*[lambda: net.run(FEED, fetch=["out"])] * 4)
    assert net.compilations() == 1


def test_a_run_inside_a_host_op():
    """A py_func may run another program over the same scope."""
    net = counting()
    inner = reading(net.scope)

    def call(x):
        inner()
        return x

    with fluid.program_guard(net.program):
        out = net.block.create_var(name="called", dtype="float32", shape=[3])
        fluid.layers.py_func(call, net.block.var("a"), out)
    together(times(3, lambda: net.run(FEED, fetch=["called"])), times(20, inner))
