"""A run like the last one, directly on the state that the last one left: most training steps are such runs.

A run has settled once its state stays on the device and its compiled step neither overflows nor changes any form (see
``WholeRuns``). What may have happened since is found by three looks: whether tensors of the scope were given other
values (``ResidentState.current``), whether something was compiled for feeds of this form, and whether what it ran on is
still there. If any of them finds a change, the run is left to ``WholeRuns``, and nothing has happened.

Once two runs were fed the same form, later ones copy their feeds to memory that stays (see ``standing``) and look
nothing up by form: ``again``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax

from fluidjax.base.scope import Scope
from fluidjax.execution.lasting.resident import ResidentState
from fluidjax.execution.lasting.standing import Standing
from fluidjax.execution.lasting.standing_rooms import Rooms
from fluidjax.execution.rooms.tiers import Visit
from fluidjax.execution.runs.beside import Beside
from fluidjax.execution.runs.compilations import Compilations, Job
from fluidjax.execution.runs.retry import Attempts
from fluidjax.execution.scopes.state import checked_fetches
from fluidjax.execution.scopes.writer import drop
from fluidjax.execution.steps.compiled_form import Compiled
from fluidjax.execution.steps.form import form
from lowering.engine.interrupts import uninterrupted
from lowering.errors import Need


class SettledRuns:
    """Runs of a job that need nothing traced, gathered or enlarged."""

    def __init__(self, job: Job, attempts: Attempts, compilations: Compilations, beside: Beside):
        self._fetches = job.fetches
        self._attempts = attempts
        self._compilations = compilations
        self._beside = beside
        self._names, self._spread, self._owners = job.feeds, job.spread, job.owners
        self._may_stand = job.platform == "cpu"

    def again(self, scope: Scope, feed: Mapping[str, Any], program: Any) -> list[Any] | None:
        """Run on feeds of the last run's form, whatever jax's settings are, with the program's next seed: the fetched
        values; None when the feeds are others, and then nothing has happened.
        """
        state = self._compilations.state()
        if state is None or (state.standing is None and state.rooms is None):
            return None
        with scope._lock:
            standing, visit = state.standing, None
            if standing is None:
                standing, visit = self._in_room(state, feed)
            if standing is None or not state.current(scope):
                return None
            if not (state.prompt or self._awaited(state, standing)):
                return None
            if not standing.take(feed, program):
                return None
            if standing.looks:
                standing.look()
            if standing.ran:
                found = self._step(scope, state, standing.compiled, standing.given, standing.key)
            else:
                step = partial(self._step, scope, state, standing.compiled, standing.given, standing.key)
                found = uninterrupted(step)
                standing.ran = True  # not before: after an interrupt the next run is still the first
        if visit is not None and found is not None:
            visit.done(None)
        return found

    def _in_room(self, state: ResidentState, feed: Mapping[str, Any]) -> tuple[Standing | None, Visit | None]:
        """Where ragged feeds of these sizes stand, and their visit; Nones where they have to be looked at."""
        rooms = state.rooms
        visit = None if rooms is None or self._attempts.exact else rooms.visit(feed, self._beside.again)
        return (None, None) if rooms is None or visit is None else (rooms.standing.get(visit.visits.room), visit)

    @staticmethod
    def _awaited(state: ResidentState, standing: Standing) -> bool:
        """Whether the last step, which may read the memory of the feeds, is done; waits for it where steps to come are
        done when they return.

        A step is if what it is given is there: one that was given a large array of the host, or what such a step left,
        is computed by a thread of XLA's even where others are computed at once.
        """
        if standing.overtakes:
            return all(buffer.is_ready() for buffer in state.replaced)
        jax.block_until_ready((state.replaced, standing.given, standing.key))
        state.prompt = True
        return True

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
                    return self._again(scope, state, compiled, feed, feeds, seed) if state.current(scope) else None
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

    def _again(
        self,
        scope: Scope,
        state: ResidentState,
        compiled: Compiled,
        feed: Mapping[str, Any],
        feeds: list[Any],
        seed: Any,
    ) -> list[Any] | None:
        """Call the step as ``Compiled`` says: an interrupt comes before it or after it."""
        values = [*state.kept, *feeds]
        compiled.before(values)
        given = compiled.given(values)
        if compiled.executable.scratch:
            compiled.executable.reserve()
        state.prompt = False
        found = self._step(scope, state, compiled, given, seed)
        self._let_stand(state, compiled, feed, feeds, seed)
        return found

    def _let_stand(
        self, state: ResidentState, compiled: Compiled, feed: Mapping[str, Any], feeds: list[Any], seed: Any
    ) -> None:
        """Let the next run find memory for its feeds, if this one was the second with arrays of this form."""
        if state.standing is not None and state.standing.compiled is compiled:
            return
        visit = self._attempts.visit
        last = compiled if visit is None else visit.family
        before, state.last, state.standing = state.last, last, None
        if visit is not None:
            return self._let_rows_stand(state, compiled, visit, feed, feeds, seed, again=before is last)
        as_fed = all(feed[name] is value for name, value in zip(self._names, feeds, strict=True))
        if self._may_stand and before is compiled and as_fed and state.replaced and not compiled.traced.expected:
            found = Standing.of(compiled, state.kept, self._names, feeds, seed, spread=self._spread)
            state.standing, state.rooms = found, None

    def _let_rows_stand(
        self,
        state: ResidentState,
        compiled: Compiled,
        visit: Visit,
        feed: Mapping[str, Any],
        feeds: list[Any],
        seed: Any,
        *,
        again: bool,
    ) -> None:
        """Let later runs in this room find memory for their feeds, if the last batch was of this family, too."""
        if not (self._may_stand and self._spread is None and state.replaced and again):
            return
        rooms, room = state.rooms, visit.visits.room
        if rooms is None or rooms.family is not visit.family:
            rooms = state.rooms = Rooms(visit, self._names, feed, feeds, self._owners)
        if rooms.possible and room not in rooms.standing:
            rooms.add(room, Standing.of(compiled, state.kept, self._names, feeds, seed, rooms.left))

    def _step(self, scope: Scope, state: ResidentState, compiled: Compiled, given: Any, seed: Any) -> list[Any] | None:
        """Call the step: the fetched values; None where a buffer of a loop was too small, and nothing has changed."""
        slot, count = state.slot, state.count
        slot.extend(map(compiled.executable.call, (slot[0][0][:count],), (given,), (seed,)))
        left = slot[0]
        arrays = left[0]
        slot.append((arrays[:count],))  # without what was fetched
        if self._spread is not None:
            arrays, *_ = left = self._spread.read(left, count)
        if left[1] and any(map(bool, left[1])):  # steps that replace anything have no such flags
            return None
        if compiled.checks is not None:
            failure = compiled.after(left)
            if failure is not None:
                raise failure
        if state.apart and compiled.traced.structure is None:
            return list(arrays[count:])
        return checked_fetches(scope, self._fetches, compiled.results(arrays)[count:])

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
