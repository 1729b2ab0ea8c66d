"""fluid.profiler: a table and a trace of what ran, and nothing left behind."""

import json
import random
import re

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import profiler
from fluidjax.execution.runs import mode

X = np.ones((2, 3), "f4")


@pytest.fixture
def run():
    """A function that runs a small network once."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        out = fluid.layers.relu(fluid.layers.fc(fluid.layers.fc(fluid.data("x", [None, 3]), size=2), size=2))
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        main = fluid.default_main_program()
        yield lambda: executor.run(main, feed={"x": X}, fetch_list=[out])[0]


def table(text):
    """name -> columns of the printed table."""
    rows = text[text.index("Event ") :].splitlines()[1:]
    return {line.split()[0]: [float(word) for word in line.split()[1:]] for line in rows if line.strip()}


@pytest.mark.parametrize("key", [None, "calls", "total", "max", "min", "ave"])
def test_report(key, run, tmp_path, capsys):
    expected = run()
    path = tmp_path / "profile"
    with profiler.profiler("CPU", key, str(path)):
        for _ in range(3):
            np.testing.assert_allclose(run(), expected, rtol=1e-6)
    found = table(capsys.readouterr().out)
    assert {name: row[0] for name, row in found.items()} == {"mul": 6, "elementwise_add": 6, "relu": 3}
    for calls, total, low, high, mean, _, compiling in found.values():
        assert compiling >= 0
        assert 0 <= low <= mean <= high <= total and total == pytest.approx(calls * mean, rel=1e-3)
    assert sum(row[5] for row in found.values()) == pytest.approx(1, rel=1e-3)
    if key in ("calls", "total"):
        column = [row[0 if key == "calls" else 1] for row in found.values()]
        assert column == sorted(column, reverse=True)
    events = json.loads(path.read_text())["traceEvents"]
    assert [event["name"] for event in events[:5]] == ["mul", "elementwise_add", "mul", "elementwise_add", "relu"]
    assert events[0]["args"]["outputs"].endswith(".tmp_0")


def test_compiling_is_told_apart_and_the_whole_step_too(tmp_path, capsys):
    """What the state is does not change by being profiled compiled."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        size = random.Random(0).randint(40, 400)  # that nothing before has compiled
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, size]), size=1))
        fluid.optimizer.SGD(0.1).minimize(loss)
        executor, step = fluid.Executor(), fluid.layers.autoincreased_step_counter()
        executor.run(fluid.default_startup_program())
        with profiler.profiler("CPU", None, str(tmp_path / "profile")):
            seen = [executor.run(feed={"x": np.ones((2, size), "f4")}, fetch_list=[step])[0][0] for _ in range(2)]
    assert seen == [1, 2]
    said = capsys.readouterr().out
    assert table(said)["mul"][6] > 0, "compiled for the first time"
    (line,) = (line for line in said.splitlines() if line.startswith("Compiled step of "))
    step, compiling = re.fullmatch(r"Compiled step of \d+ ops: (\S+) \(compiling: (\S+)\)", line).groups()
    assert float(step) > 0 and float(compiling) > 0
    events = json.loads((tmp_path / "profile").read_text())["traceEvents"]
    (first,) = (event for event in events if event["name"] == "compile mul")
    ops = [event for event in events if event["name"] == "mul"]
    assert first["tid"] == 1 and first["ts"] + first["dur"] == pytest.approx(ops[0]["ts"])


def test_op_by_op(run, tmp_path, capsys):
    profiler.start_profiler("All", "OpDetail")
    run()
    profiler.stop_profiler(profile_path=str(tmp_path / "profile"))
    assert list(table(capsys.readouterr().out)) == [
        "mul#0",
        "elementwise_add#1",
        "mul#2",
        "elementwise_add#3",
        "relu#4",
    ]


def test_reset_and_restore(run, tmp_path, capsys):
    before = mode.current
    profiler.start_profiler("CPU")
    run()
    profiler.reset_profiler()
    run()
    profiler.stop_profiler("total", str(tmp_path / "profile"))
    assert table(capsys.readouterr().out)["relu"][0] == 1
    assert mode.current is before
    profiler.stop_profiler("total", str(tmp_path / "other"))
    profiler.reset_profiler()
    assert not (tmp_path / "other").exists(), "stopping without starting does nothing"


def test_wrong_arguments():
    with pytest.raises(ValueError, match="The state must be"):
        profiler.start_profiler("X")
    with pytest.raises(ValueError, match="tracer option must be"):
        profiler.start_profiler("CPU", "X")
    with pytest.raises(ValueError, match="The sorted_key must be"):
        profiler.stop_profiler("X")
    if not fluid.core.get_cuda_device_count():
        with pytest.raises(RuntimeError, match="expected an accelerator"), profiler.cuda_profiler("x"):
            pass
