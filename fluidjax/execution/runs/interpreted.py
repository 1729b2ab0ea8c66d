"""A program run op by op, values going by name: each op in a jit of its own, on exact rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import jax

from fluidjax.base.scope import Scope
from fluidjax.execution.runs.compilations import Compilations, Job
from fluidjax.execution.runs.outside import Outside
from fluidjax.execution.runs.retry import Attempts
from fluidjax.execution.scopes.state import checked_fetches, gather_values
from fluidjax.execution.scopes.writer import write_back
from lowering.draws.host_kernels import cheapest
from lowering.engine.checks import Watch
from lowering.engine.interrupts import uninterrupted
from lowering.engine.plan import Plan
from lowering.engine.runner import Runner
from lowering.errors import Need
from lowering.program import OpView
from lowering.registry import get_op

_IMPL = "threefry2x32"


def environment(scope: Scope, job: Job, plan: Plan, feeds: list[Any], *, exact: bool) -> dict[str, Any]:
    """The values, by name, that a run starts from: those it reads or fetches from the scope, and the feeds."""
    names = [n for n in (*plan.reads, *job.fetches) if n not in job.feeds]
    env = gather_values(scope, dict.fromkeys(names), exact=exact)
    env.update(zip(job.feeds, feeds, strict=True))
    return env


def finish(scope: Scope, job: Job, plan: Plan, env: Mapping[str, Any]) -> list[Any]:
    """Store the values that a run keeps; returns those it fetches."""
    kept = {n: env[n] for n in plan.keeps if n in env}
    uninterrupted(lambda: write_back(scope, kept))
    return checked_fetches(scope, job.fetches, [env.get(n) for n in job.fetches])


def _drawn(op: OpView) -> int:
    """How many values an op without inputs draws."""
    definition = get_op(op.type)
    draws = definition is not None and "key" in definition.special
    return prod(map(int, op.attrs.get("shape", ()))) if draws else 0


class InterpretedRuns:
    """Runs of a job op by op, for debuggers, checks of every op's results, and startup programs."""

    def __init__(self, job: Job, attempts: Attempts, compilations: Compilations):
        self._job = job
        self._attempts = attempts
        self._capacities = compilations.capacities

    def run(
        self, scope: Scope, feed: Mapping[str, Any], seed: Any, after_op: Callable[..., None] | None = None
    ) -> list[Any]:
        """Run once; ``after_op(op, values)`` is called after each op."""
        plan = self._attempts.plan
        env = environment(scope, self._job, plan, self._attempts.exact_feeds(feed), exact=True)
        outside = Outside(scope)
        runner = self.runner(seed, after_op, outside)

        def run() -> None:
            for segment in plan.segments:
                runner.run_ops(segment.ops, env)

        try:
            # Ops that talk to other processes may wait for a long time.
            uninterrupted(run) if plan.constant and not any(s.host for s in plan.segments) else run()
        except Need as needed:
            raise needed.refusal() from needed
        results = finish(scope, self._job, plan, env)
        outside.finish()
        return results

    def runner(self, seed: Any, after_op: Callable[..., None] | None = None, outside: Outside | None = None) -> Runner:
        """A runner of ops on values as they are; ``outside`` is for host ops that move values themselves."""
        # A startup program runs once: compiling it does not pay, except for many random numbers.
        bare = seed is None or self._attempts.plan.constant
        if bare and self._attempts.plan.random:
            cheapest.expect(sum(_drawn(op) for segment in self._attempts.plan.segments for op in segment.ops))
        key = seed if bare else jax.random.wrap_key_data(jax.device_put(seed), impl=_IMPL)
        return Runner(
            self._job.program,
            key=key,
            interpret=True,
            platform=self._job.platform,
            capacities=self._capacities,
            after_op=after_op,
            watch=Watch() if self._job.checked else None,
            outside=outside,
        )
