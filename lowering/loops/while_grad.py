"""``while_grad``: the gradient block run over the saved steps, last step first, as Fluid wrote it.

The carry before the gradient of step t holds, for each variable that the loop writes, the gradient with respect to its
value after step t; for each one that the loop only reads, the sum of what steps t + 1, t + 2, ... contribute; and
the counters after step t. Invariants: ``restore`` gives the gradient block the values that its forward
step had, and a gradient from outside the loop is never mistaken for one of this backward pass (``seen_from_outside``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp

from lowering.engine.checks import merged
from lowering.engine.context import Context
from lowering.engine.dataflow import all_writes, sub_blocks
from lowering.errors import LoweringError
from lowering.loops import arrays
from lowering.loops.carried import fit, known_int, stacked_template, zero_gradient, zeros
from lowering.loops.facts import Again
from lowering.loops.gradient_arrays import Written, find_array_facts
from lowering.loops.hoist import Hoist, find_hoists, stacks_of, stacks_written
from lowering.loops.save_plan import ending, seen_from_outside
from lowering.loops.saves import Reread, at_step, restore
from lowering.loops.settling import settle
from lowering.loops.stacking import stacked, stacked_reads
from lowering.loops.steps import Env, as_arrays, collected, pass_on, write_at
from lowering.program import EMPTY, GRAD, PASS, BlockView, ProgramView, forward_name
from lowering.values import SelectedRows, StepScopes, TensorArray, data_of


@dataclass
class Backward:
    """One while_grad op to be run.

    Attributes:
        shared: inside name -> outer name of gradients that are carried from step to step: of arrays, and of outer
            variables the loop writes.
        summed: inside name -> (outer name, forward name) of gradients that are summed over the steps.
        counters: outer names, not gradients, that the gradient block writes (``increment`` rewinds them).
        ended: shared gradients that no op of the block writes: no gradient flows to the variable's value before the
            step, so the carry for step t - 1 is zero.
        writes: every name that the gradient block writes.
        unflagged: gradients of arrays whose elements are taken at most once.
        blank: gradients of arrays that are zeros before the loop.
        written: those of which each step writes an element of its own, once.
        outside: what the block sees outside; loop invariants.
        hoist: the block's ops without the products computed after the loop.
    """

    ctx: Context
    block: BlockView
    scopes: StepScopes
    shared: dict[str, str] = field(default_factory=dict)
    summed: dict[str, tuple[str, str]] = field(default_factory=dict)
    counters: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    writes: set[str] = field(default_factory=set)
    unflagged: set[str] = field(default_factory=set)
    blank: set[str] = field(default_factory=set)
    written: dict[str, Written] = field(default_factory=dict)
    outside: Env = field(default_factory=dict)
    hoist: Hoist = field(default_factory=lambda: Hoist([]))


def run_while_grad(ctx: Context) -> None:
    """Run op while_grad, updating ``ctx.env``."""
    back = _make(ctx)
    if isinstance(back.scopes.extra, tuple):
        final = _run_steps(back, _start(back))
    else:
        _stack_arrays(back)
        final = _run_lax(back, _start(back))
    for inside, outer in back.shared.items():
        if inside in final and outer != EMPTY:
            base = ctx.env.get(_base(inside))
            ctx.env[outer] = final[inside]
            if isinstance(base, TensorArray) and not base.stacked:
                ctx.env[outer] = arrays.gradient_like(final[inside], base)
    for inside, (outer, _) in back.summed.items():
        ctx.env[outer] = final[_total(inside)]
    ctx.env.update({n: final[n] for n in back.counters if n in final})


def _stack_arrays(back: Backward) -> None:
    """Stack the arrays that steps read or have gradients of, once, outside the loop."""
    scopes = back.scopes
    records = (*scopes.saved.values(), *scopes.extra.values())
    used = {v.array for v in records if isinstance(v, Reread)}
    used |= {v.source[0] for v in records if isinstance(v, Again) and v.source is not None}
    back.outside = {**back.outside, **stacked_reads(back.outside, used | {_base(n) for n in back.shared})}


def _total(inside: str) -> str:
    """The running sum has a separate name: inside the block the gradient's name means this step's part."""
    return inside + "@TOTAL"


def _make(ctx: Context) -> Backward:
    op, program = ctx.op, ctx.runner.program
    block = program.blocks[int(op.attrs["sub_block"])]
    scopes = ctx.env.get(op.inputs["StepScopes"][0])
    if not isinstance(scopes, StepScopes):
        raise LoweringError(
            f"{op.label} found no step scopes in"
            f" {op.inputs['StepScopes']}; the while op that writes them has to run first, in the same program"
        )
    back = Backward(ctx, block, scopes, outside=seen_from_outside(op, ctx.env))
    outside = list(op.inputs.get("Out" + GRAD) or ())
    inside = list(op.attrs.get("original_output_grad") or outside)
    back.shared = {i: o for i, o in zip(inside, outside, strict=True) if o != EMPTY}
    targets = list(op.outputs.get("X" + GRAD) or ())
    for name, outer in zip(op.inputs["X"], targets, strict=True):
        if outer == EMPTY or name + GRAD in back.shared:
            if outer != EMPTY:
                back.shared[name + GRAD] = outer
            continue
        if isinstance(ctx.env.get(name), TensorArray):
            back.shared[name + GRAD] = outer
        else:
            back.summed[name + GRAD] = (outer, name)
    forward = program.blocks[block.forward_idx].vars if block.forward_idx >= 0 else {}
    back.writes = writes = all_writes(program, block.idx)
    back.counters = [
        n for n in sorted(writes) if GRAD not in n and n not in block.vars and n not in forward and n in ctx.env
    ]
    ended = ending(program, block.idx, back.shared)
    back.ended = [n for n in back.shared if n in ended and not _is_array(ctx, n)]
    return back


def _is_array(ctx: Context, gradient: str) -> bool:
    return isinstance(ctx.env.get(_base(gradient)), TensorArray)


def _base(gradient: str) -> str:
    """The forward variable of a gradient inside the block, which may itself be a gradient of an earlier pass."""
    return gradient.rpartition(GRAD)[0]


def _check_absent(ctx: Context, inside: str, outer: str) -> None:
    """The gradient with respect to what the loop leaves may be absent, and is then zero, if nothing computes it.

    This is the case for arrays and variables read only by the loop itself. If an earlier op has computed a gradient
    of the same variable in the same pass and it was not read, the names do not match and zeros would be wrong.

    Raises:
        LoweringError: an earlier op computes the gradient, under this or another name.
    """
    op = ctx.op
    before = [o for o in ctx.runner.program.blocks[op.block_idx].ops[: max(op.index, 0)] if o.is_backward]
    passes = outer.count(PASS)
    made = {n for o in before for n in o.output_names() if GRAD in n and n.count(PASS) == passes}
    read = {n for o in before for n in o.input_names()}
    lost = sorted(n for n in made if n == outer or (forward_name(n) == _base(inside) and n not in read))
    if lost:
        raise LoweringError(
            f"{op.label} has no value for {outer!r}, the gradient of"
            f" {_base(inside)!r} after the loop.\n  expected: a value, or no op that computes this gradient;"
            f" received: none, although {', '.join(lost)} is computed before and read by nobody.\n  to do: append"
            " the backward pass again with fluidjax, or correct the names in the loaded program"
        )


def _start(back: Backward) -> Env:
    env, start = back.ctx.env, {}
    taken = _taken(back.ctx.runner.program, back.block)
    incoming = dict(
        zip(
            back.ctx.op.attrs.get("original_output_grad") or back.ctx.op.inputs.get("Out" + GRAD) or (),
            back.ctx.op.inputs.get("Out" + GRAD) or (),
            strict=True,
        )
    )
    for inside in back.shared:
        base, held = back.outside.get(_base(inside)), env.get(incoming.get(inside, ""))
        if isinstance(base, TensorArray):
            # What the surrounding loop has gathered; the elements of this one's steps are added.
            held = env.get(back.shared[inside]) if inside not in incoming else held
            once = _base(inside) in back.scopes.once or inside not in taken
            once = once and base.stacked and arrays.untouched(held)
            held = replace(held, taken=None) if once and held is not None else held
            start[inside] = arrays.gradient_like(held, base, flags=not once)
            back.unflagged.update([inside] if once else [])
            back.blank.update([inside] if held is None else [])
        elif held is not None:
            start[inside] = held
        elif base is not None:
            start[inside] = zero_gradient(base)
        if held is None and inside in incoming:
            _check_absent(back.ctx, inside, incoming[inside])
    for inside, (_, name) in back.summed.items():
        if name not in env:
            raise LoweringError(f"op while_grad needs the forward value of {name!r}, which is not there; keep it alive")
        start[_total(inside)] = zero_gradient(env[name])
    start.update({n: env[n] for n in back.counters})
    return start


def _taken(program: ProgramView, block: BlockView) -> set[str]:
    """The gradient arrays from which the block, or one inside it, takes elements."""
    found = {op.inputs["X"][0] for op in block.ops if op.type == "read_from_array"}
    for op in block.ops:
        for inner in sub_blocks(op):
            found |= _taken(program, program.blocks[inner])
    return found


def _step(back: Backward, state: Env, saved: Env, t: Any = None) -> tuple[Env, Env]:
    """(the carry for step t - 1, the operands of step t for products after the loop), from the carry of step t."""
    outer = {n: v for n, v in back.outside.items() if n not in back.block.vars}
    env = {**outer, **{n: v for n, v in state.items() if not n.endswith("@TOTAL")}}
    found = restore(saved, env, back.writes, back.ctx.runner, t)
    env.update(found)
    stacks = stacks_of(back.scopes, found, env) if back.hoist.taken else {}
    back.ctx.runner.run_ops(back.hoist.ops, env)
    stacks |= stacks_written(back.written, env)
    kept = back.hoist.collect(back.ctx.runner, env, stacks)
    after = {n: env[n] for n in [*back.shared, *back.counters] if n in state}
    after.update({n: zero_gradient(after[n]) for n in back.ended if n in after})
    for inside in back.summed:
        part = env.get(inside)
        part = part.to_dense() if isinstance(part, SelectedRows) else part
        after[_total(inside)] = arrays.add_values(state[_total(inside)], part)
    return after, kept


def _run_steps(back: Backward, state: Env) -> Env:
    back.hoist = Hoist(list(back.block.ops))
    for saved in reversed(back.scopes.extra):
        state, _ = _step(back, state, saved)
    return state


def _run_lax(back: Backward, start: Env) -> Env:
    runner, scopes = back.ctx.runner, back.scopes
    start = {n: stacked(n, v, runner) for n, v in start.items()}
    if known_int(scopes.steps) == 0:
        return start

    back.hoist = find_hoists(back.block, back.summed)
    stacked_ones = {n for n, v in start.items() if isinstance(v, TensorArray) and v.stacked}
    ends = scopes.extra if isinstance(scopes.extra, dict) else {}
    facts, back.written = find_array_facts(runner.program, back.block, stacked_ones, back.blank, back.unflagged, ends)

    def step(state: Env, t: Any) -> tuple[Env, Env, Env]:
        with collected(runner, t, facts) as flags:
            after, kept = _step(back, state, {**at_step(scopes.saved, t), **scopes.extra}, t)
        return {n: stacked(n, v, runner) for n, v in after.items()}, kept, as_arrays(flags)

    (template, kept, flags), traced = settle(step, start)
    state = {n: fit(start[n], t, backward=True) if n in start else zeros(t) for n, t in template.items()}
    rows = {n: zeros(stacked_template(v, scopes.capacity)) for n, v in kept.items()}

    def body(carry: Any) -> Any:
        t, state, rows, flags = carry
        after, kept, raised = traced(state, t)
        state = {n: fit(after[n], template[n], backward=True) if n in after else state[n] for n in state}
        rows = {n: write_at(rows[n], kept[n], t) for n in rows}
        return t - 1, state, rows, {n: merged(flags[n], raised[n]) for n in flags}

    last = jnp.asarray(scopes.steps, jnp.int32) - 1
    begin = (last, as_arrays(state), rows, zeros(flags))
    _, state, rows, flags = jax.lax.while_loop(lambda c: c[0] >= 0, body, begin)
    pass_on(runner, flags)
    buffers = {**rows, **{n: data_of(state[n].buffer) for n in back.written}}
    products = back.hoist.results(buffers, scopes.steps, back.outside)
    return {**state, **{_total(n): v for n, v in products.items()}}
