"""``fluidjax bench MODEL``: how long a saved model takes here: to load, to compile, and for each run."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fluidjax.base.places import CPUPlace, CUDAPlace, get_cuda_device_count
from fluidjax.command import models, samples
from fluidjax.command.terms import table
from fluidjax.execution.waiting import waiting
from fluidjax.executor import Executor
from fluidjax.export.files import Model

NAME, HELP = "bench", "say how long a model takes to load, to compile and to run"
_FEWEST = 5  # runs, however long they take


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", metavar="MODEL", help="a model's folder, or its program's file")
    parser.add_argument("--params", metavar="FILE", help="the name of the file that holds all parameters")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to measure (default %(default)s)")
    samples.add(parser)


def main(options: argparse.Namespace) -> int:
    """Run it on made-up inputs and print the times."""
    path = models.find(options.model, options.params)
    loading, model = _timed(lambda: Model(path.folder, path.program, path.parameters))
    feed = samples.feed(model.program, model.feeds, options.batch, dict(options.shape))
    place = CUDAPlace(0) if get_cuda_device_count() else CPUPlace()
    executor = Executor(place)

    def run() -> Any:
        return executor.run(model.program, feed, model.fetches, scope=model.scope, return_numpy=False)

    first, _ = _timed(run)
    with waiting("Measuring"):
        times = 1e3 * np.array(_repeated(run, options.seconds))
    middle = float(np.median(times))
    print(
        table(
            [
                ("on", f"{place}, {options.batch} samples a run"),
                ("loading", f"{loading * 1e3:.1f} ms"),
                ("first run", f"{first * 1e3:.1f} ms, compiling included"),
                ("a run", f"{middle:.3f} ms (median of {len(times)}; nine of ten under {np.quantile(times, 0.9):.3f})"),
                ("samples", f"{options.batch / middle * 1e3:,.0f} a second"),
            ],
            indent="",
        )
    )
    return 0


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def _repeated(work: Callable[[], Any], seconds: float) -> list[float]:
    """The times of runs one after the other, whose results are waited for."""
    ends = time.perf_counter() + seconds
    taken: list[float] = []
    while len(taken) < _FEWEST or time.perf_counter() < ends:
        taken.append(_timed(lambda: [np.asarray(value) for value in work()])[0])
    return taken
