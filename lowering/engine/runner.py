"""Lowering a block: its ops run in order over an environment of named values, inside a trace or op by op."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np

from lowering import symbols
from lowering.engine import kinds
from lowering.engine.align import aligned, regrown
from lowering.engine.barriers import find_recomputed, separate
from lowering.engine.call import call, gather, scatter
from lowering.engine.conditions import Conditions
from lowering.engine.context import Context, in_place, special
from lowering.engine.dataflow import uses
from lowering.engine.declared import in_declared_rank
from lowering.engine.either import run_either
from lowering.engine.messages import op_error_message
from lowering.engine.pinned import compared, pinned_value
from lowering.engine.precision import in_full_precision
from lowering.engine.run import Env, Run
from lowering.engine.single import CompiledOp, SingleOp, stand_in_names, static_attrs
from lowering.engine.single_wide import run_with_room
from lowering.engine.x64 import with_x64
from lowering.errors import LoweringError, Need, NeedsConcrete, NeedsExact, NeedsSizes, OpError
from lowering.program import EMPTY, OpView, ProgramView, VarView
from lowering.registry import Check, OpDef, get_op
from lowering.sizes.counts import SlotValues, counted, each, flat, follows_rows, plain, without_counts
from lowering.values import LoDArray, RowCounts, SelectedRows, TensorArray, Wide, exact
from lowering.wide.call import is_wide, refused, takes_room
from lowering.wide.calls import check_gradients_of_wide, placed, run_wide
from lowering.wide.followed import refused_numbers, unsized


class Runner(Run):
    """Runs the ops of one program's blocks; see ``Run`` for its arguments."""

    def run_ops(self, ops: Iterable[OpView], env: Env) -> Env:
        """See Run."""
        ops = list(ops)
        if self.strange is None:
            self.strange = kinds.strangers(self.program, env)
        begin, pins = 0, frozenset() if self.interpret else compared(ops)
        for segment in [] if self.interpret else find_recomputed(self.program, ops):
            self._run_all(ops[begin : segment.begin], env, pins)
            held = separate(segment, env, self.program, self.platform)
            again = self._run_all(ops[segment.begin : segment.end], {**env, **held}, pins)
            written = (name for op in ops[segment.begin : segment.end] for name in op.output_names())
            env.update({name: again[name] for name in written if name in again})
            begin = segment.end
        return self._run_all(ops[begin:], env, pins)

    def _run_all(self, ops: Iterable[OpView], env: Env, pins: frozenset[str]) -> Env:
        for op in ops:
            results = run_either(self, op, env) if self.unsettled else self.run_op(op, env)
            env.update(results)
            for name in pins.intersection(results):
                env[name] = pinned_value(env[name])
        return env

    def run_op(self, op: OpView, env: Env) -> dict[str, Any]:
        """See Run."""
        if not self.strange:
            return self._run_exactly(op, env)
        kinds.check(self.program, op, env, self.strange)
        results = kinds.in_kernel_type(self.program, op, env, self._run_exactly(op, env), self.strange)
        kinds.note(self.program, op, env, results, self.strange)
        return results

    def _run_exactly(self, op: OpView, env: Env) -> dict[str, Any]:
        return self._run_op(op, env) if self.platform == "cpu" else in_full_precision(self._run_op, op, env)

    def _run_op(self, op: OpView, env: Env) -> dict[str, Any]:
        sizes = self.followed.of(op.input_names(), env)
        try:
            results = self._results(get_op(op.type), op, env)
        except NeedsSizes as needed:
            needed.asked_by(op)
            raise
        except Exception as error:  # while sizes are known, numbers that follow them are as well
            if sizes:
                raise refused_numbers(op, sizes, f"failed on numbers that follow them: {error}") from error
            self.fail(op, env, error)
        if sizes or self.followed.labels:
            self.followed.note(op, sizes, [n for n, v in results.items() if type(v) is not RowCounts], env)
        if self.program.newer:
            results = {name: in_declared_rank(self.program, op, name, value, env) for name, value in results.items()}
        if self.interpret:
            results = {name: _settled(value) for name, value in results.items()}
        if self.after_op is not None:
            self.after_op(op, results)
        return results

    def fail(self, op: OpView, env: Env, error: Exception) -> NoReturn:
        """Raise ``error``, of the rule of ``op`` on values of ``env``, as what users are told of it."""
        if isinstance(error, Need):
            raise error.asked_by(op)
        if isinstance(error, LoweringError):
            raise error
        message = op_error_message(op, env, error)
        if any(map(follows_rows, map(env.get, op.input_names()))):
            # Rows that do not match may be due to padding alone; without padding the error is the program's own.
            raise NeedsExact(message).asked_by(op) from error
        raise OpError(message) from error

    def _results(self, definition: OpDef, op: OpView, env: Env) -> dict[str, Any]:
        if not self.ample or definition.roomy is None:
            return self._dispatch(definition, op, env)
        try:
            return self._dispatch(definition, op, env)
        except Need:  # values that decide sizes, here of a result with room for all that they may say
            return self._with_room(definition, definition.roomy, op, env)

    def _with_room(self, definition: OpDef, rule: Check, op: OpView, env: Env) -> dict[str, Any]:
        values = each(gather(definition, op, env, self.program), plain)
        keywords = {spec.param: op.attrs.get(spec.name, spec.default) for spec in rule.attrs}
        keywords |= {"ctx": Context(op, self, env)} if rule.asks else {}
        results = rule.fn(*(values[slot.name] for slot in rule.inputs), **keywords)
        results = results if isinstance(results, tuple) else (results,)
        return scatter(definition, op, {s.name: r for s, r in zip(definition.outputs, results, strict=False)})

    def _dispatch(self, definition: OpDef, op: OpView, env: Env) -> dict[str, Any]:
        values = gather(definition, op, env, self.program)
        if definition.kind in ("block", "host"):
            self._refuse_room(op, env)
            return self._run_raw(definition, op, values, env)
        if definition.updates and op.block_idx != 0:
            raise OpError(
                f"{op.label} changes its inputs {list(definition.updates)}:"
                " expected it in the outermost block, where the change is kept; move it out of the loop or branch"
            )
        checked = self._checked(definition, op, values)
        key = self.draw_key(op) if "key" in definition.special else None
        if self.interpret and any(op.inputs.values()):
            return scatter(definition, op, _call_jitted(definition, op, values, key, self))

        def run(given: SlotValues, key: Any = key) -> SlotValues:
            traces = self.traces if op.block_idx == 0 else None
            queried = special(definition, op, key, Context(op, self, env), checked=checked)
            return call(definition, given, op.attrs, queried, traces)

        if any(map(is_wide, flat(values))):
            return scatter(definition, op, self._run_wide(definition, op, values, run, env, key))
        results = counted(definition, run, values)
        if results is None:
            values = unsized(definition, values, wide=False)
            given = aligned(definition, op, values, self)
            results = self._with_sizes(run, given) if given is values else regrown(values, run(given))
        Conditions(op, self).sized(results)
        named = scatter(definition, op, results if op.block_idx == 0 else each(results, plain))
        if op.computes_gradients and self.widest:
            check_gradients_of_wide(op, named, env)
        return named

    def _checked(self, definition: OpDef, op: OpView, values: SlotValues) -> bool:
        """Have checked what the op demands of its values; returns whether it is met whenever the op runs."""
        if self.watch is None or definition.demands is None or op.is_backward:
            return False
        return self.watch.see(definition, op, values, self.overflow, given=self.interpret or not self.inside)

    def _refuse_room(self, op: OpView, env: Env) -> None:
        """Raise NeedsSizes if an op that runs others would read values with room, or numbers that follow sizes."""
        if {Wide, RowCounts}.isdisjoint(map(type, env.values())) and not self.followed.labels:
            return
        names = list(uses(self.program, op))
        outside, sizes = [env.get(name) for name in names], self.followed.of(names, env)
        if any(map(is_wide, outside)) and not (self.spare.growing and takes_room(op, interpret=self.interpret)):
            raise refused(op, outside, "runs ops on them")
        if sizes:
            raise refused_numbers(op, sizes, "runs ops on numbers that follow them")

    def _with_sizes(self, run: Any, values: SlotValues) -> SlotValues:
        """Results of a plain op; what it computes of symbolic sizes stays known."""
        results = run(values)
        if not symbols.any_known(flat(values)):
            return results

        def listed(given: list[Any]) -> list[Any]:
            rest = iter(given)
            return list(flat(run(each(values, lambda _: next(rest)))))

        rest = iter(symbols.followed(listed, list(flat(values)), list(flat(results))))
        return each(results, lambda _: next(rest))

    def _run_wide(self, definition: OpDef, op: OpView, values: SlotValues, run: Any, env: Env, key: Any) -> SlotValues:
        if op.block_idx and not self.spare.growing:
            raise refused(op, flat(values), "is in a block of another op")
        if "key" in definition.special:
            run = partial(run, key=placed(op, key, list(flat(values))))
        self.widest = True
        values = unsized(definition, values, wide=True)
        results = run_wide(definition, op, values, run, env, Conditions(op, self))
        if any(isinstance(v, SelectedRows) for v in flat(results)):
            self.scattered |= {axis.label for v in flat(values) if is_wide(v) for axis in v.axes}
        return results if op.block_idx == 0 else each(results, plain)

    def _run_raw(self, definition: OpDef, op: OpView, values: SlotValues, env: Env) -> dict[str, Any]:
        """Block and host ops receive raw values; a rule that returns None has written ``ctx.env`` itself."""
        keywords = {
            spec.param: op.attrs.get(spec.name, spec.default) for spec in definition.attrs.values() if spec.param
        }
        key = self.draw_key(op) if "key" in definition.special else None
        given = special(definition, op, key, Context(op, self, env))
        keywords.update({name: given[name] for name in definition.special})
        watch, values = self.watch, each(values, plain)
        if definition.kind == "host" and _traced(values):
            raise NeedsConcrete(f"what op {op.type} reads")
        try:
            # The gradient of a loop or branch recomputes values of its forward pass, which have already been checked.
            self.watch = None if op.is_backward else watch
            with without_counts(env):
                result = definition.fn(*[values[s.name] for s in definition.inputs], **keywords)
        finally:
            self.watch = watch
        if result is None:
            if self.interpret:  # an element of an array has rows to spare, which the ops after it do not
                env.update({name: _settled(env[name]) for name in op.output_names() if name in env})
            return {}
        if len(definition.outputs) == 1:
            result = (result,)
        return scatter(definition, op, {s.name: r for s, r in zip(definition.outputs, result, strict=True)})


