"""``conditional_block`` and its gradient: ``lax.cond``, or no branch at all if the condition is known.

Invariants: both branches of a ``lax.cond`` return one structure. A variable that the block writes has the join of
its values before and after it; one without a value before is zeros if the block does not run, where Fluid leaves it
uninitialized. Residuals are those of one step, zeros if it did not run; the gradient takes its own branch by the
same condition, so it never reads such zeros.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.engine.context import Context
from lowering.engine.dataflow import all_writes, definitions
from lowering.errors import LoweringError, NeedsConcrete, UninitializedError
from lowering.loops import arrays
from lowering.loops.carried import fit, join, known, scalar, with_rows_of, zero_gradient, zeros
from lowering.loops.save_plan import ending, gradient_blocks, outer_writes, save_plan, seen_from_outside
from lowering.loops.saves import Recorder, restore
from lowering.loops.stacking import stacked
from lowering.loops.steps import Env, as_arrays, collected, pass_on
from lowering.program import EMPTY, GRAD, BlockView, ProgramView
from lowering.sizes.labels import count_of
from lowering.structure import abstract, same_structure
from lowering.tracing import trace
from lowering.values import LoDArray, SelectedRows, StepScopes, TensorArray, Wide
from lowering.wide.call import refused


def condition(ctx: Context, cond: list[Any], inputs: list[Any], is_scalar: bool) -> Any:
    """Whether the block runs: a host bool if known, else a traced scalar.

    A scalar condition is the truth of Cond; otherwise the block runs when every Input has elements.
    """
    if is_scalar:
        if not cond or cond[0] is None:
            raise LoweringError(
                f"op {ctx.op.type} (#{ctx.op.number}) has no value for its condition {ctx.op.inputs.get('Cond')};"
                " compute it before"
            )
        host = known(cond[0])
        return bool(host.any()) if host is not None else scalar(cond[0], jnp.bool_)
    run: Any = True
    for value in inputs:
        if isinstance(value, LoDArray) and value.padded:
            run = run & (jnp.asarray(value.nrows) > 0)
        elif hasattr(value, "shape") and int(np.prod(value.shape)) == 0:
            return False
    return run if isinstance(run, bool) or known(run) is None else bool(known(run))


def run_conditional(ctx: Context, cond: list[Any], inputs: list[Any], is_scalar: bool) -> None:
    """Run op conditional_block, updating ``ctx.env``."""
    op, program, env = ctx.op, ctx.runner.program, ctx.env
    body = program.blocks[int(op.attrs["sub_block"])]
    scope = (op.outputs.get("Scope") or (None,))[0]
    written = list(dict.fromkeys([*outer_writes(body), *(n for n in op.outputs.get("Out") or () if n != EMPTY)]))
    plan = save_plan(program, body, gradient_blocks(program, op, "Scope", "conditional_block_grad"), written)
    run = condition(ctx, cond, inputs, is_scalar)
    recorder = Recorder(plan)

    def taken(_: None = None) -> tuple[Env, Env, Env]:
        inner = dict(env)
        with collected(ctx.runner) as flags:
            kept = recorder.run(ctx.runner, body.ops, inner)
        return {n: inner[n] for n in written if n in inner}, kept, as_arrays(flags)

    if isinstance(run, bool):
        kept: Env = {}
        if run:
            after, kept, flags = taken()
            env.update(after)
            pass_on(ctx.runner, flags)
        _save(env, scope, {**kept, **recorder.constants}, run)
        return
    if ctx.runner.interpret:
        raise NeedsConcrete("the condition of a conditional_block")
    env.update({n: stacked(n, env[n], ctx.runner) for n in written if isinstance(env.get(n), TensorArray)})
    try:
        (shapes, kept_shapes, flag_shapes), again = trace(taken)
    except UninitializedError as error:  # no fault unless the block runs
        raise NeedsConcrete("the condition of a conditional_block, which reads a variable without a value") from error
    template = {n: join(env[n], t) if _fits(env.get(n)) else t for n, t in shapes.items()}

    blank = {n: _blank(ctx, t) for n, t in template.items() if not _fits(env.get(n))}

    def yes(_: None) -> Any:
        after, kept, flags = again()
        return as_arrays(({n: fit(after[n], t) for n, t in template.items()}, kept, flags))

    def no(_: None) -> Any:
        rest = {n: fit(env[n], t) if _fits(env.get(n)) else blank[n] for n, t in template.items()}
        return as_arrays((rest, zeros(kept_shapes), zeros(flag_shapes)))

    after, kept, flags = jax.lax.cond(run, yes, no, None)
    env.update(after)
    pass_on(ctx.runner, flags)
    _save(env, scope, kept, run, dict(recorder.constants))


def _blank(ctx: Context, template: Any) -> Any:
    """What a variable without a value has if the block does not run: zeros, in as many places as others use."""
    if not isinstance(template, Wide):
        return zeros(template)
    wide = [v for v in ctx.env.values() if isinstance(v, Wide)]
    counts = {axis.label: n for v in wide for axis, n in zip(v.axes, v.counts, strict=True)}
    try:
        used = tuple(jnp.asarray(count_of(axis.label, counts), np.int32) for axis in template.axes)
    except KeyError:
        raise refused(ctx.op, [template], "leaves what has a size that is known only inside") from None
    return Wide(zeros(template.data), used, template.axes)


def _fits(value: Any) -> bool:
    """Whether the variable had a value before that remains if the block does not run."""
    return value is not None and not (isinstance(value, TensorArray) and not value.stacked)


def _save(env: MutableMapping[str, Any], scope: str | None, kept: Env, run: Any, constants: Env | None = None) -> None:
    if scope is not None:
        sure = isinstance(run, bool)
        steps = np.int32(run) if sure else run.astype(jnp.int32)
        env[scope] = StepScopes(kept, steps, constants or {}, ran=run if sure else None)


def run_conditional_grad(ctx: Context) -> None:
    """Run op conditional_block_grad, updating ``ctx.env``; a block that did not run leaves gradients unchanged."""
    op, env = ctx.op, ctx.env
    block = ctx.runner.program.blocks[int(op.attrs["sub_block"])]
    scopes = _recorded(ctx)
    outer = _out_grads(ctx)
    pairs = _targets(ctx, outer)
    # What the surrounding loop has gathered of an array's gradient; the elements of this branch are added.
    handed = {n for n, _ in outer}
    outer += [(n + GRAD, o) for o, n in pairs if n + GRAD not in handed and isinstance(env.get(n), TensorArray)]
    ended = ending(ctx.runner.program, block.idx, [n for n, _ in outer])
    ended = {n for n in ended if not isinstance(env.get(n.removesuffix(GRAD)), TensorArray)}

    def taken(_: None = None) -> Env:
        inner = {n: v for n, v in seen_from_outside(op, env).items() if n not in block.vars}
        inner.update(_incoming(ctx, outer))
        inner.update(
            restore({**scopes.saved, **scopes.extra}, inner, all_writes(ctx.runner.program, block.idx), ctx.runner)
        )
        ctx.runner.run_ops(block.ops, inner)
        found = {}
        for target, name in pairs:
            value = None if name + GRAD in ended else inner.get(name + GRAD)
            value = value.to_dense() if isinstance(value, SelectedRows) else value
            found[target] = zero_gradient(env[name]) if value is None else _settled(value)
        return {**found, **{n: inner[n] for n in updates}}

    updates = _updates(ctx.runner.program, block, env)
    around = {n.removesuffix(GRAD): _settled(env[g]) for n, g in outer if g in env}
    # If neither the branch nor anything before it has written the variable, it has no gradient.
    blank = {o: around[n] if n in around else zero_gradient(env[n]) for o, n in pairs if n in around or n in env}
    blank.update({n: env[n] for n in updates})
    run = known(scopes.steps) if scopes.ran is None else np.bool_(scopes.ran)
    if run is not None:
        env.update(taken() if run.any() else blank)
        return
    shapes, again = trace(taken)
    template = {o: join(blank[o], t) if not same_structure(blank[o], t) else abstract(t) for o, t in shapes.items()}
    results = jax.lax.cond(
        jnp.asarray(scopes.steps) > 0,
        lambda _: as_arrays({o: fit(v, template[o], backward=True) for o, v in again().items()}),
        lambda _: as_arrays({o: fit(v, template[o], backward=True) for o, v in blank.items()}),
        None,
    )
    env.update(results)


def _recorded(ctx: Context) -> StepScopes:
    """What the forward op has recorded: whether its block ran, and the values that it saved."""
    scopes = ctx.env.get((ctx.op.inputs.get("Scope") or ("",))[0])
    if not isinstance(scopes, StepScopes):
        raise LoweringError(
            f"op conditional_block_grad (#{ctx.op.number}) found no scope in {ctx.op.inputs.get('Scope')}; the"
            " conditional_block op that writes it has to run first, in the same program"
        )
    return scopes


def _incoming(ctx: Context, outer: list[tuple[str, str]]) -> Env:
    """The gradients that flow into the block, by their names inside.

    If nothing after the branch has used a variable that existed before it, its gradient is zero. What follows may have
    cut the rows to the smaller room of another branch.
    """
    env, before = ctx.env, set(ctx.op.inputs.get("Input") or ())
    bases = [(n, g, n.removesuffix(GRAD)) for n, g in outer]
    flowing = [(n, g, b) for n, g, b in bases if g in env or (b in before and _is_tensor(env.get(b)))]
    found = {n: env[g] if g in env else zero_gradient(env[b]) for n, g, b in flowing}
    return {n: with_rows_of(env[b], found[n]) if isinstance(env.get(b), LoDArray) else found[n] for n, _, b in flowing}


def _settled(value: Any) -> Any:
    """A gradient array held element by element without its flags: zeros in place of what was taken."""
    return arrays.cleared(value) if isinstance(value, TensorArray) and not value.stacked else value


def _is_tensor(value: Any) -> bool:
    return value is not None and not isinstance(value, TensorArray | SelectedRows)


def _updates(program: ProgramView, block: BlockView, env: MutableMapping[str, Any]) -> list[str]:
    """Outer variables changed by the block, or by one inside it.

    An optimizer inside the branch writes parameters and its own state; the gradient of a counter rewinds it.
    """
    written = sorted(all_writes(program, block.idx))
    return [n for n in written if n not in block.vars and GRAD not in n and n in env]


def _out_grads(ctx: Context) -> list[tuple[str, str]]:
    """(name inside, name outside) of the output gradients, which come from outside."""
    names, given = ctx.op.inputs.get("Out") or (), ctx.op.inputs.get("Out" + GRAD) or ()
    return [(n + GRAD, g) for n, g in zip(names, given, strict=False)]


def _targets(ctx: Context, outer: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """(outer gradient name, forward name) of the inputs that need a gradient, and of what the block overwrites."""
    names = [*(ctx.op.inputs.get("Input") or ())]
    outs = ctx.op.outputs.get("Input" + GRAD) or ()
    found = [(o, n) for o, n in zip(outs, names, strict=True) if o != EMPTY]
    wanted = {n for _, n in found}
    held = [(g, n.removesuffix(GRAD)) for n, g in outer if g in ctx.env]
    return found + [(g, n) for g, n in held if n in ctx.env and n not in wanted and _had_a_value(ctx, n)]


def _had_a_value(ctx: Context, name: str) -> bool:
    """Whether ``name`` may have had a value before the branch, with a gradient different from that after it.

    A variable written by the branch alone has none: its gradient keeps its name, as in Paddle, and can be fetched.
    """
    op, block = ctx.op, ctx.runner.program.blocks[ctx.op.block_idx]
    var = block.vars.get(name)
    if var is None or var.persistable or var.need_check_feed:
        return True
    for earlier in block.ops:
        if earlier.outputs.get("Scope") == op.inputs.get("Scope"):
            return False
        if name in earlier.input_names() or name in definitions(ctx.runner.program, earlier):
            return True
    return True
