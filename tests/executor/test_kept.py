"""What one process compiled, the next one neither traces nor lowers; and it computes the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import fluidjax as fluid
import lowering
from fluidjax.execution.executables import background, draws, kept
from fluidjax.execution.executables.executable import Executable
from fluidjax.execution.executables.store import Store
from lowering.draws import host_bits, host_kernels, random_bits
from lowering.errors import InvalidArgumentError
from lowering.program import PADDLE_2
from tests.executor.conftest import ragged

layers = fluid.layers
ROWS, LENGTHS = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4), [1, 3, 2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    kept.keep_in(str(tmp_path))
    yield tmp_path / kept.FOLDER
    kept.keep_in(None)


class Process:
    """A program built anew and run for some steps, as another process would.

    Attributes:
        results: what each step fetched, and in the end the state.
        compilations: how often something was traced and compiled for it.
    """

    def __init__(self, build: Callable[[], list[Any]], feeds: list[dict[str, Any]], steps: int = 2):
        main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
        main.random_seed = startup.random_seed = 7
        with fluid.unique_name.guard(), fluid.program_guard(main, startup):
            fetches = build()
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup, scope=scope)
        self.results: list[Any] = []
        for i in range(steps):
            feed = feeds[i % len(feeds)]
            fetched = executor.run(main, feed=feed, fetch_list=fetches, scope=scope, return_numpy=False)
            self.results += [(t.lod(), np.array(t)) for t in fetched]
        names = sorted(v.name for v in main.list_vars() if v.persistable and scope.find_var(v.name) is not None)
        self.results += [([], np.array(scope.find_var(n).get_tensor())) for n in names]
        background.wait()  # until all is written
        self.compilations = sum(p.compilations for p in main.__dict__["_prepared_cache"].values())


def assert_same_bits(one: Process, other: Process) -> None:
    assert len(one.results) == len(other.results)
    for (lod, rows), (lod_again, rows_again) in zip(one.results, other.results, strict=True):
        assert lod == lod_again and rows.dtype == rows_again.dtype
        np.testing.assert_array_equal(rows, rows_again)


def plain() -> list[Any]:
    return [layers.matmul(fluid.data("x", [None, 4], "float32"), layers.ones([4, 2], "float32"))]


def trained() -> list[Any]:
    ids, x = fluid.data("ids", [None, 1], "int64"), fluid.data("x", [None, 4], "float32")
    hidden = layers.dropout(layers.concat([layers.embedding(ids, [9, 4]), x], axis=1), 0.3)
    loss = layers.mean(layers.fc(layers.fc(hidden, 5, act="tanh"), 1))
    fluid.optimizer.Adam(0.1).minimize(loss)
    return [loss]


def with_large_table() -> list[Any]:
    """Its ids are computed, and its table is too large for the step to hold back when one of them is wrong."""
    ids = layers.elementwise_add(fluid.data("ids", [None, 1], "int64"), layers.fill_constant([1], "int64", 1))
    loss = layers.mean(fluid.embedding(ids, [40_000, 8]))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return [loss]


def with_small_table() -> list[Any]:
    ids = layers.elementwise_add(fluid.data("ids", [None, 1], "int64"), layers.fill_constant([1], "int64", 1))
    loss = layers.mean(fluid.embedding(ids, [9, 8]))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return [loss]


def recurrent() -> list[Any]:
    x = fluid.data("x", [None, 4], "float32", lod_level=1)
    hidden = layers.dynamic_gru(layers.fc(x, 12), 4)
    loss = layers.mean(layers.sequence_pool(hidden, "max"))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return [loss, hidden]


def exact() -> list[Any]:
    return [layers.reverse(fluid.data("x", [None, 4], "float32", lod_level=1), axis=0)]


def looping() -> list[Any]:
    """Writes more elements than an array has room for at first."""
    i, n = layers.fill_constant([1], "int64", 0), fluid.data("n", [1], "int64")
    total = layers.fill_constant([1], "float32", 0.0)
    array = layers.array_write(total, i)
    more = layers.less_than(i, n)
    loop = layers.While(more)
    with loop.block():
        last = layers.array_read(array, i)
        layers.increment(i)
        layers.array_write(layers.scale(last, 1.0, 1.0), i, array=array)
        layers.less_than(i, n, cond=more)
    return [layers.array_read(array, i)]


def counted() -> list[Any]:
    """The first run finds its statistics in another form than the later ones."""
    x, label = fluid.data("x", [None, 4], "float32"), fluid.data("ids", [None, 1], "int64")
    auc, _, _ = layers.auc(
        layers.softmax(layers.fc(x, 2)), layers.cast(layers.less_than(label, layers.ones([1], "int64")), "int64")
    )
    return [auc]


DENSE = {"ids": np.array([[0], [3], [7]], np.int64), "x": ROWS[:3]}
IDS = {"ids": DENSE["ids"]}
LOD = {"x": ragged(ROWS, LENGTHS)}
CASES: dict[str, tuple[Callable[[], list[Any]], list[dict[str, Any]]]] = {
    "trained": (trained, [DENSE]),
    "with_large_table": (with_large_table, [IDS]),
    "with_small_table": (with_small_table, [IDS]),
    "recurrent": (recurrent, [LOD, {"x": ragged(ROWS[:5], [4, 1])}]),
    "exact": (exact, [LOD]),
    "looping": (looping, [{"n": np.array([40], np.int64)}]),
    "counted": (counted, [DENSE]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_second_process_traces_nothing_and_computes_the_same_bits(name: str) -> None:
    build, feeds = CASES[name]
    first, second = Process(build, feeds, 3), Process(build, feeds, 3)
    assert first.compilations > 0 and second.compilations == 0
    assert_same_bits(first, second)


def test_what_a_step_allocates_is_kept_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    Process(trained, [DENSE])

    def asked(compiled: object) -> None:
        raise AssertionError("XLA is asked what a step allocates")

    monkeypatch.setattr(jax.stages.Compiled, "memory_analysis", asked)
    assert Process(trained, [DENSE]).compilations == 0


def test_a_sort_is_kept_though_it_runs_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> list[Any]:
        return list(layers.argsort(fluid.data("x", [None, 4], "float32"), axis=0))

    tasks: list[Callable[[], object]] = []
    with monkeypatch.context() as late:
        late.setattr(background, "submit", lambda task, lasting=False: tasks.append(task))
        Process(build, [{"x": ROWS}])
    for task in tasks:
        task()
    assert Process(build, [{"x": ROWS}]).compilations == 0


def test_where_an_op_was_traced_is_not_compiled() -> None:
    executable = Executable.of(jax.jit(lambda x: x + 1).trace(np.ones(3, np.float32)))
    assert "source_file" not in executable.compiled.as_text() and "op_name" not in executable.compiled.as_text()


@pytest.mark.parametrize("build", [trained, with_large_table, with_small_table])
def test_values_are_checked_by_what_was_kept(build: Callable[[], list[Any]]) -> None:
    wrong = {**DENSE, "ids": np.array([[0], [40_000], [1]], np.int64)}
    feed = wrong if build is trained else {"ids": wrong["ids"]}
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match=r"built at: File .*test_kept.py"):
            Process(build, [DENSE if build is trained else IDS, feed])


def test_rows_that_have_to_be_paired_are_counted_by_what_was_kept() -> None:
    def build() -> list[Any]:
        x, y = (fluid.data(name, [None, 4], "float32", lod_level=1) for name in "xy")
        return [layers.elementwise_add(x, y)]

    even, uneven = ({"x": ragged(ROWS, LENGTHS), "y": ragged(ROWS[:n], [n])} for n in (6, 5))
    Process(build, [even])
    with pytest.raises(lowering.LoweringError, match="elementwise_add"):
        Process(build, [uneven])


def test_what_a_program_tells_of_its_writer_is_part_of_what_is_compiled() -> None:
    """Fluid's ops and Paddle 2's of the same name may compute other numbers."""

    def build() -> list[Any]:
        return [layers.leaky_relu(fluid.data("x", [None, 4], "float32"), alpha=2.0)]

    def build_newer() -> list[Any]:
        fluid.default_main_program().proto.version.version = PADDLE_2
        return build()

    rows = [Process(each, [{"x": ROWS}]).results[0][1] for each in (build, build_newer)]
    np.testing.assert_array_equal(rows, [np.maximum(ROWS, 2 * ROWS), np.where(ROWS > 0, ROWS, 2 * ROWS)])


SCRIPT = """
import collections, jax, sys, numpy as np
import fluidjax as fluid
from fluidjax import layers