def run_block(program: ProgramView, block_idx: int, env: Env, **options: Any) -> Env:
    """Run one block over ``env`` (see ``Runner`` for the options) with 64-bit types as in Fluid."""
    return with_x64(Runner(program, **options).run_block, block_idx, env)


def _call_jitted(definition: OpDef, op: OpView, values: SlotValues, key: Any, runner: Runner) -> SlotValues:
    compiled = _compiled(_content(definition, op, runner))
    if runner.turn is not None and runner.platform == "cpu":  # elsewhere, ways over the host would cost more
        results = run_with_room(compiled, definition, op, values, key, runner.program)
        if results is not None:
            return results
    need = compiled.need(values)
    if need is None:
        try:
            return compiled.run(values, key)
        except (NeedsExact, NeedsConcrete) as error:
            need = compiled.note(values, error)
    if issubclass(need, NeedsExact):
        return compiled.run(jax.tree_util.tree_map(exact, values, is_leaf=_is_value), key)
    # The rule needs host values (such as a shape): here every value is known, so it is called directly.
    host = jax.tree_util.tree_map(_host, values)
    results = None if definition.fold else compiled.knowing(host, key)
    if results is not None:
        return results
    return call(definition, host, op.attrs, special(definition, op, key, Context(op, runner, {})))


