"""``python -m benchmarks.c [network ...]``: recorded networks as C programs beside our Executor and Paddle's.

Times are CPU time of a step on one thread. Memory is the most that an Executor's process held; of the C program, which
needs little else, its buffers and weights. Paddle 1.8.5 takes part where ``FLUIDJAX_PADDLE_PYTHON`` names a Python that
has it. The table is for docs/c.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fluidjax.export.c.build import FLAGS
from tests.golden.c import convert, job_of
from tests.golden.values import Tensor, Value
from tests.golden.zoocase import ZooCase, zoo_case

NETWORKS = [
    ("book_fit_a_line", "step"),
    ("book_recognize_digits_mlp", "step"),
    ("book_recognize_digits_conv", "forward"),
    ("book_recognize_digits_conv", "step"),
    ("cv_resnet18", "forward"),
    ("nlp_sentiment_lstm", "forward"),
    ("book_t_understand_sentiment_dynrnn_lstm", "step"),
    ("book_t_machine_translation", "forward"),
    ("opt_adam_sparse", "step"),
]
STEPS = 60
ROOT = Path(__file__).parent.parent
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "CPU_NUM": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


def write_job(case: ZooCase, part: str, folder: Path) -> None:
    """A case's program and its values as files that each peer reads."""
    job = job_of(case, part)
    assert job is not None
    raw, fetches, feeds = job
    write_program(folder, raw, fetches, feeds, {name: v.array for name, v in case.initial_values().items()})


def write_program(
    folder: Path, raw: bytes, fetches: list[str], feeds: Mapping[str, Value], held: Mapping[str, np.ndarray]
) -> None:
    """A program and its values as files that each peer reads."""
    (folder / "program").write_bytes(raw)
    given = {name: value for name, value in feeds.items() if isinstance(value, Tensor)}
    np.savez(folder / "feeds.npz", **{name: value.array for name, value in given.items()})
    np.savez(folder / "init.npz", **held)
    lods = {name: [list(map(int, level)) for level in value.lod] for name, value in given.items()}
    (folder / "job.json").write_text(json.dumps({"fetch": fetches, "lod": lods}))


def peer(python: str, module: str, folder: Path) -> tuple[float, float] | None:
    """(microseconds of a step, MB) of an Executor."""
    command = [python, str(ROOT / "benchmarks" / "c_worker.py"), module, str(folder), str(STEPS)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **ONE_THREAD}, cwd=ROOT)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        return None
    found = json.loads(lines[-1][7:])
    return 1e6 * found["cpu"], found["peak"]


def executable(folder: Path, flags: tuple[str, ...]) -> tuple[float, float]:
    """(microseconds of a step, kB of the stripped file) of the C program."""
    program = str(folder / "timed")
    subprocess.run(["cc", *FLAGS, *flags, "-s", "-o", program, str(folder / "model.c"), "-lm"], check=True)
    best = np.inf
    for _ in range(3):
        words = [program, str(folder), str(folder), "--steps", str(STEPS), "--time"]
        words += ["--weights", str(folder / "model.safetensors")]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        best = min(best, 1e6 * float(said.split()[0]))
    return best, os.path.getsize(program) / 1e3


def row(name: str, part: str) -> str:
    """One line of the table."""
    with tempfile.TemporaryDirectory() as where:
        folder, case = Path(where), zoo_case(name)
        write_job(case, part, folder)
        result = convert(case, part, folder)
        assert not result.problems and not result.absent, result
        plain, size = executable(folder, ())
        native, _ = executable(folder, ("-march=native",))
        ours = peer(sys.executable, "fluidjax", folder)
        paddle_python = os.environ.get("FLUIDJAX_PADDLE_PYTHON")
        paddle = peer(paddle_python, "paddle.fluid", folder) if paddle_python else None
    times = [f"{plain:,.0f}", f"{native:,.0f}", *(f"{p[0]:,.0f}" if p else "" for p in (ours, paddle))]
    memory = [f"{result.memory / 1e6:.2f}", *(f"{p[1]:.0f}" if p else "" for p in (ours, paddle))]
    return f"| {name} | {part} | {' | '.join([*times, f'{size:.0f}', *memory])} |"


def main() -> None:
    """Print the table."""
    wanted = [pair for pair in NETWORKS if not sys.argv[1:] or pair[0] in sys.argv[1:]]
    print("| network | | us: C | C, native | Executor | Paddle | kB | MB: C | Executor | Paddle |")
    print("|---|---|" + "---|" * 8, flush=True)
    for name, part in wanted:
        print(row(name, part), flush=True)


if __name__ == "__main__":
    main()
