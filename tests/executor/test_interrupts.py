"""Whatever is raised in a run, and whenever: the scope holds the state from before it or the state from after it."""

import _thread
import collections
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest

from fluidjax.execution.lasting.resident import ResidentState
from fluidjax.execution.steps import traceable
from lowering.engine.interrupts import uninterrupted
from tests.conftest import seed_of
from tests.executor.conftest import Net

# An interrupt that arrives in a finalizer is printed and dropped, as Python has it.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("interrupts_arrive"),
]


SHAPES = {"a": [3], "b": [3], "p": [40, 2], "q": [40, 2]}
FEED = {"x": np.ones((2, 3), np.float32)}


def counting(last: bool = False) -> Net:
    """Every run adds 1 to each variable; with ``last``, also writes one that it does not read."""
    net = Net()
    for name, shape in SHAPES.items():
        net.parameter(name, np.zeros(shape, np.float32))
        net.op("scale", {"X": [name]}, name, bias=1.0)
    net.data("x", [-1, 3])
    net.op("elementwise_add", {"X": ["x"], "Y": ["a"]}, "out")
    if last:
        net.parameter("last", np.zeros([40, 2], np.float32))
        net.op("assign", {"X": ["p"]}, "last")
    return net


def held(net: Net) -> float:
    """The one number that all variables hold."""
    values = {name: net.get(name) for name in net.scope.local_var_names() if net.scope.find_var(name)._holder}
    numbers = {float(x) for value in values.values() for x in value.reshape(-1)}
    assert len(numbers) == 1, f"two states side by side: {sorted(numbers)}"
    return numbers.pop()


class Steps:
    """Traces a run line by line, in this package instruction by instruction; makes an interrupt due at one of them.

    The interrupt arrives as one from the keyboard does: the interpreter runs its handler at the next place where it
    looks for signals. (A missing key of the dict calls ``interrupt_main``, without such a place after the call.)
    """

    def __init__(self, at: int = -1) -> None:
        self.count, self.at = 0, at
        self.instructions = 0  # Python 3.12 traces none, only lines
        self._due = collections.defaultdict(_thread.interrupt_main)
        self.watch: Callable[[], bool] = bool
        self.taken_at = -1

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes = "fluidjax/execution" in frame.f_code.co_filename
        if self.taken_at < 0 and self.watch():
            self.taken_at = self.count
        self.count += 1
        self.instructions += event == "opcode"
        if self.count - 1 == self.at:
            return self._due[self.at]
        return self

    def run(self, net: Net) -> bool:
        """Whether the run was interrupted."""
        try:
            sys.settrace(self)
            try:
                net.run(FEED, fetch=["out"])
            finally:
                sys.settrace(None)
        except KeyboardInterrupt:
            return True
        return False


