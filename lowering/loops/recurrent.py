"""``recurrent`` (StaticRNN) and its gradient: ``lax.scan`` over the leading axis.

The forward carry is the memories: ``state`` of step t is ``ex_state`` of step t + 1. The gradient's carry is the
gradients of ``ex_state``, so the one left by step t + 1 is part of the gradient of ``state`` in step t; those of
parameters are summed. As for ``while``, weight gradients are products of the rows of all steps where that pays off,
and large values that are cheap to compute are recomputed.

Invariants: rows are exact, and all inputs have the same number of steps, which the run may decide (``wide_steps``).
Inputs are not residuals: the gradient's scan reads the same row of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.engine.checks import over_steps
from lowering.engine.context import Context
from lowering.engine.dataflow import all_writes, uses
from lowering.errors import LoweringError, NeedsExact
from lowering.loops import arrays
from lowering.loops.carried import zero_gradient
from lowering.loops.facts import Facts, lies_still, written_alone
from lowering.loops.hoist import Hoist, Stack, find_hoists, stacks_of
from lowering.loops.remake import find_makers
from lowering.loops.save_plan import gradient_blocks, save_plan, seen_from_outside
from lowering.loops.saves import Recorder, restore
from lowering.loops.steps import Env, as_arrays, collected, pass_on
from lowering.loops.wide_steps import WideSteps, counted_scan, plain_only
from lowering.program import EMPTY, GRAD, BlockView
from lowering.values import LoDArray, SelectedRows, StepScopes, TensorArray
from lowering.wide.call import is_wide
from lowering.wide.calls import bare, widened


@dataclass
class Recurrence:
    """The names of one recurrent or recurrent_grad op."""

    ctx: Context
    block: BlockView
    inputs: list[str]
    initial: list[str]
    ex_states: list[str]
    states: list[str]
    reverse: bool

    @property
    def links(self) -> list[tuple[str, str, str]]:
        """(initial state, state of the step before, state) of each memory."""
        return list(zip(self.initial, self.ex_states, self.states, strict=True))


def make_recurrence(ctx: Context) -> Recurrence:
    """Read the names off the op."""
    op, attrs = ctx.op, ctx.op.attrs
    block = ctx.runner.program.blocks[int(attrs["sub_block"])]
    given = lambda slot: list(op.inputs.get(slot) or ())  # noqa: E731
    has = attrs.get("has_states", True) and given("initial_states")
    ex_states, states = (list(attrs["ex_states"]), list(attrs["states"])) if has else ([], [])
    initial = given("initial_states") if has else []
    return Recurrence(ctx, block, given("inputs"), initial, ex_states, states, bool(attrs.get("reverse")))


def _plain(value: Any, name: str, ctx: Context) -> Any:
    if value is None:
        raise LoweringError(f"{ctx.op.label} reads {name!r}, which is uninitialized; feed it or compute it before")
    if isinstance(value, LoDArray):
        if value.padded:
            raise NeedsExact("op recurrent is not declared for padded rows")
        return value.data
    return jnp.asarray(plain_only(ctx.op, name, value))


def _wide(rec: Recurrence) -> WideSteps:
    env = rec.ctx.env
    read = map(env.get, uses(rec.ctx.runner.program, rec.ctx.op))
    return WideSteps.over(rec.ctx.op, {n: env.get(n) for n in rec.inputs}, read)


def run_recurrent(ctx: Context) -> None:
    """Run op recurrent: changes ``ctx.env``."""
    rec, env = make_recurrence(ctx), ctx.env
    grads = gradient_blocks(ctx.runner.program, ctx.op, "step_scopes", "recurrent_grad")
    plan = save_plan(ctx.runner.program, rec.block, grads, ())
    if plan is not None:
        plan.final = [n for n in plan.final if n not in rec.inputs]
    recorder = Recorder(plan, _facts(rec))
    outputs = [n for n in ctx.op.outputs.get("outputs") or () if n != EMPTY]
    wide = _wide(rec)
    xs = {n: _plain(bare(env.get(n)), n, ctx) for n in rec.inputs}
    init = {ex: _plain(env.get(first), first, ctx) for first, ex, _ in rec.links}

    length = _length(xs, ctx)
    steps: list[Env] = []

    def step(memory: Env, row: tuple[Any, Env]) -> tuple[Env, tuple[Env, Env, Env]]:
        inner = {**env, **{n: wide.row(n, v) for n, v in row[1].items()}, **memory}
        with collected(ctx.runner, row[0]) as flags:
            kept = recorder.run(ctx.runner, rec.block.ops, inner)
        if _by_steps(ctx, length):
            # A branch that did not run in a step has left nothing, so the steps cannot be stacked.
            steps.append({**kept, **recorder.constants})
            pass_on(ctx.runner, as_arrays(flags))
            kept, flags = {}, {}
        after = {ex: _plain(inner[state], state, ctx) for _, ex, state in rec.links}
        left = {n: _plain(wide.leave(n, inner[n]), n, ctx) for n in outputs}
        return after, (left, kept, as_arrays(flags))

    turns = jnp.arange(length, dtype=jnp.int32)
    _, (ys, kept, flags) = _scan(ctx, step, as_arrays(init), (turns, xs), length, rec.reverse, wide.count)
    env.update({n: wide.stacked(n, v) for n, v in ys.items()})
    pass_on(ctx.runner, {n: over_steps(flag) for n, flag in flags.items()})
    scopes = (ctx.op.outputs.get("step_scopes") or (None,))[0]
    if scopes is not None:
        apart = tuple(reversed(steps) if rec.reverse else steps)
        extra = apart if _by_steps(ctx, length) else dict(recorder.constants)
        env[scopes] = StepScopes(kept, np.int32(length), extra)


def _facts(rec: Recurrence) -> Facts:
    program, op = rec.ctx.runner.program, rec.ctx.op
    alone, stays = written_alone(program, rec.block), lies_still(program, op)
    makers = find_makers(program, rec.block, alone, stays, [*rec.inputs, *rec.ex_states])
    makers.around.update(rec.inputs)  # the gradient's step reads the same row of them
    return Facts(makers=makers)


def _by_steps(ctx: Context, length: int) -> bool:
    """Whether each step runs separately, with known values."""
    return ctx.runner.interpret and length > 0


def _scan(
    ctx: Context,
    step: Callable[[Any, Any], tuple[Any, Any]],
    state: Any,
    xs: Any,
    length: int,
    back: bool,
    count: Any = None,
) -> tuple[Any, Any]:
    """``lax.scan``; step by step in interpret mode, where each op runs on its own and its values are known.

    ``count`` is the number of steps that are taken, if not all.
    """
    if count is not None:
        return counted_scan(step, state, xs, count, length, back=back)
    if not _by_steps(ctx, length):
        return jax.lax.scan(step, state, xs, length=length, reverse=back)
    rows: list[Any] = [None] * length
    for t in reversed(range(length)) if back else range(length):
        state, rows[t] = step(state, jax.tree_util.tree_map(itemgetter(t), xs))
    return state, jax.tree_util.tree_map(lambda *leaves: jnp.stack(leaves), *rows)


def _length(xs: Env, ctx: Context) -> int:
    sizes = {n: v.shape[0] for n, v in xs.items()}
    if not sizes or len(set(sizes.values())) != 1:
        raise LoweringError(
            f"{ctx.op.label} steps over the first axis of its inputs,"
            f" which must be equal and at least one; received {sizes}. Give every step_input the same length"
        )
    return next(iter(sizes.values()))


def _recorded(ctx: Context) -> StepScopes:
    op = ctx.op
    scopes = ctx.env.get((op.inputs.get("step_scopes") or ("",))[0])
    if not isinstance(scopes, StepScopes):
        raise LoweringError(
            f"op recurrent_grad (#{op.number}) found no step scopes in {op.inputs.get('step_scopes')}; the recurrent op"
            " that writes them has to run first, in the same program"
        )
    return scopes


def run_recurrent_grad(ctx: Context) -> None:
    """Run op recurrent_grad: changes ``ctx.env``."""
    rec, env, op, scopes = make_recurrence(ctx), ctx.env, ctx.op, _recorded(ctx)
    forward = ctx.runner.program.blocks[rec.block.forward_idx]
    wide = _wide(rec)
    xs = {n: _plain(bare(env[n]), n, ctx) for n in rec.inputs}
    outs = list(op.inputs.get("outputs") or ())
    given = zip(outs, op.inputs.get("outputs" + GRAD) or (), strict=True)
    d_outs = {o + GRAD: _plain(wide.gradients(o + GRAD, env[g], env.get(o)), g, ctx) for o, g in given if g in env}
    params = _pairs(op, "parameters")
    totals = {n: zero_gradient(bare(env[n])) for n, _ in params}
    memory = {ex: zero_gradient(_plain(env[first], first, ctx)) for first, ex, _ in rec.links}
    wanted = [n for n, _ in _pairs(op, "inputs")]
    hidden = set(rec.block.vars) | set(forward.vars)
    outer = {n: v for n, v in seen_from_outside(op, env).items() if n not in hidden or n in xs}
    rewound = all_writes(ctx.runner.program, rec.block.idx)
    apart = scopes.extra if isinstance(scopes.extra, tuple) else None
    hoist = find_hoists(rec.block, [n + GRAD for n, _ in params]) if apart is None else Hoist(list(rec.block.ops))

    def step(carry: tuple[Env, Env], row: tuple[Env, Env, Any]) -> tuple[tuple[Env, Env], tuple[Env, Env]]:
        memory, totals = carry
        rows, grads, saved = row
        inner = {**outer, **{n: wide.row(n, v) for n, v in (*rows.items(), *grads.items())}}
        found = restore({**saved, **scopes.extra} if apart is None else apart[saved], inner, rewound, ctx.runner)
        inner.update(found)
        stacks = stacks_of(scopes, found, inner) if hoist.taken else {}
        stacks.update({id(inner[n]): Stack(whole) for n, whole in {**xs, **d_outs}.items()})
        for _, ex, state in rec.links:
            # d ex_state of step t + 1 is one part of d state of step t; ops of the block add the others to it.
            inner[state + GRAD] = memory[ex]
        ctx.runner.run_ops(hoist.ops, inner)
        kept = hoist.collect(ctx.runner, inner, stacks)
        after = {ex: _dense(inner.get(ex + GRAD), memory[ex]) for ex in memory}

        def found_of(name: str, like: Any) -> Any:
            return _dense(wide.like(name, inner.get(name + GRAD), inner.get(name)), like)

        totals = {n: arrays.add_values(v, found_of(n, None)) for n, v in totals.items()}
        return (after, totals), ({n: found_of(n, rows[n]) for n in wanted}, kept)

    start, length = as_arrays((memory, totals)), _length(xs, ctx)
    turns = (xs, d_outs, scopes.saved if apart is None else np.arange(length))
    (memory, totals), (d_xs, products) = _scan(ctx, step, start, turns, length, not rec.reverse, wide.count)
    totals |= {n.removesuffix(GRAD): v for n, v in hoist.results(products, length, outer).items()}
    gathered = {n: env.get(g) for n, g in params if isinstance(totals[n], TensorArray)}  # by the ops after this one
    totals |= {n: arrays.add_values(totals[n], v) for n, v in gathered.items()}
    d_xs = {n: wide.stacked(n, v, backward=True) for n, v in d_xs.items()}
    totals = {n: widened(v, env[n].axes, wide.counts) if is_wide(env[n]) else v for n, v in totals.items()}
    first = {first: memory[ex] for first, ex, _ in rec.links}
    for slot, found in (("inputs", d_xs), ("parameters", totals), ("initial_states", first)):
        env.update({gradient: found[n] for n, gradient in _pairs(op, slot)})


def _dense(value: Any, like: Any) -> Any:
    """A gradient as a bare array; zeros where the block computes none."""
    if value is None:
        return None if like is None else jnp.zeros_like(like)
    if isinstance(value, SelectedRows):
        return value.to_dense()
    return value.data if isinstance(value, LoDArray) else value


def _pairs(op: Any, slot: str) -> list[tuple[str, str]]:
    """(forward name, outer gradient name) of the variables of a slot that want a gradient."""
    names, grads = op.inputs.get(slot) or (), op.outputs.get(slot + GRAD) or ()
    return [(n, g) for n, g in zip(names, grads, strict=True) if g != EMPTY]
