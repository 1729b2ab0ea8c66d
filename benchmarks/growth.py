"""How costs grow with a program, its data and its parameters.

Each size runs twice in processes of its own (``python -m benchmarks.growth KIND SIZE``), the second time with the
compiled steps that the first one kept. Times are CPU seconds of the whole process, so that other work on the machine
counts little.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks import growth_models
from benchmarks.measure import report

STEPS = 20
COLUMNS = {
    "build": "build, backward pass included",
    "startup": "startup program",
    "first": "first step, cold",
    "warm": "first step, second process",
    "step": "step",
    "serialize": "serialize",
    "parse": "parse",
    "print": "print",
    "clone": "clone",
}


class Kind(NamedTuple):
    """One way to grow: its builder (None: a program that is written and read), the unit and the sizes."""

    build: Callable[[Any, int], growth_models.Built] | None
    unit: str
    sizes: tuple[int, ...]
    title: str


KINDS = {
    "ops": Kind(
        growth_models.layers, "ops", (50, 200, 1000, 5000), "Layers of 16 units trained by SGD on 8 rows, by ops"
    ),
    "written": Kind(None, "ops", (1000, 10_000, 100_000), "A chain of ops as text and bytes, by ops"),
    "batch": Kind(
        growth_models.batch,
        "rows",
        (16, 128, 1024, 8192),
        "Two layers of 256 units trained by Adam, by rows of a batch",
    ),
    "parameters": Kind(
        growth_models.parameters,
        "weights",
        (20_000, 200_000, 2_000_000, 20_000_000),
        "Two layers trained by Adam on 16 rows, by parameters",
    ),
    "length": Kind(
        growth_models.length,
        "rows each",
        (16, 64, 256, 1024),
        "An LSTM of 64 units trained by SGD on 8 sequences, by their length",
    ),
    "vocabulary": Kind(
        growth_models.vocabulary,
        "words",
        (10_000, 100_000, 1_000_000, 10_000_000),
        "Embeddings of 16 numbers, 1,024 looked up and trained by SGD (sparse) in a step, by vocabulary",
    ),
}


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """(CPU seconds of all threads, what the function returned)."""
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def train(build: Callable[[Any, int], growth_models.Built], size: int) -> dict[str, float]:
    """Build a program, and run its startup program and some steps."""
    import fluidjax as fluid

    main, startup = fluid.Program(), fluid.Program()

    def built() -> growth_models.Built:
        with fluid.program_guard(main, startup):
            return build(fluid, size)

    seconds, (loss, feed, true_size) = timed(built)
    found = {"size": true_size, "build": seconds}
    exe = fluid.Executor(fluid.CPUPlace())

    def step() -> Any:
        return exe.run(main, feed=feed, fetch_list=[loss])

    found["startup"], _ = timed(lambda: exe.run(startup))
    found["first"], _ = timed(step)
    found["step"] = sorted(timed(step)[0] for _ in range(STEPS))[STEPS // 2]
    return found


def write(ops: int) -> dict[str, float]:
    """A chain of ``ops`` ops that is written, read, printed and cloned."""
    import fluidjax as fluid

    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 8], "float32")
        for _ in range(ops // 2):
            x = fluid.layers.scale(fluid.layers.relu(x), 0.99)
    found = {"size": float(ops)}
    found["serialize"], data = timed(main.desc.serialize_to_string)
    found["parse"], read = timed(lambda: fluid.Program.parse_from_string(data))
    found["print"], _ = timed(lambda: str(read))
    found["clone"], _ = timed(read.clone)
    return found


def measured(kind: str, size: int, folder: str) -> dict[str, float]:
    """What a process of its own reports."""
    from benchmarks.__main__ import run

    command = [sys.executable, "-m", "benchmarks.growth", kind, str(size)]
    found = run(command, {**os.environ, "FLAGS_compilation_cache_dir": folder})
    if isinstance(found, str):
        raise SystemExit(f"{kind} {size}: {found}")
    return found


def measured_cold_and_warm(kind: str, size: int) -> dict[str, float]:
    """A first process and one that finds what it kept; a step is the better of both."""
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = (measured(kind, size, folder) for _ in range(2))
    both = {name: min(cold[name], warm[name]) for name in cold}
    return both if KINDS[kind].build is None else {**both, "first": cold["first"], "warm": warm["first"]}


def main() -> None:
    """Measure one size and report."""
    kind, size = sys.argv[1], int(sys.argv[2])
    build = KINDS[kind].build
    report(write(size) if build is None else train(build, size))


if __name__ == "__main__":
    main()
