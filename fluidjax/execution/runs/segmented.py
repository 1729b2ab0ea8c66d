"""A program cut at its host ops: these run singly on exact rows, and the ops between two of them as one jitted step.

Nothing is donated, so the scope keeps the state from before the run until all segments have succeeded.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np

from fluidjax.base.scope import Scope
from fluidjax.execution.runs import retry
from fluidjax.execution.runs.compilations import Compilations, Job
from fluidjax.execution.runs.interpreted import InterpretedRuns, environment, finish
from fluidjax.execution.runs.outside import Outside
from fluidjax.execution.runs.retry import Attempts
from fluidjax.execution.scopes.exchange import lod_array, usual_room
from fluidjax.execution.scopes.state import to_device
from lowering.engine.host_steps import HostSteps
from lowering.engine.interrupts import uninterrupted
from lowering.engine.plan import Plan, Segment
from lowering.values import Form, LoDArray, exact, valid_rows


class SegmentedRuns:
    """Runs of a job with ops that work on the host."""

    def __init__(self, job: Job, attempts: Attempts, compilations: Compilations, interpreted: InterpretedRuns):
        self._job = job
        self._attempts = attempts
        self._compilations = compilations
        self._interpreted = interpreted
        self._room: dict[str, int] = {}
        self._hosted: tuple[Plan, dict[int, HostSteps]] | None = None
        self._least = retry.least_rows(job.program)

    def run(self, scope: Scope, feeds: list[Any], seed: Any) -> list[Any] | None:
        """Run once: the fetched values; None when a buffer overflowed and was enlarged, with nothing stored."""
        plan, outside = self._attempts.plan, Outside(scope)
        # What host ops leave is new in each run: a step takes it from the host in less time than a copy there takes.
        written = {name for segment in plan.segments if segment.host for name in segment.writes}
        to_device(scope, [name for name in plan.keeps if name not in written])
        env = environment(scope, self._job, plan, feeds, exact=self._attempts.exact)
        hosted = self._host_steps(plan)
        for i, segment in enumerate(plan.segments):
            if segment.host:
                self._run_on_host(segment, hosted[i], env, seed, outside)
            elif not self._run_jitted(segment, env, seed):
                return None
        results = finish(scope, self._job, plan, env)
        outside.finish()
        return results

    def _run_jitted(self, segment: Segment, env: dict[str, Any], seed: Any) -> bool:
        """Run a jitted segment; returns whether it ran, or else a buffer was enlarged."""
        inputs = tuple(n for n in segment.reads if n in env)
        compiled = self._compilations.get(segment, inputs, segment.writes)
        values = [_form(env[n]) if n in segment.forms else env[n] for n in inputs]
        results, overflows, failure = uninterrupted(partial(self._compilations.step, compiled, (), values, seed))
        if overflows and self._attempts.grew(compiled, overflows):
            return False
        if failure is not None:
            raise failure
        env.update({n: v for n, v in zip(segment.writes, results, strict=True) if v is not None})
        return True

    def _host_steps(self, plan: Plan) -> dict[int, HostSteps]:
        """The host ops of each segment that has them, by its number."""
        if self._hosted is None or self._hosted[0] is not plan:
            program, platform = self._job.program, self._job.platform
            segments = [(i, segment) for i, segment in enumerate(plan.segments) if segment.host]
            self._hosted = plan, {i: HostSteps(program, s.ops, s.reads, platform) for i, s in segments}
        return self._hosted[1]

    def _run_on_host(
        self, segment: Segment, steps: HostSteps, env: dict[str, Any], seed: Any, outside: Outside
    ) -> None:
        """Run host ops on exact values; ragged results are padded again for the jitted ops after them."""
        local = {n: exact(env[n]) for n in segment.reads if n in env}
        seed = seed if self._attempts.plan.random else None  # blocks below an op may draw
        steps.run(self._interpreted.runner(seed, outside=outside), local)
        env.update({n: self._repadded(n, local[n]) for n in segment.writes if n in local})

    def _repadded(self, name: str, value: Any) -> Any:
        """A host op's result, whose rows get room for as many as it ever had."""
        if self._attempts.exact or not isinstance(value, LoDArray):
            return exact(value)
        data, lod = valid_rows(value)
        rows, *inner = usual_room(len(data), lod)
        had = self._room.get(name, 0)
        if rows > had:  # more than ever before: room for some more, as more will come
            rows = max(rows, usual_room(len(data) + len(data) // 2, lod)[0], self._least)
        rows = self._room[name] = max(rows, had)
        return lod_array(data, lod, room=(rows, *inner), longest=value.longest)


def _form(value: Any) -> Any:
    """The argument of a step that asks for shape and dtype alone: no data, if it is an array."""
    return Form(value.shape, value.dtype) if isinstance(value, np.ndarray | jax.Array) else value
