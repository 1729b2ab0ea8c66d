"""Programs of equal content in one process share what was compiled, and nothing else."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.execution.executables import kept
from fluidjax.execution.executables.shared import Shared
from fluidjax.execution.runs.prepared import compilations
from lowering.errors import InvalidArgumentError

layers = fluid.layers
IDS, WRONG = np.array([[0], [3], [7]], np.int64), np.array([[0], [40], [1]], np.int64)


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shared]:
    found = Shared(recent=2)
    monkeypatch.setattr(kept, "shared", found)
    yield found


class Net:
    """An embedding trained by Adam, if it has a rate, in a program and a scope of its own."""

    def __init__(self, weight: float = 1.0, rate: float = 0.1):
        self.main, self.scope = fluid.Program(), fluid.Scope()
        startup = fluid.Program()
        self.main.random_seed = startup.random_seed = 7
        with fluid.unique_name.guard(), fluid.program_guard(self.main, startup):
            ids = layers.elementwise_add(fluid.data("ids", [None, 1], "int64"), layers.ones([1], "int64"))
            self.loss = layers.mean(layers.dropout(layers.scale(fluid.embedding(ids, [9, 4]), weight), 0.5))
            if rate:
                fluid.optimizer.Adam(rate).minimize(self.loss)
        self.executor = fluid.Executor(fluid.CPUPlace())
        self.executor.run(startup, scope=self.scope)

    def steps(self, ids: np.ndarray = IDS, count: int = 3) -> list[float]:
        run = self.executor.run
        return [float(run(self.main, {"ids": ids}, [self.loss], scope=self.scope)[0]) for _ in range(count)]

    def executable(self) -> Any:
        (prepared,) = self.main.__dict__["_prepared_cache"].values()
        return next(iter(prepared._whole.compiled._ready.values())).executable


def test_an_equal_program_compiles_nothing_and_computes_the_same() -> None:
    one, other = Net(), Net()
    losses = one.steps()
    assert other.steps() == losses and one.steps() == other.steps() != losses
    assert compilations(one.main) == 1 and compilations(other.main) == 0
    assert one.executable() is other.executable()


def test_each_program_is_checked_by_itself() -> None:
    one, other = Net(), Net()
    losses = one.steps()
    with pytest.raises(InvalidArgumentError, match=r"built at: File .*test_shared.py"):
        other.steps(WRONG)
    assert other.steps() == losses, "the step that failed changed nothing"


def test_what_differs_is_compiled() -> None:
    one, other, faster = Net(), Net(weight=2.0, rate=0), Net(rate=0.2)
    assert one.steps() != other.steps() and compilations(other.main) == 1
    assert faster.steps() != one.steps() and compilations(faster.main) == 0, "the rate is a variable's number"


def test_what_prints_is_its_programs_own(capfd: pytest.CaptureFixture[str]) -> None:
    mains = []
    for message in ("seen", "seen"):
        mains.append(fluid.Program())
        with fluid.unique_name.guard(), fluid.program_guard(mains[-1], fluid.Program()):
            total = layers.mean(layers.Print(fluid.data("x", [3], "float32"), message=message))
        fluid.Executor(fluid.CPUPlace()).run(mains[-1], {"x": np.ones(3, np.float32)}, [total])
    assert [compilations(main) for main in mains] == [1, 1]
    assert capfd.readouterr().out.count("seen") == 2


def test_the_last_ones_are_held_and_no_others(shared: Shared) -> None:
    held = []
    for weight in (1.0, 2.0, 3.0):
        net = Net(weight, rate=0)
        net.steps(count=1)
        held.append(weakref.ref(net.executable()))
        del net
    gc.collect()
    assert [ref() is None for ref in held] == [True, False, False]
    again = Net(2.0, rate=0)
    again.steps(count=1)
    assert compilations(again.main) == 0 and again.executable() is held[1]()
    shared.clear()
    again = Net(2.0, rate=0)
    again.steps(count=1)
    assert compilations(again.main) == 1


def test_threads_run_one_executable_beside_each_other() -> None:
    nets = [Net() for _ in range(4)]
    expected = nets.pop().steps(count=30)
    found: dict[int, list[float]] = {}
    threads = [threading.Thread(target=lambda i=i: found.update({i: nets[i].steps(count=30)})) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(found.values()) == [expected] * 3
