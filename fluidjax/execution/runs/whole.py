"""A program as one jitted step, whose state stays on the device between runs.

The state is gathered from the scope once. The step takes its buffers over (donation), and the tensors of the scope
refer to what it leaves; once such runs repeat, ``SettledRuns`` takes over. Whatever a step raises, the scope holds the
state from before it or after it.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from fluidjax.base.scope import Scope
from fluidjax.execution.executables.executable import Executable
from fluidjax.execution.executables.memory import may_lack_memory
from fluidjax.execution.lasting.resident import ResidentState
from fluidjax.execution.runs.compilations import Compilations, Job
from fluidjax.execution.runs.retry import Attempts
from fluidjax.execution.scopes.state import checked_fetches, distinct, gather_plain, gather_values, on_device
from fluidjax.execution.scopes.writer import attach, write_back
from fluidjax.execution.steps.buffers import Unequal, Unpackable
from fluidjax.execution.steps.compiled import CompiledOps
from fluidjax.execution.steps.equal import fates
from fluidjax.execution.steps.form import form
from fluidjax.execution.steps.layout import Layout, lay_out
from fluidjax.execution.steps.mesh import Unspreadable, on_one_device
from fluidjax.execution.steps.starts import Starts
from fluidjax.execution.steps.traceable import Changes
from lowering.engine.either import NeedsOneForm
from lowering.engine.interrupts import uninterrupted


class WholeRuns:
    """Runs of a job whose ops are all jitted together.

    Attributes:
        compiled: the step of the last run.
        layout: how names are passed to it.
    """

    def __init__(self, job: Job, attempts: Attempts, compilations: Compilations):
        self.compiled: CompiledOps | None = None
        self.layout = Layout()
        self._laid_out: Any = None  # the parts of a plan that the layout was made for
        self._job = job
        self._attempts = attempts
        self._compilations = compilations
        self._pack = job.platform == "cpu"
        self._share = job.spread is None
        self._fates: dict[int, Any] = {}
        self._place = (lambda array, name: on_device(array)) if job.spread is None else job.spread.to_all
        self._starts = Starts()
        self._unsettled: dict[str, Any] = {}

    def run(self, scope: Scope, feeds: list[Any], seed: Any) -> list[Any] | None:
        """Run once: the fetched values; None when another attempt is needed, with nothing stored."""
        state, others = self._compilations.state(), ()
        if state is None or not state.current(scope):
            state, others = self._gather(scope)

        def replace() -> tuple[Any, ...] | None:
            attached, values = state.attached, [*state.kept, *others, *feeds]
            results = self._results(scope, state, values, seed)
            if results is not None:
                self._keep(scope, state, results)
                if attached or not self.layout.replaced:
                    self._settle(scope, state, values, feeds)
            return results

        results = uninterrupted(replace)
        if results is None:
            return None
        fetches = self._job.fetches
        return checked_fetches(scope, fetches, results[len(results) - len(fetches) :])

    # --- before the step ------------------------------------------------------------------------------------------

    def _gather(self, scope: Scope) -> tuple[ResidentState, tuple[Any, ...]]:
        """Gather the state again, variable by variable, and whatever else is read; sets the compiled step."""
        self._compilations.forget_state()
        self._unsettled = self._starts.unsettled(scope)
        if self.layout.others or self._laid_out != self._planned() or not self._starts.possible:
            self._lay_out(scope)
        places = self._starts.places(self._unsettled)
        found = self._arrays(scope, places)
        # A variable may have got a LoD, or been erased, since the names were laid out.
        while found[0] is None or found[1] is None:
            self._lay_out(scope)
            found = self._arrays(scope, places)
        # Names that the scope does not know, such as gradients that nothing computes, are read as missing; unless this
        # run makes them.
        layout = self.layout
        complete = all(scope.find_var(n) is None and n not in layout.written for n in layout.others)
        starts = self._starts.inputs(self._unsettled)
        kept = [*found[1], *starts.values()]
        pack = self._pack and complete
        state = ResidentState(
            distinct(found[0]),
            kept,
            complete=complete,
            pack=pack,
            place=self._place,
            replaced_names=layout.replaced,
            kept_names=(*layout.kept, *starts),
            fates=self._fates if pack else {},
        )
        others = gather_values(scope, layout.others, exact=self._attempts.exact)
        if others and self._job.alike:
            raise Unspreadable(f"{', '.join(others)} in the scope are no plain arrays")
        self._compile(state, starts, others)
        return state, tuple(others.values())

    def _arrays(self, scope: Scope, places: dict[str, Any]) -> tuple[list[Any] | None, list[Any] | None]:
        replaced, kept = self.layout.replaced, self.layout.kept
        numbers = {replaced[i] for i in self._fates}  # most of them are not passed
        return gather_plain(scope, replaced, places, numbers), gather_plain(scope, kept, places)

    def _planned(self) -> Any:
        return self._attempts.plan.reads, self._attempts.plan.keeps

    def _lay_out(self, scope: Scope) -> None:
        self.layout = lay_out(scope, self._attempts.plan, self._job.feeds, self._starts.forms)
        self._laid_out = self._planned()
        found = fates(self._job.program, self.layout.replaced) if self._share else {}
        self._fates = {i: fate for i, fate in found.items() if self.layout.replaced[i] not in self._starts.forms}

    def _compile(self, state: ResidentState, starts: dict[str, Any], others: dict[str, Any]) -> None:
        layout = self.layout
        inputs = (*layout.kept, *starts, *others, *self._job.feeds)
        outputs = (*layout.written, *self._job.fetches)
        self.compiled = self._compilations.get(
            self._attempts.plan.segments[0],
            inputs,
            outputs,
            replaced=layout.replaced,
            state=state,
            starts=tuple(self._starts.forms),
        )
        if self._starts.possible:
            self.compiled.awaited = tuple(n for n in layout.others if n not in others and n in layout.written)

    # --- the step -------------------------------------------------------------------------------------------------

    def _results(self, scope: Scope, state: ResidentState, values: list[Any], seed: Any) -> tuple[Any, ...] | None:
        """The results of a run; None when another attempt is needed."""
        compiled, replaced = self.compiled, state.replaced
        before: list[Any] = []
        assert compiled is not None

        def hold(executable: Executable) -> None:
            # A step that never ran may not fit into memory, and would then not give back what it took.
            if may_lack_memory(executable):
                before.extend(np.array(b) for b in replaced)

        try:
            results, overflows, failure = self._compilations.step(compiled, replaced, values, seed, hold)
            if before:
                jax.block_until_ready(results)
        except Unequal:
            self._share, self._fates = False, {}
            return None
        except Unpackable:
            self._pack = False
            return None
        except (Changes, NeedsOneForm) as changes:
            self._meet(scope, changes)
            return None
        except BaseException:
            if before and any(b.is_deleted() for b in replaced):
                self._give_back(scope, state, state.place(before))
            raise
        if overflows and self._attempts.grew(compiled, overflows):
            return None
        if failure is not None:
            if compiled.donates:
                self._give_back(scope, state, results[: len(replaced)])
            raise failure
        return results

    def _meet(self, scope: Scope, changes: Exception) -> None:
        """Make the next attempt compile a step for this run and later ones, or one for this run alone."""
        if self._job.alike:
            raise Unspreadable(f"variables change their form: {changes}")
        if not isinstance(changes, Changes) or not self._starts.see(scope, changes.forms):
            self._starts.give_up()
        self._compilations.clear()
        self._laid_out = None

    # --- after the step -------------------------------------------------------------------------------------------

    def _give_back(self, scope: Scope, state: ResidentState, buffers: tuple[Any, ...]) -> None:
        """Store the state that a failed step returned as it was."""
        if not self._unsettled:
            return self._keep(scope, state, buffers)
        state.replace(buffers)
        names = enumerate(self.layout.replaced)
        write_back(scope, {n: state.read(i) for i, n in names if n not in self._unsettled})

    def _keep(self, scope: Scope, state: ResidentState, results: tuple[Any, ...]) -> None:
        """Store what a run left: the replaced buffers with the state, what is new in the scope."""
        layout, count = self.layout, len(state.replaced)
        lasting = state.complete and (state.attached or state.holds(scope, layout.kept))
        if not state.replace(results[:count]):  # then nothing shares a buffer
            write_back(scope, dict(zip(layout.replaced, map(on_one_device, results), strict=False)))
        elif not lasting:
            write_back(scope, {name: state.read(i) for i, name in enumerate(layout.replaced)})
        elif not state.attached:
            state.kept = self._starts.settled_inputs(state.kept)
            attach(scope, state, (*layout.replaced, *layout.kept), new=self._unsettled)
            self._compilations.keep_state(state)
        if layout.written:
            write_back(scope, dict(zip(layout.written, map(on_one_device, results[count:]), strict=False)))

    def _settle(self, scope: Scope, state: ResidentState, values: list[Any], feeds: list[Any]) -> None:
        """Let later runs with such feeds repeat this one, if they leave the state in the form in which they take it."""
        compiled, replaced = self.compiled, self.layout.replaced
        assert compiled is not None
        donates = compiled.donates and bool(replaced)
        ready = compiled.ready(state.replaced, values)
        if state.attached and ready and not self.layout.written and (donates or not replaced):
            state.compiled[form(feeds)] = ready
            state.apart = all(scope.find_var(n) is None for n in self._job.fetches)
            state.alone = donates or not state.apart
