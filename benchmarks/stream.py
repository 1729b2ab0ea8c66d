"""Whole runs over batches that change their sizes, from a fresh process to the last step.

``stream_300`` trains on 300 ragged batches (32 sequences of 5 to 100 tokens); see ``fluid_streams`` for the others.

Everything counts: building and the startup program, compiling, every step (``steps`` are these alone) and, as ``wall``,
starting Python and importing. fluidjax runs twice, with an empty folder for compiled programs and again with what the
first run left there; Paddle compiles nothing.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable

from benchmarks import fluid_streams
from benchmarks.fluid_sequences import STREAM

# The benchmark's name -> the model, and the steps after the first.
MODELS = {"stream_300": ("lstm_127", STREAM - 1), "stream_300_dynamic_rnn": ("dynamic_rnn", STREAM - 1)}
MODELS.update(("stream_" + model, (model, steps)) for model, steps in fluid_streams.STEPS.items())
CACHE = "FLAGS_compilation_cache_dir"

Result = dict[str, float]
Run = Callable[[list[str], dict[str, str]], "Result | str"]


def compare(name: str, paddle: str | None, repeat: int, run: Run, limit: int | None = None) -> dict[str, Result]:
    """Run both peers ``repeat`` times in turn, ``limit`` steps at most; print the best totals and their ratios."""
    worker = ["-m", "benchmarks.fluid_worker"]
    model, count = MODELS[name]
    steps = str(count if limit is None else min(limit, count))
    found: dict[str, Result] = {}
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            ours = [sys.executable, *worker, "fluidjax", model, steps]
            _timed(found, "first run", ours, {CACHE: folder}, run)
            _timed(found, "second run", ours, {CACHE: folder}, run)
        if paddle:
            _timed(found, "paddle", [paddle, *worker, "paddle", model, steps], {}, run)
    _show(name, found)
    return found


def _timed(found: dict[str, Result], peer: str, command: list[str], environment: dict[str, str], run: Run) -> None:
    start = time.perf_counter()
    result = run(command, {**os.environ, **environment})
    wall = time.perf_counter() - start
    if isinstance(result, str):
        print(f"  {peer} failed: {result}", flush=True)
        return
    now = {**result, "wall": wall - result["later"]}
    found[peer] = {k: min(v, found[peer][k]) for k, v in now.items()} if peer in found else now


def _show(name: str, found: dict[str, Result]) -> None:
    print(name)
    for peer, r in found.items():
        text = f"total {r['total']:6.2f} s   steps {r['total'] - r['ready']:6.2f} s   wall {r['wall']:6.2f} s"
        text += f"   first {r['first']:5.2f} s"
        text += f"   longest {r['longest']:5.2f} s   step {1e6 * r['step']:8.0f} us"
        paddle = found.get("paddle")
        if paddle and peer != "paddle":
            text += "   this/paddle: " + ", ".join(f"{k} {r[k] / paddle[k]:.2f}" for k in ("total", "wall"))
        print(f"  {peer:10s} {text}", flush=True)
