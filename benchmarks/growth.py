"""``python -m benchmarks.growth``: how costs grow with a program, its data and its parameters: docs/performance.md.

Each size runs twice in processes of its own, the second time with the compiled steps that the first one kept. Times are
CPU seconds of the whole process, so that other work on the machine counts little. ``growth`` is the slope from the
smallest to the largest size on a doubly logarithmic scale: 1 is linear. ``--peers FILE`` shows beside it what
``python -m benchmarks --json FILE`` measured.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import growth_models
from benchmarks.measure import report

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
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


def growth(rows: list[dict[str, float]], column: str) -> float:
    """The slope between the first and the last size."""
    first, last = rows[0], rows[-1]
    return math.log(last[column] / first[column]) / math.log(last["size"] / first["size"])


def table(kind: Kind, rows: list[dict[str, float]]) -> str:
    """Milliseconds of CPU time, a line for each number and a column for each size."""
    names = [name for name in COLUMNS if name in rows[0]]
    lines = [
        "| CPU ms | " + " | ".join(f"{row['size']:,.0f} {kind.unit}" for row in rows) + " | growth |",
        "|---|" + "---|" * (len(rows) + 1),
    ]
    for name in names:
        numbers = " | ".join(f"{1e3 * row[name]:,.2f}" for row in rows)
        lines.append(f"| {COLUMNS[name]} | {numbers} | {growth(rows, name):.2f} |")
    return f"{kind.title}:\n\n" + "\n".join(lines)


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


def peers_table(results: dict[str, dict[str, dict[str, float]]]) -> str:
    """A line for each workload: fluidjax's numbers, and the ratios to each peer's."""
    names = sorted({peer for found in results.values() for peer in found} - {"fluidjax"})
    lines = [
        "| workload | CPU ms a step | first step CPU s, cold, warm | peak MB | "
        + " | ".join(f"/ {n}" for n in names)
        + " |",
        "|---|" + "---|" * (len(names) + 3),
    ]
    for model, found in results.items():
        ours = found.get("fluidjax", {})
        if not {"cpu", "warm_cpu"} <= ours.keys():
            continue
        ratios = [_ratios(ours, found[n]) if n in found else "" for n in names]
        first = f"{ours['first_cpu']:.2f}, {ours['warm_cpu']:.2f}"
        cells = [model, f"{1e3 * ours['cpu']:.3f}", first, f"{ours['peak']:.0f}", *ratios]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _ratios(ours: dict[str, float], theirs: dict[str, float]) -> str:
    ratios = [ours["cpu"] / theirs["cpu"], ours["first_cpu"] / theirs["first_cpu"]]
    ratios += [ours["warm_cpu"] / theirs["first_cpu"], ours["peak"] / theirs["peak"]]
    return ", ".join(f"{r:.2f}" for r in ratios)


PEERS = """
## Beside its peers

Ratios are of CPU time of a step, of the first step cold and warm (with what an earlier process compiled; from the start
of building), and of peak memory; below 1 fluidjax is ahead. Each peer in processes of its own, in turn, the
best of each number; {where}.

{table}
"""


def page(tables: list[str], peers: dict[str, Any] | None) -> str:
    """The page."""
    beside = "" if peers is None else PEERS.format(where=peers["machine"], table=peers_table(peers["models"]))
    grown = "\n\n".join(tables)
    return f"""# Performance

Generated by `python -m benchmarks.growth`; not edited by hand. Measured on: {machine()}.
{beside}
## Growth

CPU time of all threads. Growth is the slope from the smallest to the largest size: 1 is linear.

{grown}
"""


def main() -> None:
    """The command line; with a kind and a size, the process that measures it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("kind", nargs="?", choices=KINDS)
    parser.add_argument("size", nargs="?", type=int)
    parser.add_argument("--peers", metavar="FILE", type=Path)
    arguments = parser.parse_args()
    if arguments.kind:
        build = KINDS[arguments.kind].build
        report(write(arguments.size) if build is None else train(build, arguments.size))
        return
    peers = None if arguments.peers is None else json.loads(arguments.peers.read_text())
    tables = [table(kind, [measured_cold_and_warm(name, n) for n in kind.sizes]) for name, kind in KINDS.items()]
    PAGE.write_text(page(tables, peers))
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
