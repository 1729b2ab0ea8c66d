"""What a script's last process loaded first, the next one loads beside its start; and it computes the same bits."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

import fluidjax as fluid
from fluidjax.execution.executables import background, kept, preload
from fluidjax.execution.executables.executable import Executable
from fluidjax.execution.executables.store import Store
from tests.executor.test_kept import DENSE, IDS, Process, assert_same_bits, trained, with_small_table

Load = Callable[..., Executable]
COMMAND = preload._command


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store of the test's own, for a script of two processors whose executables are worth loading ahead."""
    monkeypatch.setattr(preload, "_command", lambda: ("train.py", ()))
    monkeypatch.setattr(preload, "processors", lambda: 2)
    monkeypatch.setattr(preload, "WORTH", 0)
    monkeypatch.setattr(preload, "_preload", None)
    kept.keep_in(str(tmp_path))
    found = kept.store()
    assert found is not None
    yield found
    kept.keep_in(None)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The thread of each load."""
    threads: list[str] = []
    load: Load = Executable.loaded

    def noted(*given: Any) -> Executable:
        threads.append(threading.current_thread().name)
        return load(*given)

    monkeypatch.setattr(Executable, "loaded", staticmethod(noted))
    return threads


def begun(store: Store, monkeypatch: pytest.MonkeyPatch) -> preload.Preload:
    """What a new process begins."""
    monkeypatch.setattr(preload, "_preload", None)
    preload.begin(store, jax.devices("cpu")[0])
    found: Any = preload._preload
    return found


def test_the_next_process_loads_beside_its_start(
    store: Store, loads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(store, monkeypatch)
    first = Process(trained, [DENSE], 2)
    begun(store, monkeypatch)
    background.wait()
    assert loads and set(loads) == {"fluidjax-beside"}
    count = len(loads)
    second = Process(trained, [DENSE], 2)
    assert second.compilations == 0 and len(loads) == count
    assert_same_bits(first, second)


def test_a_run_that_comes_first_loads_for_itself(
    store: Store, loads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(store, monkeypatch)
    first = Process(trained, [DENSE], 2)
    later = []
    monkeypatch.setattr(background, "submit", lambda task, **lasting: later.append(task))
    begun(store, monkeypatch).begin()
    second = Process(trained, [DENSE], 2)
    assert loads and set(loads) == {threading.current_thread().name}
    assert second.compilations == 0
    assert_same_bits(first, second)
    count = len(loads)
    for task in later[1:]:
        task()  # finds that there is nothing left to do
    assert len(loads) == count


def test_nothing_is_loaded_for_another_command_line(
    store: Store, loads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(store, monkeypatch)
    Process(trained, [DENSE], 2)
    monkeypatch.setattr(preload, "_command", lambda: ("train.py", ("--layers", "3")))
    begun(store, monkeypatch)
    background.wait()
    assert loads == []


def test_what_loads_quickly_is_not_loaded_ahead(
    store: Store, loads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preload, "WORTH", 1 << 30)
    begun(store, monkeypatch)
    Process(trained, [DENSE], 2)
    begun(store, monkeypatch)
    background.wait()
    assert loads == []


def test_a_script_that_takes_something_else_is_known_by_that(
    store: Store, loads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(store, monkeypatch)
    Process(trained, [DENSE], 2)
    begun(store, monkeypatch)
    Process(with_small_table, [IDS], 2)
    loads.clear()
    begun(store, monkeypatch)
    background.wait()
    count = len(loads)
    assert count and Process(with_small_table, [IDS], 2).compilations == 0 and len(loads) == count


def test_an_entry_that_is_gone_is_compiled_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(store, monkeypatch)
    first = Process(trained, [DENSE], 2)
    for path, size in store.sizes().items():
        if size > 1000:  # not the list of what was taken
            path.unlink()
    begun(store, monkeypatch)
    background.wait()
    second = Process(trained, [DENSE], 2)
    assert second.compilations > 0
    assert_same_bits(first, second)


def test_the_first_run_of_an_executor_begins(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    begins: list[Any] = []
    monkeypatch.setattr(preload, "begin", lambda *given: begins.append(given))
    x = fluid.layers.ones([2], "float32")
    for wanted in (False, True):
        fluid.set_flags({"FLAGS_background_compilation": wanted})
        executor = fluid.Executor(fluid.CPUPlace())
        for _ in range(2):
            executor.run(fetch_list=[x])
    fluid.set_flags({"FLAGS_background_compilation": False})
    assert begins == [(store, jax.devices("cpu")[0])]


def test_on_one_processor_and_without_a_script_nothing_begins(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as alone:
        alone.setattr(preload, "processors", lambda: 1)
        assert begun(store, alone) is None
    monkeypatch.setattr(preload, "_command", COMMAND)
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    assert begun(store, monkeypatch) is None
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "train.py", raising=False)
    assert begun(store, monkeypatch) is not None
