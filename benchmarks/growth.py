"""``python -m benchmarks.growth``: what programs of 50 to 5,000 ops cost, and how that grows: docs/performance.md.

Each size runs twice in processes of its own, the second time with the compiled steps that the first one kept. Times are
CPU seconds of the whole process, so that other work on the machine counts little. ``growth`` is the slope from the
smallest to the largest size on a doubly logarithmic scale: 1 is linear.
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import report

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
TRAINED, WRITTEN = (50, 200, 1000, 5000), (1000, 10_000, 100_000)
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


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """(CPU seconds of all threads, what the function returned)."""
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def train(ops: int) -> dict[str, float]:
    """Layers of 16 units trained by SGD, as many as make about ``ops`` ops."""
    import numpy as np

    import fluidjax as fluid

    main, startup = fluid.Program(), fluid.Program()

    def build() -> Any:
        with fluid.program_guard(main, startup):
            x = fluid.data("x", [None, 16], "float32")
            for _ in range(max(1, ops // 10)):
                x = fluid.layers.fc(x, 16, act="tanh")
            loss = fluid.layers.mean(x)
            fluid.optimizer.SGD(0.1).minimize(loss)
            return loss

    seconds, loss = timed(build)
    found = {"ops": float(len(main.global_block().ops)), "build": seconds}
    exe, feed = fluid.Executor(fluid.CPUPlace()), {"x": np.ones((8, 16), np.float32)}

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
    found = {"ops": float(ops)}
    found["serialize"], data = timed(main.desc.serialize_to_string)
    found["parse"], read = timed(lambda: fluid.Program.parse_from_string(data))
    found["print"], _ = timed(lambda: str(read))
    found["clone"], _ = timed(read.clone)
    return found


def measured(kind: str, ops: int, folder: str) -> dict[str, float]:
    """What a process of its own reports."""
    from benchmarks.__main__ import run

    command = [sys.executable, "-m", "benchmarks.growth", kind, str(ops)]
    found = run(command, {**os.environ, "FLAGS_compilation_cache_dir": folder})
    if isinstance(found, str):
        raise SystemExit(f"{kind} {ops}: {found}")
    return found


def measure_all() -> Iterator[list[dict[str, float]]]:
    """The results of each kind of program, by size."""
    with tempfile.TemporaryDirectory() as folder:
        trained = []
        for ops in TRAINED:
            cold, warm = (measured("train", ops, folder) for _ in range(2))
            trained.append({**cold, "warm": warm["first"], "step": min(cold["step"], warm["step"])})
        yield trained
        yield [measured("write", ops, folder) for ops in WRITTEN]


def growth(rows: list[dict[str, float]], column: str) -> float:
    """The slope between the first and the last size."""
    first, last = rows[0], rows[-1]
    return math.log(last[column] / first[column]) / math.log(last["ops"] / first["ops"])


def table(rows: list[dict[str, float]]) -> str:
    """Milliseconds of CPU time, a line for each number and a column for each size."""
    names = [name for name in COLUMNS if name in rows[0]]
    lines = [
        "| CPU ms | " + " | ".join(f"{row['ops']:,.0f} ops" for row in rows) + " | growth |",
        "|---|" + "---|" * (len(rows) + 1),
    ]
    for name in names:
        numbers = " | ".join(f"{1e3 * row[name]:,.1f}" for row in rows)
        lines.append(f"| {COLUMNS[name]} | {numbers} | {growth(rows, name):.2f} |")
    return "\n".join(lines)


def machine() -> str:
    """Processor, versions and date."""
    import jax
    import jaxlib
    import numpy

    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            model = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    versions = f"Python {platform.python_version()}, jax {jax.__version__}, jaxlib {jaxlib.__version__}"
    load = f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown load"
    return (
        f"{model}, {os.cpu_count()} processors ({load}); {versions}, NumPy {numpy.__version__}; {datetime.date.today()}"
    )


def page(tables: list[str]) -> str:
    """The page."""
    trained, written = tables
    return f"""# Performance

Generated by `python -m benchmarks.growth`; not edited by hand. Measured on: {machine()}.

## Growth with the size of a program

CPU time of all threads. Growth is the slope from the smallest to the largest program: 1 is linear.

Layers of 16 units trained by SGD on 8 rows:

{trained}

A chain of ops as text and bytes:

{written}
"""


def main() -> None:
    """The command line; with a kind and a size, the process that measures it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("kind", nargs="?", choices=("train", "write"))
    parser.add_argument("ops", nargs="?", type=int)
    arguments = parser.parse_args()
    if arguments.kind:
        report({"train": train, "write": write}[arguments.kind](arguments.ops))
        return
    PAGE.write_text(page([table(rows) for rows in measure_all()]))
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
