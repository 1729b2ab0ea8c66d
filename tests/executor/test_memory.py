"""A step that never ran is run on a copy of the state only where its memory may be lacking."""

import jax
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.execution import memory, whole
from fluidjax.execution.executable import Executable


@pytest.fixture
def executable() -> Executable:
    return Executable(jax.jit(lambda a: a @ a).lower(np.ones((256, 256), np.float32)).compile())


def test_an_executable_knows_what_it_allocates(executable):
    assert 256 * 256 * 4 <= executable.allocates() < 2**20


@pytest.mark.parametrize(("free", "lacks"), [(2**30, False), (300_000, True), (None, True)])
def test_a_quarter_of_what_is_free_is_enough(executable, monkeypatch, free, lacks):
    monkeypatch.setattr(memory, "_free", lambda device: free)
    assert memory.may_lack_memory(executable) is lacks


def test_free_memory_ends_at_the_limit_of_the_process(monkeypatch):
    resource = pytest.importorskip("resource")
    whole_machine = memory._free_on_host()
    if whole_machine is None:
        pytest.skip("a machine that does not say what memory it has")
    used = int(memory._STATM.read_text().split()[0]) * resource.getpagesize()
    limit = used + 2**24
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limit, limit))
    assert memory._free_on_host() <= 2**24 < whole_machine


@pytest.mark.parametrize("scarce", [False, True])
def test_a_first_step_copies_its_state_only_then(monkeypatch, scarce):
    asked: list[bool] = []

    def lacking(executable: Executable) -> bool:
        asked.append(memory.may_lack_memory(executable))
        return asked[-1]

    if scarce:
        monkeypatch.setattr(memory, "_free", lambda device: 0)
    monkeypatch.setattr(whole, "may_lack_memory", lacking)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 3], "float32"), 1))
        fluid.optimizer.SGD(0.1).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        feed = {"x": np.ones((2, 3), np.float32)}
        first, second, third = (float(exe.run(main, feed=feed, fetch_list=[loss])[0][0]) for _ in range(3))
    assert asked == [scarce]
    assert first > second > third
