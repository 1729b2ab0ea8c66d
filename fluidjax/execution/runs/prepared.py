"""A program made ready for one fetch list: the single entry to every kind of run.

============  ==================================================================================================
settled       runs like the last one: compiled, the state on the device, nothing to look up
whole         all ops as one jitted step; gathers the state and lets runs settle
segmented     jitted steps between ops that work on the host
interpreted   op by op
retry         what an attempt lacked, and what is done about it; so the choice between whole and segmented runs
compilations  the compiled forms of all of these, and what forced them
beside        what later runs learn from one: its time, and what to compile meanwhile
============  ==================================================================================================

``asked`` finds what was prepared for the same request, ``mode`` says whether runs go op by op, and ``outside`` is what
ops that work on the host may know of their run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from fluidjax.base.scope import Scope
from fluidjax.execution.runs.beside import Beside
from fluidjax.execution.runs.compilations import Compilations, Job
from fluidjax.execution.runs.interpreted import InterpretedRuns
from fluidjax.execution.runs.retry import Attempts
from fluidjax.execution.runs.segmented import SegmentedRuns
from fluidjax.execution.runs.settled import SettledRuns
from fluidjax.execution.runs.whole import WholeRuns
from fluidjax.execution.scopes.state import NothingToFetch, private_copy
from fluidjax.execution.steps.compiled_form import Compiled
from fluidjax.execution.steps.mesh import Unspreadable
from fluidjax.execution.steps.spreading import Spreading
from fluidjax.framework import Program
from lowering.engine.shapes.validate import validate
from lowering.program import ProgramView


class Prepared:
    """Runs one program for one list of fetches and one set of feed names.

    Whatever is raised during a run, and whenever, the scope then holds the state from before the run or that from after
    it. Threads may run programs over one scope: those that change it one after the other, those that only read it
    beside each other.

    Args:
        program: the program's view; validated here.
        feeds, fetches: names.
        platform: 'cpu', 'gpu' or 'tpu'.
        checked: whether labels, ids and divisors are checked (FLAGS_check_values).
        beside: whether rooms for other sizes are compiled beside the runs (FLAGS_background_compilation).
        spread: how it is spread over several devices; None: it runs on one.
        owners: of feeds that are devices' shares of one variable, but the first, that variable.

    Attributes:
        fed_state: fed persistable variables that the program does not write: as in Fluid, the scope holds them from
            then on.
        again: runs once, if that is known to be like the last time (see ``SettledRuns.again``).
    """

    def __init__(
        self,
        program: ProgramView,
        feeds: Sequence[str],
        fetches: Sequence[str],
        platform: str,
        checked: bool = True,
        beside: bool = False,
        spread: Spreading | None = None,
        owners: Mapping[str, str] = MappingProxyType({}),
    ):
        validate(program)
        job = Job(program, tuple(feeds), tuple(fetches), platform, checked, beside, spread, owners)
        self._job, self._alike = job, job.alike
        self._compilations = Compilations(job)
        self._attempts = Attempts(job, self._compilations)
        self._whole = WholeRuns(job, self._attempts, self._compilations)
        self._beside = Beside(self._attempts, self._whole, self._compilations)
        self._settled = SettledRuns(job, self._attempts, self._compilations, self._beside)
        self.again = self._settled.again
        self._interpreted = InterpretedRuns(job, self._attempts, self._compilations)
        self._segmented = SegmentedRuns(job, self._attempts, self._compilations, self._interpreted)
        self._lock = threading.RLock()  # taken inside the scope's lock
        self._undeclared = _undeclared_writes(program)
        state = {v.name for v in program.blocks[0].vars.values() if v.persistable} - set(self._attempts.plan.keeps)
        self._given_fetches = _not_computed(job)
        self._variables = program.blocks[0].vars
        self.fed_state = tuple(n for n in job.feeds if n in state)

    @property
    def compilations(self) -> int:
        """How many times this program was traced and compiled for these fetches."""
        return self._compilations.count

    def ready(self, feeds: Sequence[Any]) -> Compiled | None:
        """What a run on these ``feeds`` calls, where that is one step that has run and reads nothing else."""
        ops, job = self._whole.compiled, self._job
        if ops is None or ops.inputs != job.feeds or self._whole.layout.written:
            return None
        return ops.ready((), feeds)

    def feeds(self, feed: Mapping[str, Any]) -> list[Any]:
        """The feeds, as the next run takes them."""
        return self._attempts.feeds(feed)

    @property
    def ops(self) -> int:
        """How many ops a run goes through, counting those of loops and branches once."""
        return sum(len(segment.ops) for segment in self._attempts.plan.segments)

    @property
    def random(self) -> bool:
        """Whether a run needs a seed."""
        return self._attempts.plan.random

    @property
    def constant(self) -> bool:
        """Whether the program reads nothing, as startup programs do; those run op by op."""
        return self._attempts.plan.constant

    def run(self, scope: Scope, feed: Mapping[str, Any], seed: Any) -> list[Any]:
        """Run once: the fetched values, in order. The scope's state is replaced only when the run succeeds."""
        compiled = False
        results = self._settled.run(scope, feed, seed)
        if results is None:
            with scope._lock, self._lock:
                try:
                    results = self._run_unsettled(scope, feed, seed)
                finally:
                    compiled = self._compilations.end_of_step()
        visit = self._attempts.visit
        if visit is not None:
            self._beside.note(visit, seed, results, compiled=compiled)
        return results

    def failure(self, scope: Scope, error: Exception) -> Exception:
        """The error to report for an ``error`` inside XLA, in a run or as its results are read; see ``SettledRuns``."""
        return self._settled.failure(scope, error)

    def _run_unsettled(self, scope: Scope, feed: Mapping[str, Any], seed: Any) -> list[Any]:
        if self._undeclared:
            self._attempts.plan_anew([n for n in self._undeclared if scope.find_var(n) is not None])
        self._check_fetches(scope)
        return self._attempts.run(self._attempt, scope, feed, seed)

    def _check_fetches(self, scope: Scope) -> None:
        """Report a fetch without a value before the step is taken."""
        for name in self._given_fetches:
            if scope.find_var(name) is None:
                raise NothingToFetch(name, self._variables)

    def _attempt(self, scope: Scope, feeds: list[Any], seed: Any) -> list[Any] | None:
        segments = self._attempts.plan.segments
        whole = len(segments) == 1 and not segments[0].host
        if self._alike and not whole:
            raise Unspreadable("ops run on the host")
        runs = self._whole if whole else self._segmented
        return runs.run(scope, feeds, seed)

    def rehearse(self, scope: Scope, feed: Mapping[str, Any], seed: Any) -> list[Any] | None:
        """Run once, compiled, on copies of what ``scope`` holds; None where ops work on the host."""
        plan = self._attempts.plan
        if self._alike or any(segment.host for segment in plan.segments):
            return None
        return self.run(private_copy(scope, [n for n in plan.reads if n not in feed]), feed, seed)

    def interpret(
        self, scope: Scope, feed: Mapping[str, Any], seed: Any, after_op: Callable[..., None] | None = None
    ) -> list[Any]:
        """Run once, op by op, each in a jit of its own; ``after_op(op, values)`` is called after each."""
        with scope._lock, self._lock:
            self._check_fetches(scope)
            return self._interpreted.run(scope, feed, seed, after_op)


def compilations(program: Program) -> int:
    """How many times runs of a program were traced and compiled, for whatever was fed and fetched."""
    known = program.__dict__
    runs = (*known.get("_prepared_cache", {}).values(), *known.get("_staged_runs", ()))
    pruned = known.get("_pruned_cache", {}).values()
    return sum(run.compilations for run in runs) + sum(map(compilations, pruned))


def _undeclared_writes(program: ProgramView) -> tuple[str, ...]:
    """Variables that ops of the first block write and no block declares; a run reads those that the scope holds."""
    written = (n for op in program.blocks[0].ops for n in op.output_names())
    return tuple(dict.fromkeys(n for n in written if program.find_var(0, n) is None))


def _not_computed(job: Job) -> tuple[str, ...]:
    """Fetches that no op of any block writes, and that are not fed."""
    written = {n for block in job.program.blocks for op in block.ops for n in op.output_names()}
    return tuple(n for n in job.fetches if n not in written and n not in job.feeds)