def _settled(value: Any) -> Any:
    """A result of an op that ran alone: its row count is known now, and rules without padding support may follow."""
    return exact(value) if follows_rows(value) and not isinstance(value.nrows, jax.core.Tracer) else value


def _traced(values: SlotValues) -> bool:
    """Whether one of the values is known only to the running program, as in a loop or branch."""
    parts = [value for value in flat(values) if type(value) is not np.ndarray]
    return bool(parts) and any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves(parts))


def _is_value(value: Any) -> bool:
    return isinstance(value, (LoDArray, TensorArray))


def _host(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, jax.Array) and value.size <= 4096 else value


class _Content(NamedTuple):
    """All of an op that decides what it is compiled to, besides the shapes of its inputs.

    Attributes:
        type, attrs: the op's.
        rule: its rule, whose replacement at run time takes effect so.
        outs: (slot, which of its variables are empty) for each output slot.
        declared: the outputs as the program declares them, for a rule that asks; None for others.
        aliases: the output slots that are variables of inputs.
        backward: whether it computes gradients.
        platform: see ``Run``.
        version: of the program, for a rule that asks; 0 for others.
    """

    type: str
    rule: Any
    attrs: tuple[tuple[str, Any], ...]
    outs: tuple[tuple[str, tuple[bool, ...]], ...]
    declared: tuple[tuple[str, VarView | None], ...] | None
    aliases: tuple[str, ...]
    backward: bool
    platform: str
    version: int


def _content(definition: OpDef, op: OpView, runner: Runner) -> _Content:
    asks = "ctx" in definition.special
    outs = tuple(sorted((slot, tuple(n == EMPTY for n in names)) for slot, names in op.outputs.items()))
    declared = tuple((n, runner.program.find_var(op.block_idx, n)) for n in op.output_names()) if asks else None
    return _Content(
        definition.type,
        definition.fn,
        static_attrs(op),
        outs,
        declared,
        aliases=tuple(sorted(in_place(definition, op))),
        backward=op.computes_gradients,
        platform=runner.platform,
        version=runner.program.version if asks else 0,
    )


@lru_cache(maxsize=4096)
def _compiled(content: _Content) -> CompiledOp:
    """One compiled op, shared by all ops of equal content; jax.jit caches by shapes underneath."""
    definition = get_op(content.type)
    names = stand_in_names(content.outs, content.declared)
    inputs = {definition.inplace[slot]: names[slot] for slot in content.aliases}
    op = OpView(content.type, inputs, names, {**dict(content.attrs), "op_role": int(content.backward)})
    program = SingleOp(dict(content.declared or ()), content.version)
    runner = Runner(program, platform=content.platform)  # type: ignore[arg-type]

    def alone(values: SlotValues, key: Any) -> SlotValues:
        return call(definition, values, op.attrs, special(definition, op, key, Context(op, runner, {})))

    def run(values: SlotValues, key: Any) -> SlotValues:
        if not any(map(is_wide, flat(values))):
            return alone(values, key)
        at = None if key is None else placed(op, key, list(flat(values)))
        return run_wide(definition, op, values, partial(alone, key=at), {})

    return CompiledOp(run)
