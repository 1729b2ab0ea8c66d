"""``python -m benchmarks.predictor``: what a predictor's call costs beside ``Executor.run``, and clones in threads.

The fixed cost is that of a small network (13 numbers, two layers of 64 and 10): microseconds of CPU time of a call, the
smallest median of rounds that take the three kinds of call in turn. Throughput is that of a network of eight layers of
512 units at 64 rows: calls a second in 1, 2 and 4 threads with a clone each, the best of as many rounds, the process
held to as many cores as it has threads, so that one call cannot spread over two. The outputs of all threads are
compared with those of one, bit for bit.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

CALLS, ROUNDS, SECONDS = 200, 15, 2.0
# XLA reads it when it starts; a call that takes all cores leaves nothing for other threads.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import fluidjax as fluid  # noqa: E402
from fluidjax.core import AnalysisConfig, PaddlePredictor, PaddleTensor, create_paddle_predictor  # noqa: E402


def saved(folder: str, widths: list[int]) -> str:
    """A model of layers of so many units, the first number that of the inputs."""
    program, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(program, startup), fluid.unique_name.guard():
        hidden = fluid.data("x", [None, widths[0]])
        for width in widths[1:]:
            hidden = fluid.layers.fc(hidden, width, act="tanh")
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        executor.run(startup)
        fluid.io.save_inference_model(folder, ["x"], [hidden], executor, program)
    return folder


def of_executor(folder: str, x: np.ndarray) -> Callable[[], np.ndarray]:
    """A call of the Executor."""
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        program, _, fetches = fluid.io.load_inference_model(folder, executor)
    return lambda: executor.run(program, {"x": x}, fetches, scope=scope)[0]


def of_tensors(predictor: PaddlePredictor, x: np.ndarray) -> Callable[[], np.ndarray]:
    """A call that takes tensors and returns tensors."""
    return lambda: predictor.run([PaddleTensor(x)])[0].as_ndarray()


def of_zero_copy(predictor: PaddlePredictor, x: np.ndarray) -> Callable[[], np.ndarray]:
    """A call that fills the predictor's own tensors."""
    given = predictor.get_input_tensor(predictor.get_input_names()[0])
    found = predictor.get_output_tensor(predictor.get_output_names()[0])

    def call() -> np.ndarray:
        given.copy_from_cpu(x)
        predictor.zero_copy_run()
        return found.copy_to_cpu()

    return call


def fixed_cost(folder: str) -> dict[str, float]:
    """Microseconds of CPU time of each kind of call, measured in turn."""
    x = np.random.default_rng(0).standard_normal((1, 13)).astype("float32")
    predictor = create_paddle_predictor(AnalysisConfig(folder))
    calls = {
        "Executor.run": of_executor(folder, x),
        "run": of_tensors(predictor, x),
        "zero_copy_run": of_zero_copy(predictor.clone(), x),
    }
    expected = calls["Executor.run"]()
    found: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(ROUNDS + 1):
        for name, call in calls.items():
            np.testing.assert_allclose(call(), expected, rtol=1e-6)
            found[name].append(median(call))
        if turn == 0:  # compiled beside the first calls
            found = {name: [] for name in calls}
    return {name: min(times) for name, times in found.items()}


def median(call: Callable[[], np.ndarray]) -> float:
    """The median of the CPU times of some calls, in microseconds."""
    times = []
    for _ in range(CALLS):
        before = time.process_time_ns()
        call()
        times.append(time.process_time_ns() - before)
    return float(np.median(times)) / 1e3


def throughput(predictor: PaddlePredictor, x: np.ndarray, threads: int, expected: np.ndarray) -> tuple[float, float]:
    """(calls a second of wall time, milliseconds of CPU time a call) of clones in so many threads."""
    counts, start = [0] * threads, threading.Barrier(threads + 1)
    clones = [of_zero_copy(predictor.clone(), x) for _ in range(threads)]
    for call in clones:
        np.testing.assert_array_equal(call(), expected)
    wrong: list[int] = []

    def work(i: int) -> None:
        start.wait()
        while time.perf_counter() < until:
            if not np.array_equal(clones[i](), expected):
                wrong.append(i)
            counts[i] += 1

    workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for worker in workers:
        worker.start()
    begin, spent = time.perf_counter(), time.process_time()
    until = begin + SECONDS
    start.wait()
    for worker in workers:
        worker.join()
    assert not wrong, f"threads {wrong} had other outputs"
    took, spent = time.perf_counter() - begin, time.process_time() - spent
    return sum(counts) / took, 1e3 * spent / sum(counts)


@contextmanager
def held_to(count: int) -> Iterator[None]:
    """All threads of this process, XLA's too, on ``count`` of its cores (Linux alone)."""
    cores = sorted(os.sched_getaffinity(0))
    hold(cores[:count])
    try:
        yield
    finally:
        hold(cores)


def hold(cores: list[int]) -> None:
    """All threads of this process on these cores."""
    for task in Path("/proc/self/task").iterdir():
        with suppress(ProcessLookupError):  # a thread that has ended
            os.sched_setaffinity(int(task.name), cores)


def threads(folder: str, rounds: int = 3) -> dict[int, tuple[float, float]]:
    """The throughput of 1, 2 and 4 threads, measured in turn."""
    x = np.random.default_rng(0).standard_normal((64, 512)).astype("float32")
    predictor = create_paddle_predictor(AnalysisConfig(folder))
    call = of_zero_copy(predictor, x)
    expected = [call().copy() for _ in range(20)][-1]
    found: dict[int, list[tuple[float, float]]] = {1: [], 2: [], 4: []}
    for _ in range(rounds):
        for count, results in found.items():
            with held_to(count):
                results.append(throughput(predictor, x, count, expected))
    return {count: max(results) for count, results in found.items()}


def main() -> None:
    """Measure and print; with ``--json FILE`` write it, too."""
    with tempfile.TemporaryDirectory() as folder:
        cost = fixed_cost(saved(f"{folder}/small", [13, 64, 10]))
        for name, spent in cost.items():
            print(f"{name:14s} {spent:8.1f} us of CPU, {spent / cost['Executor.run']:.2f} of Executor.run", flush=True)
        found = threads(saved(f"{folder}/wide", [512] * 9))
        for count, (rate, spent) in found.items():
            part = rate / found[1][0]
            print(f"{count} threads: {rate:8.0f} calls a second, {part:.2f} of one; {spent:.2f} ms of CPU each")
    cores = len(os.sched_getaffinity(0))
    print(f"{cores} of {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if "--json" in sys.argv:
        text = json.dumps({"cost": cost, "threads": found, "cores": cores}, indent=1)
        Path(sys.argv[sys.argv.index("--json") + 1]).write_text(text)


if __name__ == "__main__":
    main()