events = collections.Counter()
x = fluid.data("x", [None, 4], "float32", lod_level=1)
loss = layers.mean(layers.sequence_pool(layers.dropout(layers.fc(x, 3), 0.5), "max"))
fluid.optimizer.Adam(0.1).minimize(loss)
fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 3
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: events.update([event.split("/")[-1]]))
batch = fluid.create_lod_tensor(np.ones((6, 4), np.float32), [[1, 3, 2]], fluid.CPUPlace())
print(*(exe.run(feed={"x": batch}, fetch_list=[loss])[0].tobytes().hex() for _ in range(3)))
print(events["jaxpr_trace_duration"], events["jaxpr_to_mlir_module_duration"], events["backend_compile_duration"])
assert "jax._src.pallas.core" not in sys.modules, "jax.extend is imported where it is used"
"""


def run_script(folder: Path, script: str = SCRIPT) -> list[str]:
    environment = {**os.environ, "FLAGS_compilation_cache_dir": str(folder)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_second_process_neither_traces_nor_lowers_nor_compiles(tmp_path: Path) -> None:
    losses, events = run_script(tmp_path)
    assert "0" not in events.split()
    # Lines before the ops move nothing: it is the same program.
    assert run_script(tmp_path, "# a comment\n" + SCRIPT) == [losses, "0 0 0"]


def test_what_jax_has_in_its_own_cache_is_compiled_again_to_be_kept(tmp_path: Path, folder: Path) -> None:
    at_once = (
        "exe.run(fluid.default_startup_program())\njax.config.update('jax_persistent_cache_min_compile_time_secs', 0)"
    )
    script = SCRIPT.replace("exe.run(fluid.default_startup_program())", at_once)
    losses, _ = run_script(tmp_path, script)
    Store(folder).clear()
    again, _ = run_script(tmp_path, script)
    assert run_script(tmp_path, script) == [again, "0 0 0"] and again == losses
    assert not list(tmp_path.glob("jit_run*"))  # which nobody would ask for


def test_a_program_that_calls_back_is_compiled_again(capfd: pytest.CaptureFixture[str]) -> None:
    def build() -> list[Any]:
        x = fluid.data("x", [None, 4], "float32")
        return [layers.mean(layers.Print(x, message="seen"))]

    first, second = Process(build, [{"x": ROWS}]), Process(build, [{"x": ROWS}])
    assert first.compilations == second.compilations == 1
    assert capfd.readouterr().out.count("seen") == 4


@pytest.mark.parametrize("error", [jax.errors.JaxRuntimeError("UNIMPLEMENTED: write"), TypeError("cannot pickle")])
def test_what_a_backend_cannot_write_runs_all_the_same(
    monkeypatch: pytest.MonkeyPatch, folder: Path, error: Exception
) -> None:
    def content(_: Executable) -> None:
        raise error

    monkeypatch.setattr(Executable, "content", content)
    first, second = Process(plain, [{"x": ROWS}]), Process(plain, [{"x": ROWS}])
    assert first.compilations == second.compilations == 1 and not Store(folder).sizes()
    assert_same_bits(first, second)


def test_rules_of_the_user_are_not_known_by_their_content(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def build() -> list[Any]:
        return [layers.relu(fluid.data("x", [None, 4], "float32"))]

    monkeypatch.setattr(lowering.get_op("relu"), "fn", lambda x, **_: x + 1)
    assert Process(build, [{"x": ROWS}]).compilations == Process(build, [{"x": ROWS}]).compilations == 1
    assert not Store(folder).sizes()
    monkeypatch.undo()
    (_, rows), *_ = Process(build, [{"x": ROWS}]).results
    np.testing.assert_array_equal(rows, np.maximum(ROWS, 0))


@pytest.mark.parametrize(
    "change",
    [
        lambda: layers.scale(fluid.data("x", [None, 4], "float32"), 3.0),
        lambda: layers.scale(fluid.data("x", [None, 4], "float32"), 2.0, bias_after_scale=False),
        lambda: layers.scale(fluid.data("x", [None, 4], "float32"), 2.0, act="relu"),
    ],
)
def test_another_program_is_another_record(change: Callable[[], Any]) -> None:
    first = Process(lambda: [layers.scale(fluid.data("x", [None, 4], "float32"), 2.0)], [{"x": ROWS}])
    second = Process(lambda: [change()], [{"x": ROWS}])
    assert first.compilations == second.compilations == 1


def test_settings_of_jax_are_part_of_what_is_compiled() -> None:
    Process(plain, [{"x": ROWS}])
    with jax.default_matmul_precision("bfloat16"):
        assert Process(plain, [{"x": ROWS}]).compilations == 1
    assert Process(plain, [{"x": ROWS}]).compilations == 0


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "foreign", "nonsense"])
def test_a_damaged_record_is_compiled_again_and_replaced(folder: Path, damage: str) -> None:
    build, feeds = plain, [{"x": ROWS}]
    first = Process(build, feeds)
    store = Store(folder)
    (path,) = store.sizes()
    content = path.read_bytes()
    if damage == "nonsense":  # whole, and no record at all
        store.put(path.stem, b"a pickle that is none")
    else:
        flipped = content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
        path.write_bytes({"cut": content[:-100], "flipped": flipped, "empty": b"", "foreign": b"#!/bin/sh\n"}[damage])
    second, third = Process(build, feeds), Process(build, feeds)
    assert (second.compilations, third.compilations) == (1, 0)
    assert_same_bits(first, second)
    assert_same_bits(first, third)


@pytest.mark.parametrize("damaged", [False, True])
def test_kernels_that_draw_are_left_to_another_process(
    monkeypatch: pytest.MonkeyPatch, folder: Path, damaged: bool
) -> None:
    """By one that drew enough for them, once it has compiled a step; the values are the same to the last bit."""

    def draw() -> np.ndarray:
        return np.asarray(random_bits.normal(host_bits.key_of(5), (host_kernels.COUNT + 9,), np.float32))

    def another(drawn: int) -> None:
        for owner, name, value in ((cheapest, "_drawn", drawn), (cheapest, "kernels", None), (draws, "_missed", None)):
            monkeypatch.setattr(owner, name, value)

    cheapest, loaded = host_kernels.cheapest, []
    monkeypatch.setattr(cheapest, "_expected", 0)
    monkeypatch.setattr(host_kernels, "draw", lambda *a, draw=host_kernels.draw: loaded.append(a) or draw(*a))
    monkeypatch.setattr(host_kernels, "kernels", lambda: pytest.fail("compiled in a run"))
    another(drawn=0)
    numpys = draw()
    Process(plain, [{"x": ROWS}])
    assert len(Store(folder).sizes()) == 1, "so few values are not worth it"
    another(drawn=host_kernels.LOADED)
    np.testing.assert_array_equal(draw(), numpys)
    Process(trained, [{"x": ROWS, "ids": np.zeros((6, 1), np.int64)}])
    (path,) = Store(folder).sizes().keys() & {folder / f"{draws._key()}.entry"}
    if damaged:
        path.write_bytes(path.read_bytes()[:-7])
    assert not loaded
    another(drawn=host_kernels.LOADED)
    np.testing.assert_array_equal(draw(), numpys)
    assert len(loaded) == (0 if damaged else 2)
