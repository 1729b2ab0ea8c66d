"""A program made ready for one fetch list: planned, traced and compiled on demand, its state kept in the Scope."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from fluidjax.base.scope import Scope
from fluidjax.execution.buckets import bucket
from fluidjax.execution.compiled import Changes, Compiled, CompiledOps, Step, form, given
from fluidjax.execution.exchange import lod_array, trim
from fluidjax.execution.feed import Feeder
from fluidjax.execution.interrupts import uninterrupted
from fluidjax.execution.packing import NOTHING, Unpackable
from fluidjax.execution.recompilations import Recompilations
from fluidjax.execution.resident import ResidentState
from fluidjax.execution.starts import Starts
from fluidjax.execution.state import distinct, gather_plain, gather_values, is_plain, on_device, write_back
from lowering.engine.checks import Watch
from lowering.engine.either import NeedsOneForm
from lowering.engine.plan import Plan, Segment, make_plan
from lowering.engine.runner import Runner
from lowering.engine.validate import validate
from lowering.engine.widen import widened
from lowering.errors import InvalidArgumentError, LoweringError, Need, NeedsConcrete, NeedsExact
from lowering.program import ProgramView
from lowering.values import LoDArray, exact

# A loop that overflows this many doublings is not going to end.
_MAX_DOUBLINGS = 30
_IMPL = "threefry2x32"


@dataclass(frozen=True)
class Layout:
    """How a run's names are passed.

    Attributes:
        replaced: plain arrays that the program reads and writes; the first inputs and, in the same order, the first
            results: jax hands a donated buffer to the first result of its shape, and XLA copies every buffer that
            goes to another variable.
        kept: plain arrays that it only reads.
        others: what else it reads.
        written: results that go into the scope beside those in ``replaced``.
    """

    replaced: tuple[str, ...]
    kept: tuple[str, ...]
    others: tuple[str, ...]
    written: tuple[str, ...]


def _no_state() -> None:
    """Stands for a reference to a state where there is none."""


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
    """

    def __init__(
        self, program: ProgramView, feeds: Sequence[str], fetches: Sequence[str], platform: str, checked: bool = True
    ):
        validate(program)
        self._program = program
        self._feeds = tuple(feeds)
        self._fetches = tuple(fetches)
        self._platform = platform
        self._checked = checked
        self._outside: set[int] = set()
        self._exact = False
        self._capacities: dict[str, int] = {}
        self._room: dict[str, int] = {}
        self._compiled: dict[Any, CompiledOps] = {}
        self._retired = 0
        self._recompilations = Recompilations(program)
        self._fresh = False  # whether the step that runs compiled something
        self._layout = Layout((), (), (), ())
        self._laid_out = False
        self._state: Callable[[], ResidentState | None] = _no_state
        self._whole: CompiledOps | None = None
        self._lock = threading.RLock()  # inside that of a scope
        self._pack = platform == "cpu"
        self._starts = Starts()
        self._unsettled: dict[str, Any] = {}
        self._plan = self._make_plan(())
        self._undeclared = self._undeclared_writes()
        self._widened = widened(program, self._fetches)
        self._feeder = Feeder(program.blocks[0].vars, self._plan.ranks or bool(self._widened))
        state = {v.name for v in program.blocks[0].vars.values() if v.persistable} - set(self._plan.keeps)
        self._fed_state = tuple(n for n in self._feeds if n in state)

    @property
    def fed_state(self) -> tuple[str, ...]:
        """Fed persistable variables that the program does not write: as in Fluid, the scope holds them from then on."""
        return self._fed_state

    @property
    def compilations(self) -> int:
        """How many times this program was traced and compiled for these fetches."""
        return self._retired + sum(c.traces for c in self._compiled.values())

    @property
    def random(self) -> bool:
        """Whether a run needs a seed."""
        return self._plan.random

    @property
    def constant(self) -> bool:
        """Whether the program reads nothing, as startup programs do; those run op by op."""
        return self._plan.constant

    def _make_plan(self, held: Sequence[str]) -> Plan:
        return make_plan(self._program, self._fetches, held=held, outside=self._outside)

    def _plan_anew(self, held: Sequence[str]) -> None:
        plan = self._make_plan(held)
        if (plan.reads, plan.keeps) != (self._plan.reads, self._plan.keeps):
            self._laid_out = False
            self._state = _no_state
        self._plan = plan

    def _undeclared_writes(self) -> tuple[str, ...]:
        written = (n for op in self._program.blocks[0].ops for n in op.output_names())
        return tuple(dict.fromkeys(n for n in written if self._program.find_var(0, n) is None))

    # --- running --------------------------------------------------------------------------------------------------

    def run(self, scope: Scope, feed: Mapping[str, Any], seed: Any) -> list[Any]:
        """Run once: the fetched values, in order. The scope's state is replaced only when the run succeeds."""
        results = self._run_settled(scope, feed, seed)
        if results is None:
            with scope._lock, self._lock:
                try:
                    results = self._run_unsettled(scope, feed, seed)
                finally:
                    self._count_compilations()
        return results

    def _count_compilations(self) -> None:
        if self._fresh:
            self._fresh = False
            self._recompilations.step()

    def _run_unsettled(self, scope: Scope, feed: Mapping[str, Any], seed: Any) -> list[Any]:
        if self._undeclared:
            self._plan_anew([n for n in self._undeclared if scope.find_var(n) is not None])
        for _ in range(_MAX_DOUBLINGS):
            try:
                results = self._attempt(scope, feed, seed)
            except NeedsExact as needed:
                self._drop_padding(needed)
                continue
            except NeedsConcrete as needed:
                self._provide(needed)
                continue
            if results is not None:
                return results
        raise LoweringError(
            f"a loop still overflows its buffers after {_MAX_DOUBLINGS} doublings ({self._capacities}): expected it to"
            " end; check the loop's condition"
        )

    def _attempt(self, scope: Scope, feed: Mapping[str, Any], seed: Any) -> list[Any] | None:
        """One try; None when a buffer overflowed and was enlarged for the next."""
        feeds = [self._feeder.value(name, feed[name], exact=self._exact) for name in self._feeds]
        try:
            if len(self._plan.segments) == 1 and not self._plan.segments[0].host:
                return self._run_whole(scope, feeds, seed)
            return self._run_segments(scope, feeds, seed)
        except InvalidArgumentError:
            raise
        except LoweringError:
            # Rows that do not fit may be padding's fault alone; without padding the error is the program's own.
            if self._exact or not self._ragged(scope, feeds):
                raise
            raise NeedsExact("an op failed on padded rows") from None

    def _ragged(self, scope: Scope, feeds: list[Any]) -> bool:
        """Whether something that was fed, or is read from the scope, has rows that may have been padded."""
        names = [n for n in self._plan.reads if n not in self._feeds]
        held = gather_values(scope, names, exact=False).values()
        return any(isinstance(v, LoDArray) for v in (*feeds, *held))

    def _start_over(self, *, exact: bool) -> None:
        self._exact = exact
        self._retired = self.compilations
        self._compiled.clear()
        self._state = _no_state

    def _drop_padding(self, needed: NeedsExact) -> None:
        """See to it that the next attempt gives exact rows to the op that refused padded ones.

        Rows are exact throughout then; where their number depends on data, the op runs outside jit.
        """
        if self._exact:
            self._cut_at(needed)
        else:
            self._recompilations.blame(needed, "rows are exact, and every LoD is compiled")
            self._outside.clear()  # what needed a value on the host may have it now
            self._plan_anew(())
            self._start_over(exact=True)

    def _provide(self, needed: NeedsConcrete) -> None:
        """See to it that the next attempt has what this one lacked."""
        if needed.longest and not self._feeder.tight:
            self._recompilations.blame(needed, "every longest length is compiled")
            self._feeder.tight = True
            self._start_over(exact=self._exact)
        else:
            self._cut_at(needed)

    def _cut_at(self, needed: Need) -> None:
        if needed.op_index < 0 or needed.op_index in self._outside:
            raise needed.refusal() from needed
        self._recompilations.blame(needed, "it runs outside of what is compiled, which takes its results as they come")
        self._outside.add(needed.op_index)
        self._plan_anew(())
        self._start_over(exact=self._exact)

    def _grew(self, compiled: CompiledOps, overflows: Mapping[str, Any]) -> bool:
        """Enlarge what overflowed; whether anything did."""
        full = [name for name, flag in overflows.items() if bool(flag)]
        for name in full:
            if name in compiled.uneven:
                raise compiled.uneven[name]
            self._recompilations.grew(name)
            self._capacities[name] = 2 * compiled.used[name]
        if full:
            self._start_over(exact=self._exact)
        return bool(full)

    # --- one jit --------------------------------------------------------------------------------------------------

    def _run_settled(self, scope: Scope, feed: Mapping[str, Any], seed: Any) -> list[Any] | None:
        """Run as the last time, if nothing has to be traced, gathered or enlarged; else None, and nothing happened."""
        state = self._state()
        if state is None or not state.compiled:
            return None
        try:
            feeds = [self._feeder.value(name, feed[name], exact=self._exact) for name in self._feeds]
            compiled = state.compiled.get(form(feeds))
            if compiled is None:
                return None
            if state.alone:
                with scope._lock:
                    return self._again(scope, state, compiled, feeds, seed) if state.current(scope) else None
            with scope._lock:
                kept = state.kept if state.current(scope) else None
            return None if kept is None else self._read(scope, compiled, [*kept, *feeds], seed)
        except (NeedsExact, NeedsConcrete):
            return None

    def _again(self, scope: Scope, state: ResidentState, compiled: Compiled, feeds: list[Any], seed: Any) -> list[Any]:
        """See ``Compiled``: an interrupt comes before the step or behind it."""
        replaced, values = state.replaced, [*state.kept, *feeds]
        compiled.before(replaced, values, seed)
        state.slot.extend(map(compiled.step, (replaced,), (given(values),), (seed,)))
        left = state.slot[0]
        state.replaced = state.replaced  # without what was fetched
        failure = compiled.after(left)
        if failure is not None:
            raise failure
        return self._checked_fetches(scope, compiled.results(left[0])[len(replaced) :])

    def _read(self, scope: Scope, compiled: Compiled, values: list[Any], seed: Any) -> list[Any] | None:
        """A run that changes nothing, beside other threads; None when one of them took what it reads."""
        try:
            compiled.before((), values, seed)
            left = compiled.step((), given(values), seed)
        except (ValueError, RuntimeError):
            if any(v.is_deleted() for v in values if isinstance(v, jax.Array)):
                return None
            raise
        if any(map(bool, left[1].values())):
            return None
        failure = compiled.after(left)
        if failure is not None:
            raise failure
        return self._checked_fetches(scope, compiled.results(left[0]))

    def _run_whole(self, scope: Scope, feeds: list[Any], seed: Any) -> list[Any] | None:
        state, others = self._state(), ()
        if state is None or not state.current(scope):
            state, others = self._gather(scope)

        def replace() -> tuple[Any, ...] | None:
            attached, values = state.attached, [*state.kept, *others, *feeds]
            results = self._results(scope, state, values, seed)
            if results is not None:
                self._keep(scope, state, results)
                if attached or not self._layout.replaced:
                    self._settle(scope, state, values, feeds)
            return results

        results = uninterrupted(replace)
        return None if results is None else self._checked_fetches(scope, results[len(results) - len(self._fetches) :])

    def _results(self, scope: Scope, state: ResidentState, values: list[Any], seed: Any) -> tuple[Any, ...] | None:
        """What a run leaves; None when it has to be tried again in another way."""
        compiled, replaced = self._whole, state.replaced
        before: tuple[Any, ...] = ()
        assert compiled is not None
        if compiled.ready(replaced, values) is None:
            # What was never run may not fit into the memory, and would not give back what it took.
            before = tuple(np.array(b) for b in replaced)
        try:
            results, overflows, failure = self._step(compiled, replaced, values, seed)
            if before:
                jax.block_until_ready(results)
        except Unpackable:
            self._pack = False
            return None
        except (Changes, NeedsOneForm) as changes:
            self._meet(scope, changes)
            return None
        except BaseException:
            if before and any(b.is_deleted() for b in replaced):
                self._give_back(scope, state, tuple(map(on_device, before)))
            raise
        if overflows and self._grew(compiled, overflows):
            return None
        if failure is not None:
            if compiled.donates:
                self._give_back(scope, state, results[: len(replaced)])
            raise failure
        return results

    def _gather(self, scope: Scope) -> tuple[ResidentState, tuple[Any, ...]]:
        """The state anew, variable by variable, and what else is read; sets what runs them."""
        self._state = _no_state
        self._unsettled = self._starts.unsettled(scope)
        if self._layout.others or not self._laid_out or not self._starts.possible:
            self._lay_out(scope)
        places = self._starts.places(self._unsettled)
        found = gather_plain(scope, self._layout.replaced, places), gather_plain(scope, self._layout.kept, places)
        # A variable may have got a LoD, or been erased, since the names were laid out.
        while found[0] is None or found[1] is None:
            self._lay_out(scope)
            found = gather_plain(scope, self._layout.replaced, places), gather_plain(scope, self._layout.kept, places)
        layout = self._layout
        # Names that the scope does not know, such as gradients that nothing computes, are read as missing; unless this
        # run makes them.
        complete = all(scope.find_var(n) is None and n not in layout.written for n in layout.others)
        starts = self._starts.inputs(self._unsettled)
        kept = [*found[1], *starts.values()]
        state = ResidentState(distinct(found[0]), kept, complete=complete, pack=self._pack and complete)
        others = gather_values(scope, layout.others, exact=self._exact)
        inputs = (*layout.kept, *starts, *others, *self._feeds)
        outputs = (*layout.written, *self._fetches)
        self._whole = self._compile(self._plan.segments[0], inputs, outputs, layout.replaced, state)
        if self._starts.possible:
            self._whole.awaited = tuple(n for n in layout.others if n not in others and n in layout.written)
        return state, tuple(others.values())

    def _meet(self, scope: Scope, changes: Exception) -> None:
        """See to it that the next attempt compiles a step for this run and the later ones, or one for this alone."""
        if not isinstance(changes, Changes) or not self._starts.see(scope, changes.forms):
            self._starts.give_up()
        self._start_over(exact=self._exact)
        self._laid_out = False

    def _give_back(self, scope: Scope, state: ResidentState, buffers: tuple[Any, ...]) -> None:
        """Store the state that a failed step returned as it was."""
        if not self._unsettled:
            return self._keep(scope, state, buffers)
        state.replace(buffers)
        names = enumerate(self._layout.replaced)
        write_back(scope, {n: state.read(i) for i, n in names if n not in self._unsettled})

    def _keep(self, scope: Scope, state: ResidentState, results: tuple[Any, ...]) -> None:
        """Store what a run left: the replaced buffers with the state, what is new in the scope."""
        layout, count = self._layout, len(state.replaced)
        lasting = state.complete and (state.attached or state.holds(scope, layout.kept))
        if not lasting or not state.replace(results[:count]):
            write_back(scope, dict(zip(layout.replaced, results, strict=False)))
        elif not state.attached:
            for name in self._unsettled:
                (scope.find_var(name) or scope.var(name)).get_tensor()
            state.kept = self._starts.settled_inputs(state.kept)
            state.attach(scope, (*layout.replaced, *layout.kept))
            self._state = weakref.ref(state)
        if layout.written:
            write_back(scope, dict(zip(layout.written, results[count:], strict=False)))

    def _settle(self, scope: Scope, state: ResidentState, values: list[Any], feeds: list[Any]) -> None:
        """Let later runs with such feeds be like this one, if they leave what they take in the same form."""
        compiled = self._whole
        assert compiled is not None
        donates = compiled.donates and bool(self._layout.replaced)
        ready = compiled.ready(state.replaced, values)
        if state.attached and ready and not self._layout.written and (donates or not self._layout.replaced):
            state.compiled[form(feeds)] = ready
            state.alone = donates or any(scope.find_var(n) is not None for n in self._fetches)

    def _lay_out(self, scope: Scope) -> None:
        state = [n for n in self._plan.reads if n not in self._feeds]
        plain = [n for n in state if n in self._starts.forms or is_plain(scope, n)]
        keeps = dict.fromkeys(self._plan.keeps)
        replaced = tuple(n for n in plain if n in keeps)
        others = dict.fromkeys(state)
        for name in plain:
            del others[name]
        for name in replaced:
            del keeps[name]
        kept = dict.fromkeys(plain)
        for name in replaced:
            del kept[name]
        self._layout = Layout(replaced, tuple(kept), tuple(others), tuple(keeps))
        self._laid_out = True

    def _compile(
        self,
        segment: Segment,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        replaced: tuple[str, ...] = (),
        state: ResidentState | None = None,
    ) -> CompiledOps:
        packing, kept = (NOTHING, ()) if state is None else (state.packing, tuple(v.shape for v in state.kept))
        key = (segment.ops[0].index, replaced, packing, kept, inputs, outputs)
        found = self._compiled.get(key)
        if found is None:
            found = self._compiled[key] = CompiledOps(
                self._program,
                segment.ops,
                inputs,
                outputs,
                replaced=replaced,
                packing=packing,
                platform=self._platform,
                capacities=self._capacities,
                widened=self._widened,
                fixed=len(kept),
                checked=self._checked,
                starts=tuple(self._starts.forms) if state is not None else (),
            )
        return found

    def _step(self, compiled: CompiledOps, replaced: tuple[Any, ...], values: list[Any], seed: Any) -> Step:
        before = compiled.traces
        step = compiled(replaced, values, seed)
        if compiled.traces != before:
            self._fresh = True
            self._recompilations.see(dict(zip(compiled.inputs, values, strict=True)))
        return step

    def _checked_fetches(self, scope: Scope, values: Sequence[Any]) -> list[Any]:
        fetched = []
        for name, value in zip(self._fetches, values, strict=True):
            if value is None:
                raise LoweringError(
                    f"fetch {name!r}: expected a variable that the program computes or the scope holds, found no value"
                    " after the run; fetch another variable, or initialize this one first"
                )
            # A fetch that is also state must not share its buffer, which a later run may give away.
            fetched.append(value if scope.find_var(name) is None else _copied(value))
        return fetched

    # --- cut by host ops ------------------------------------------------------------------------------------------

    def _run_segments(self, scope: Scope, feeds: list[Any], seed: Any) -> list[Any] | None:
        env = self._environment(scope, feeds)
        for segment in self._plan.segments:
            if segment.host:
                self._run_on_host(segment, env, seed)
                continue
            inputs = tuple(n for n in segment.reads if n in env)
            compiled = self._compile(segment, inputs, segment.writes)
            values = [env[n] for n in inputs]
            results, overflows, failure = uninterrupted(partial(self._step, compiled, (), values, seed))
            if overflows and self._grew(compiled, overflows):
                return None
            if failure is not None:
                raise failure
            env.update({n: v for n, v in zip(segment.writes, results, strict=True) if v is not None})
        return self._finish(scope, env)

    def _environment(self, scope: Scope, feeds: list[Any]) -> dict[str, Any]:
        names = [n for n in (*self._plan.reads, *self._fetches) if n not in self._feeds]
        env = gather_values(scope, dict.fromkeys(names), exact=self._exact)
        env.update(zip(self._feeds, feeds, strict=True))
        return env

    def _finish(self, scope: Scope, env: Mapping[str, Any]) -> list[Any]:
        kept = {n: env[n] for n in self._plan.keeps if n in env}
        uninterrupted(lambda: write_back(scope, kept))
        return self._checked_fetches(scope, [env.get(n) for n in self._fetches])

    def _run_on_host(self, segment: Segment, env: dict[str, Any], seed: Any) -> None:
        """Run a host op on exact values; ragged results are padded again for the jitted ops after it."""
        local = {n: exact(env[n]) for n in segment.reads if n in env}
        self._interpreter(seed, None).run_ops(segment.ops, local)
        env.update({n: self._repadded(n, local[n]) for n in segment.writes if n in local})

    def _repadded(self, name: str, value: Any) -> Any:
        """A result of a host op; rows get room for as many as there have ever been."""
        if self._exact or not isinstance(value, LoDArray):
            return exact(value)
        room = self._room[name] = max(bucket(value.capacity), self._room.get(name, 0))
        return lod_array(*trim(value), exact=False, longest=value.longest, room=room)

    # --- op by op -------------------------------------------------------------------------------------------------

    def interpret(
        self, scope: Scope, feed: Mapping[str, Any], seed: Any, after_op: Callable[..., None] | None = None
    ) -> list[Any]:
        """Run once, op by op, each in a jit of its own; ``after_op(op, values)`` is called after each."""
        with scope._lock, self._lock:
            feeds = [self._feeder.value(name, feed[name], exact=True) for name in self._feeds]
            names = [n for n in (*self._plan.reads, *self._fetches) if n not in self._feeds]
            env = gather_values(scope, dict.fromkeys(names), exact=True)
            env.update(zip(self._feeds, feeds, strict=True))
            runner = self._interpreter(seed, after_op)

            def run() -> None:
                for segment in self._plan.segments:
                    runner.run_ops(segment.ops, env)

            try:
                uninterrupted(run) if self.constant else run()
            except Need as needed:
                raise needed.refusal() from needed
            return self._finish(scope, env)

    def _interpreter(self, seed: Any, after_op: Callable[..., None] | None) -> Runner:
        # A startup program runs once: nothing of it is worth compiling, its random numbers neither.
        key = seed if seed is None or self.constant else jax.random.wrap_key_data(jax.device_put(seed), impl=_IMPL)
        return Runner(
            self._program,
            key=key,
            interpret=True,
            platform=self._platform,
            capacities=self._capacities,
            after_op=after_op,
            watch=Watch() if self._checked else None,
        )


def _copied(value: Any) -> Any:
    return jax.tree_util.tree_map(lambda leaf: np.array(leaf, copy=True), value)
