"""``fluidjax bench MODEL|SCRIPT``: times loading, compilation and runs, or a script's first training step.

A script runs up to its first training step and no further; that step is repeated with the script's own batch, on
copies of the parameters. An eager step is spread over the script, which therefore runs on for the measuring time: a
step is whatever it does from one ``backward()`` to the next. A saved model is run on random inputs.

first run     including compilation, except of programs cached on disk
a run         the median: wall-clock time, and CPU time of all threads of this process
compilations  the number of times the program was compiled, in the first run and in later ones
peak memory   of the device; on the CPU, of this process since its start
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fluidjax import memory
from fluidjax.base.containers import LoDTensorArray, SelectedRows
from fluidjax.base.places import CPUPlace, CUDAPlace, Place, get_cuda_device_count
from fluidjax.base.scope import Scope, held
from fluidjax.base.values import LoDTensor
from fluidjax.command import models, samples, steps
from fluidjax.command.terms import BadUse, size, table
from fluidjax.eager.recorded.pending import recorder
from fluidjax.execution.executables.waiting import waiting
from fluidjax.execution.runs.prepared import compilations
from fluidjax.execution.scopes.state import private_copy
from fluidjax.executor import Executor
from fluidjax.export.files import Model
from fluidjax.framework import Program, _current_expected_place

NAME, HELP = "bench", "time the compilation and runs of a model or training step"
_FEWEST = 5  # runs, however long they take
_Row = tuple[str, str]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    steps.add(parser)
    parser.add_argument("--params", metavar="FILE", help="name of the combined parameter file")
    parser.add_argument("--seconds", type=float, default=3.0, help="measuring time (default %(default)s)")
    samples.add(parser)


def main(options: argparse.Namespace) -> int:
    """Print the times."""
    rows = _of_script(options) if steps.is_script(options.model) else _of_model(options)
    print(table(rows, indent=""))
    return 0


def _of_script(options: argparse.Namespace) -> list[_Row]:
    def of_program(step: steps.Step) -> list[_Row]:
        return list(_of_step(step, options.seconds))

    pace = _Pace(options.seconds)
    rows = steps.first_step(
        options.model, options.arguments, of_program, lambda loss: pace.started(), follow=pace.goes_on
    )
    return rows or pace.rows(options.model)


class _Pace:
    """The eager steps of a script, timed from one backward pass to the next."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._place: Any = None
        self._compiled = 0
        self._passes: list[_Times] = []  # when each backward pass began

    def started(self) -> list[_Row]:
        """Record the first backward pass; there is nothing to report yet."""
        self._place, self._compiled = _current_expected_place(), recorder.blocks.compilations
        return []

    def goes_on(self) -> bool:
        """Record a backward pass; returns whether more are wanted."""
        now = _Times(time.perf_counter(), time.process_time())
        self._passes.append(now)
        return len(self._passes) <= _FEWEST + 1 or now.clock < self._passes[1].clock + self._seconds

    def rows(self, script: str) -> list[_Row]:
        """The rows to print. Raises BadUse if the script made too few steps."""
        taken = [
            _Times(end.clock - start.clock, end.processor - start.processor)
            for start, end in itertools.pairwise(self._passes)
        ]
        if len(taken) < 2:
            raise BadUse(
                f"the eager training of {script!r} ended too early",
                "at least 3 calls of backward(), to time what the script does between them",
                f"{len(self._passes)}",
                "let it train for more steps",
            )
        compiled = f"{recorder.blocks.compilations - self._compiled} of repeated ops as one"
        found = _Measured(taken[0], taken[1:], compiled)
        return [("on", f"{self._place}, an eager training step"), *found.rows("step", self._place)]


def _of_step(step: steps.Step, seconds: float) -> Iterator[_Row]:
    feed, scope = step.feed, private_copy(step.scope, _tensors(step.scope))
    given = {**step.given, "fetch_list": step.fetches or (step.loss,), "scope": scope}
    if not isinstance(given.get("feed"), (list, tuple)):
        given["feed"] = feed
    found = _measured(lambda: step.executor.run(**given), step.program, seconds, "step")
    fed = ", ".join(f"{name} {_shape(value)}" for name, value in feed.items())
    yield "on", f"{step.executor.place}, a training step of {len(step.program.global_block().ops)} ops"
    yield "fed", fed or "nothing"
    yield from found.rows("step", step.executor.place)