@pytest.mark.parametrize("last", [False, True])
def test_interrupted_at_each_instruction(last):
    net = counting(last)
    for _ in range(6):
        net.run(FEED, fetch=["out"])
    dry = Steps()
    dry.run(net)
    assert dry.count > 100
    interrupted, outcomes = 0, set()
    for at in range(0, dry.count, 1 + 4 * last):
        before = held(net)
        net.run(FEED, fetch=["out"])  # reading may have changed how the next run goes
        interrupted += Steps(at).run(net)
        outcomes.add(held(net) - before)
    assert interrupted > dry.count / (2 + 8 * last)
    assert outcomes == {1, 2} if dry.instructions else outcomes <= {1, 2}
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("last", [False, True])
def test_interrupted_in_the_first_run(last, monkeypatch):
    """The first run is jax's slow path: a lot of Python between the computation and its return."""
    states: list[ResidentState] = []
    monkeypatch.setattr(ResidentState, "__init__", _noting(ResidentState.__init__, states))

    def first(at: int) -> tuple[Net, Steps, bool]:
        states.clear()
        net, steps = counting(last), Steps(at)
        steps.watch = lambda: bool(states) and hasattr(states[-1], "kept") and taken(states[-1])
        return net, steps, steps.run(net)

    first(-1)  # a process's very first run also imports and looks up what later ones find
    _, dry, _ = first(-1)
    assert 0 < dry.taken_at < dry.count - 50
    draw = random.Random(seed_of("test_interrupted_in_the_first_run"))
    places = [dry.taken_at + i for i in range(0, 12, 3)]
    places += draw.sample(range(dry.taken_at, dry.count - 50), 3) + draw.sample(range(dry.count // 2, dry.taken_at), 2)
    outcomes = set()
    for at in places:
        net, _, interrupted = first(at)
        outcomes.add((interrupted, held(net)))
        net.run(FEED)
    assert outcomes == {(True, 1.0)}


def taken(state: ResidentState) -> bool:
    return any(buffer.is_deleted() for buffer in state.replaced)


def _noting(function: Callable[..., None], seen: list[Any]) -> Callable[..., None]:
    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        seen.append(self)
        function(self, *args, **kwargs)

    return noted


@pytest.fixture
def alarm() -> Iterator[None]:
    """SIGALRM raises, as a user's own time limit does."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("last", [False, True])
def test_interrupted_at_random_moments(alarm, last):
    net = counting(last)
    for _ in range(4):
        net.run(FEED)
    draw = random.Random(seed_of(f"test_interrupted_at_random_moments {last}"))
    interrupts = 0
    for _ in range(300):
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-5, 4e-4))
                for _ in range(30):
                    net.run(FEED, fetch=["out"])
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            interrupts += 1
        held(net)
    assert interrupts > 200


def test_interrupted_from_a_thread():
    net = counting()
    draw = random.Random(seed_of("test_interrupted_from_a_thread"))
    interrupts = 0
    for _ in range(40):
        go, delay = threading.Event(), draw.uniform(0, 1e-3)
        thread = threading.Thread(target=lambda e=go, s=delay: (e.wait(), time.sleep(s), _thread.interrupt_main()))
        thread.start()
        try:
            try:
                go.set()
                while thread.is_alive():
                    net.run(FEED, fetch=["out"])
            finally:
                thread.join()
        except KeyboardInterrupt:
            interrupts += 1
            thread.join()
        held(net)
    assert interrupts > 20


def test_all_handlers_wait_and_are_restored():
    """In the order of their numbers, as the interpreter itself runs them."""
    ran: list[int] = []
    before = {n: signal.signal(n, lambda number, _: ran.append(number)) for n in (signal.SIGUSR1, signal.SIGINT)}
    handlers = {n: signal.getsignal(n) for n in before}
    try:

        def critical() -> list[int]:
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGINT)
            return list(ran)

        assert uninterrupted(critical) == []
        assert ran == [signal.SIGUSR1, signal.SIGINT]
        assert {n: signal.getsignal(n) for n in before} == handlers
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize("runs", [0, 3])
def test_a_step_without_memory_leaves_the_state(runs):
    """XLA takes the buffers before it knows that the rest of a step does not fit."""
    net = counting()
    net.data("huge", [-1, 1])
    net.op("expand", {"X": ["huge"]}, "wide", expand_times=[1, 1 << 30])
    net.op("cumsum", {"X": ["wide"]}, "wide2", axis=1)
    net.op("reduce_max", {"X": ["wide2"]}, "max")
    for _ in range(runs):
        net.run(FEED | {"huge": np.ones((0, 1), np.float32)})
    with pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED"):
        net.run(FEED | {"huge": np.ones((1 << 14, 1), np.float32)}, fetch=["max"])
    assert held(net) == runs


@pytest.mark.parametrize("runs", [0, 1, 3])
def test_an_error_from_anywhere_in_a_step_leaves_the_state(runs, monkeypatch):
    net = counting(last=True)
    for _ in range(runs):
        net.run(FEED)

    def broken(self: Any, ops: Any, env: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(traceable.Runner, "run_ops", broken)
        with pytest.raises(MemoryError):
            net.run({"x": np.ones((5, 3), np.float32)})
    if runs:
        assert held(net) == runs
    net.run({"x": np.ones((5, 3), np.float32)})
    assert held(net) == runs + 1
