"""A run like the last one, directly on the state that the last one left: most training steps are such runs.

A run has settled once its state stays on the device and its compiled step neither overflows nor changes any form (see
``WholeRuns``). What may have happened since is found by three looks: whether tensors of the scope were given other
values (``ResidentState.current``), whether something was compiled for feeds of this form, and whether what it ran on is
still there. If any of them finds a change, the run is left to ``WholeRuns``, and nothing has happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from fluidjax.base.scope import Scope
from fluidjax.execution.compilations import Compilations, Job
from fluidjax.execution.compiled import Compiled
from fluidjax.execution.form import form
from fluidjax.execution.resident import ResidentState
from fluidjax.execution.retry import Attempts
from fluidjax.execution.state import checked_fetches
from fluidjax.execution.writer import drop
from lowering.errors import Need


class SettledRuns:
    """Runs of a job that need nothing traced, gathered or enlarged."""

    def __init__(self, job: Job, attempts: Attempts, compilations: Compilations):
        self._fetches = job.fetches
        self._attempts = attempts
        self._compilations = compilations

    def run(self, scope: Scope, feed: Mapping[str, Any], seed: Any) -> list[Any] | None:
        """Run like the last time: the fetched values; None when that is impossible, and then nothing has happened."""
        state = self._compilations.state()
        if state is None or not state.compiled:
            return None
        try:
            feeds = self._attempts.feeds(feed)
            compiled = state.compiled.get(form(feeds))
            if compiled is None:
                return None
            if state.alone:
                with scope._lock:
                    return self._again(scope, state, compiled, feeds, seed) if state.current(scope) else None
            with scope._lock:
                kept = state.kept if state.current(scope) else None
            return None if kept is None else self._read(scope, compiled, [*kept, *feeds], seed)
        except Need:
            return None

    def failure(self, scope: Scope, error: Exception) -> Exception:
        """The error to report for an ``error`` inside XLA, in a run or when its results are read.

        If the step had already taken the state over, its tensors hold nothing from now on.
        """
        state = self._compilations.state()
        with scope._lock:
            if state is None or not state.current(scope) or not state.is_lost():
                return error
            drop(scope, state)
        return lost(error)

    def _again(self, scope: Scope, state: ResidentState, compiled: Compiled, feeds: list[Any], seed: Any) -> list[Any]:
        """Call the step as ``Compiled`` says: an interrupt comes before it or after it."""
        replaced, values = state.replaced, [*state.kept, *feeds]
        compiled.before(values)
        given = compiled.given(values)
        if compiled.executable.scratch:
            compiled.executable.reserve()
        state.slot.extend(map(compiled.executable.call, (replaced,), (given,), (seed,)))
        left, count = state.slot[0], len(replaced)
        state.replaced = left[0][:count]  # without what was fetched
        failure = compiled.after(left)
        if failure is not None:
            raise failure
        if state.apart and compiled.traced.structure is None:
            return list(left[0][count:])
        return checked_fetches(scope, self._fetches, compiled.results(left[0])[count:])

    def _read(self, scope: Scope, compiled: Compiled, values: list[Any], seed: Any) -> list[Any] | None:
        """A run that changes nothing, beside other threads; None when one of them took what it reads."""
        try:
            compiled.before(values)
            left = compiled.executable.call((), compiled.given(values), seed)
        except (ValueError, RuntimeError):
            if any(v.is_deleted() for v in values if isinstance(v, jax.Array)):
                return None
            raise
        if any(map(bool, left[1])):
            return None
        failure = compiled.after(left)
        if failure is not None:
            raise failure
        return checked_fetches(scope, self._fetches, compiled.results(left[0]))


def lost(error: Exception) -> RuntimeError:
    """The error to report for an ``error`` inside XLA that left nothing of the state."""
    return RuntimeError(
        f"a step failed inside of XLA, after it had taken the program's state over to update it in place: {error}\n"
        "  expected: the memory that the step's earlier runs had; received: the failure above. The variables that the"
        " step updates hold nothing now\n"
        "  to do: load them from a checkpoint, or run the startup program, with smaller batches or more memory"
    )