def _tensors(scope: Scope) -> list[str]:
    """The names of the tensors in a scope and its ancestors."""
    names, at = set[str](), scope
    while at is not None:
        names.update(at.local_var_names())
        at = at.parent()  # type: ignore[assignment]
    return [name for name in sorted(names) if isinstance(held(scope, name), (LoDTensor, SelectedRows, LoDTensorArray))]


def _shape(value: Any) -> str:
    return "x".join(map(str, np.shape(np.asarray(value)))) or "a number"


def _of_model(options: argparse.Namespace) -> list[_Row]:
    path = models.find(options.model, options.params)
    loading, model = _timed(lambda: Model(path.folder, path.program, path.parameters))
    feed = samples.feed(model.program, model.feeds, options.batch, dict(options.shape))
    place = CUDAPlace(0) if get_cuda_device_count() else CPUPlace()
    executor = Executor(place)

    def run() -> Any:
        return executor.run(model.program, feed, model.fetches, scope=model.scope, return_numpy=False)

    found = _measured(run, model.program, options.seconds, "run")
    return [
        ("on", f"{place}, {options.batch} samples a run"),
        ("loading", f"{loading.clock * 1e3:.1f} ms"),
        *found.rows("run", place),
        ("samples", f"{options.batch / found.middle * 1e3:,.0f} a second"),
    ]


@dataclass(frozen=True)
class _Times:
    """The duration of a run in seconds: wall-clock and CPU time."""

    clock: float
    processor: float


@dataclass(frozen=True)
class _Measured:
    """The first run and the following ones, and what was compiled for them."""

    first: _Times
    later: list[_Times]
    compiled: str

    @property
    def middle(self) -> float:
        """Median time of a later run in milliseconds."""
        return float(np.median([run.clock for run in self.later])) * 1e3

    def rows(self, what: str, place: Place) -> Iterator[_Row]:
        """The rows to print, with a run referred to as ``what``."""
        highest = float(np.quantile([run.clock for run in self.later], 0.9)) * 1e3
        processor = float(np.median([run.processor for run in self.later])) * 1e3
        yield f"first {what}", f"{self.first.clock * 1e3:.1f} ms, compiling included"
        yield (
            f"a {what}",
            f"{self.middle:.3f} ms (median of {len(self.later)}; nine of ten under {highest:.3f}), "
            f"{processor:.3f} ms of processor time",
        )
        yield "compilations", self.compiled
        yield "peak memory", size(memory.of(place).peak)


def _measured(run: Callable[[], Any], program: Program, seconds: float, what: str) -> _Measured:
    """Run the program once, then repeatedly, waiting for the results each time."""

    def whole() -> None:
        _await(run())

    before = compilations(program)
    first, _ = _timed(whole)
    between = compilations(program)
    with waiting("Measuring"):
        later = _repeated(whole, seconds)
    compiled = f"{between - before} in the first {what}, {compilations(program) - between} in later ones"
    return _Measured(first, later, compiled)


def _await(values: Any) -> None:
    """Wait for values, including those in lists."""
    for value in values:
        if isinstance(value, (list, LoDTensorArray)):
            _await(value)
        else:
            np.asarray(value)


def _timed(work: Callable[[], Any]) -> tuple[_Times, Any]:
    started, used = time.perf_counter(), time.process_time()
    result = work()
    return _Times(time.perf_counter() - started, time.process_time() - used), result


def _repeated(work: Callable[[], Any], seconds: float) -> list[_Times]:
    """The times of consecutive runs."""
    ends = time.perf_counter() + seconds
    taken: list[_Times] = []
    while len(taken) < _FEWEST or time.perf_counter() < ends:
        taken.append(_timed(work)[0])
    return taken
