"""``while``: one ``lax.while_loop``, or step by step if every value is known.

The carry consists of the outer variables that the block writes. Invariant: the carry has one structure (tree, shapes
and dtypes) before, between and after the steps, which ``settling`` finds as a fixed point; everything else that leaves
a step (residuals, overflow and fault flags) is returned by it, so that no tracer of the step escapes. A loop that stops
for lack of capacity, its condition still true, raises an overflow flag, and the executor discards the run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.engine.array_facts import ArrayFacts
from lowering.engine.checks import merged, needing
from lowering.engine.context import Context
from lowering.engine.dataflow import uses
from lowering.errors import CarryChanges, NeedsConcrete, NeedsExact, NeedsSizes
from lowering.loops import arrays
from lowering.loops.carried import fit, known, scalar, stacked_template, zeros
from lowering.loops.facts import find_facts, without_value
from lowering.loops.foreseen import stopped
from lowering.loops.growing import FIRST_STEPS, Growth, growth
from lowering.loops.loop import Env, Loop, make_loop
from lowering.loops.multiplied import multiplied
from lowering.loops.save_plan import Trips, follow_trips
from lowering.loops.saves import Recorder
from lowering.loops.settling import settled
from lowering.loops.stacking import array_key, stacked, stacked_reads
from lowering.loops.steps import as_arrays, collected, pass_on, write_at
from lowering.structure import same_structure
from lowering.values import StepScopes, TensorArray, is_padded
from lowering.wide.call import is_wide, refused

# The capacity in steps of the first attempt at a loop without a known bound.
FIRST_CAPACITY = 16


def run_while(ctx: Context) -> None:
    """Run op while, updating ``ctx.env``."""
    loop = make_loop(ctx)
    if ctx.runner.interpret:
        return run_steps(loop)
    found = follow_trips(loop.body, loop.cond, ctx.env, ctx.runner.bounds)
    wide = [v for v in map(ctx.env.get, uses(ctx.runner.program, ctx.op)) if is_wide(v)]
    if found.exact and not wide and _has_uneven_arrays(loop):
        return run_steps(loop)
    try:
        return _run_whole(loop, found)
    except (NeedsExact, NeedsConcrete) as problem:
        if wide:
            raise refused(ctx.op, wide, f"runs ops on them: {problem}") from problem
        if not found.exact:
            if isinstance(problem, NeedsConcrete) or any(is_padded(v) for v in ctx.env.values()):
                raise
            # Nothing is padded: shapes change from step to step, which only running step by step supports.
            raise NeedsConcrete(f"the condition {loop.cond} of a while loop, as {problem}") from problem
    return run_steps(loop)


def _has_uneven_arrays(loop: Loop) -> bool:
    """Whether an array that the loop reads has elements of different sizes: exact rows, one by one."""
    names = {n for op in loop.body.ops if op.type == "read_from_array" for n in op.inputs["X"]}
    for name in names:
        array = loop.ctx.env.get(name)
        if isinstance(array, TensorArray) and not array.stacked:
            present = [v for v in array.items or () if v is not None]
            if any(not same_structure(v, present[0]) for v in present):
                return True
    return False


def run_steps(loop: Loop) -> None:
    """Run the loop step by step; NeedsConcrete if the condition is not known during tracing."""
    env, runner = loop.ctx.env, loop.runner
    saved: list[Env] = []
    while True:
        go = known(env.get(loop.cond))
        if go is None:
            raise NeedsConcrete(f"the condition {loop.cond} of a while loop")
        if not go.any():
            break
        step, recorder = dict(env), Recorder(loop.plan)
        with runner.step(len(saved)):
            kept = recorder.run(runner, loop.body.ops, step)
        saved.append({**kept, **recorder.constants})
        env.update({n: step[n] for n in loop.written if n in step})
    if loop.scopes is not None:
        env[loop.scopes] = StepScopes({}, np.int32(len(saved)), tuple(saved))


# --- as one lax.while_loop ----------------------------------------------------------------------------------------


def _run_whole(loop: Loop, found: Trips) -> None:
    """Run the loop as one, if need be with room for what grows from step to step."""
    runner = loop.runner
    try:
        return _run_lax(loop, found)
    except CarryChanges as problem:
        if not runner.spare.growing or loop.plan is not None:
            raise
        try:
            return _run_lax(loop, found, growing=True)
        except (CarryChanges, NeedsSizes):  # an op cannot take what grows: that it changes is the problem
            raise problem from None


def _run_lax(loop: Loop, found: Trips, *, growing: bool = False) -> None:
    ctx, runner = loop.ctx, loop.runner
    exact = found.trips if found.exact else None
    if exact == 0:
        if loop.scopes is not None:
            ctx.env[loop.scopes] = StepScopes({}, np.int32(0), ())
        return
    stops = found.trips is None and (growing or loop.plan is not None or _writes_arrays(loop))
    capacity = found.trips or (runner.capacity(loop.key, FIRST_CAPACITY) if stops else 1)
    if growing and not found.exact and capacity > FIRST_STEPS:  # it may end long before
        capacity = min(capacity, runner.capacity(loop.key, FIRST_STEPS))
        stops = capacity != found.trips
    room, runner.array_capacity = runner.array_capacity, _array_room(loop, found, capacity)
    try:
        final, flags, scopes = _trace(loop, capacity, stops, growing=growing)
    finally:
        runner.array_capacity = room
    ctx.env.update(final)
    pass_on(runner, flags)
    if stops:
        runner.overflow(loop.key, stopped(loop, final, capacity))
    _finish(loop, found, final)
    if loop.scopes is not None:
        ctx.env[loop.scopes] = scopes if exact is None else replace(scopes, steps=np.int32(exact))


def _writes_arrays(loop: Loop) -> bool:
    return any(op.type == "write_to_array" for op in loop.body.ops)


def _array_room(loop: Loop, found: Trips, capacity: int) -> int:
    """The capacity of an array written in the loop: in step t a memory writes index t + 1."""
    return max([capacity + 1, *found.lengths.values()])


def _finish(loop: Loop, found: Trips, final: Env) -> None:
    """After the loop: counters that the host has followed are constants again, array lengths known or to be checked."""
    env = loop.ctx.env
    if found.exact:
        env.update({n: v for n, v in found.after.items() if n in final})
    for name, value in final.items():
        if not isinstance(value, TensorArray):
            continue
        needed = found.lengths.get(name) if name not in found.unsure else None
        if needed is not None and found.exact:
            before = _length_before(loop, name)
            if before is not None:
                env[name] = replace(value, length=np.int32(max(needed, before)))
        elif needed is None or needed > value.capacity:
            loop.runner.used[array_key(name)] = value.capacity
            loop.runner.overflow(array_key(name), needing(value.length, value.capacity))


def _length_before(loop: Loop, name: str) -> int | None:
    count = arrays.length(loop.initial.get(name))
    return count if isinstance(count, int) else None


def _trace(loop: Loop, capacity: int, stops: bool, *, growing: bool = False) -> tuple[Env, Env, StepScopes]:
    runner = loop.runner
    undefined = without_value(runner.program, loop.body, loop.written, loop.ctx.env)
    loop.initial = {n: loop.ctx.env[n] for n in loop.written if n in loop.ctx.env and n not in undefined}
    facts = find_facts(runner.program, loop.ctx.op, loop.body, loop.ctx.env)
    arrays_known = ArrayFacts(frozenset(facts.fixed), multiplied(runner.program, loop.body, facts.reads))
    recorder = Recorder(loop.plan, facts)
    outside = {**loop.ctx.env, **stacked_reads(loop.ctx.env, facts.fixed)}

    def step(carry: Env, t: Any) -> tuple[Env, Env, Env]:
        env = {**outside, **carry}
        with collected(runner, t, arrays_known) as flags:
            kept = recorder.run(runner, loop.body.ops, env)
        after = {n: stacked(n, env[n], runner) for n in loop.written if n in env}
        return after, kept, as_arrays(flags)

    start = {n: stacked(n, v, runner) for n, v in loop.initial.items()}
    start = {n: v for n, v in start.items() if not (isinstance(v, TensorArray) and not v.stacked)}
    grows = growth(loop.key, step, start, capacity) if growing else Growth(loop.key, {})
    start = grows.started(start)
    (template, kept, flags), traced = settled(loop, grows.fitted(step) if growing else step, start)
    # An array held element by element is stacked with the settled structure at once, not stacked and then padded.
    before = {n: loop.initial[n] if isinstance(v, TensorArray) else v for n, v in start.items()}
    state = {n: fit(before[n], t) if n in before else zeros(t) for n, t in template.items()}
    saved = {n: zeros(stacked_template(v, capacity)) for n, v in kept.items()}

    def more(carry: Any) -> Any:
        t, state = carry[0], carry[1]
        go = scalar(state[loop.cond], jnp.bool_)
        return go & (t < capacity) if stops else go

    def body(carry: Any) -> Any:
        t, state, saved, flags = carry
        after, kept, raised = traced(state, t)
        state = {n: fit(after[n], template[n]) if n in after else state[n] for n in state}
        saved = {n: write_at(saved[n], kept[n], t) for n in saved}
        return t + 1, state, saved, {n: merged(flags[n], raised[n]) for n in flags}

    first = (jnp.int32(0), as_arrays(state), saved, zeros(flags))
    t, state, saved, flags = jax.lax.while_loop(more, body, first)
    return grows.finished(state), flags, StepScopes(saved, t, dict(recorder.constants), capacity, facts.once)
