"""The compiled forms of one program, how they are found again, and how often compiling was needed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fluidjax.execution.executables.executable import Executable
from fluidjax.execution.executables.kept import Kept
from fluidjax.execution.lasting.resident import ResidentState
from fluidjax.execution.rooms.recompilations import Recompilations
from fluidjax.execution.rooms.tiers import Tiers, clock
from fluidjax.execution.steps.buffers import NOTHING
from fluidjax.execution.steps.compiled import CompiledOps, still_valid, unprepared
from fluidjax.execution.steps.compiled_form import Returned
from fluidjax.execution.steps.spreading import Spreading
from lowering.engine.plan import Segment
from lowering.program import ProgramView
from lowering.wide.spare import spare_room


@dataclass(frozen=True)
class Job:
    """What to run.

    Attributes:
        program: the program's view.
        feeds, fetches: names of variables.
        platform: 'cpu', 'gpu' or 'tpu'.
        checked: whether labels, ids and divisors are checked (FLAGS_check_values).
        beside: whether rooms for other sizes are compiled beside the runs (FLAGS_background_compilation).
        spread: how the program is spread over several devices; None: it runs on one.
        owners: of feeds that are devices' shares of one variable, but the first, that variable.
    """

    program: ProgramView
    feeds: tuple[str, ...]
    fetches: tuple[str, ...]
    platform: str
    checked: bool
    beside: bool = False
    spread: Spreading | None = None
    owners: Mapping[str, str] = field(default_factory=dict)

    @property
    def alike(self) -> bool:
        """Whether several devices of this process run the program, all with the same state."""
        return self.spread is not None and self.spread.alike


def _no_state() -> None:
    """Replaces a reference to a state if there is none."""


class Compilations:
    """The compiled ops of a job, and the state that stays on the device for them.

    Attributes:
        state: a reference to the state that the last run left, if any of its tensors is still held.
        causes: what forced the compilations.
        capacities: the size of each loop's buffers; enlarging one discards what was compiled.
        spare: what may still have more room than it needs.
        tiers: how much room batches of changing sizes get.
    """

    def __init__(self, job: Job):
        self.state: Callable[[], ResidentState | None] = _no_state
        self.causes = Recompilations(job.program)
        self.capacities: dict[str, int] = {}
        self.spare = spare_room(job.program, job.fetches, growing=job.spread is None)
        self.tiers = Tiers(beside=job.beside, clock=clock(job.platform))
        self._job = job
        self._kept = Kept(job.program)
        self._compiled: dict[Any, CompiledOps] = {}
        self._retired = 0
        self._fresh = False  # whether the step that runs compiled something

    @property
    def count(self) -> int:
        """The number of times ops were traced and compiled."""
        return self._retired + sum(c.traces for c in self._compiled.values())

    def clear(self) -> None:
        """Discard all compiled forms and the state."""
        self._retired = self.count
        self._compiled.clear()
        self.tiers.clear()
        self.forget_state()

    def keep(self, segments: Iterable[Segment]) -> None:
        """Discard the state and all compiled forms but those of segments that a new plan has as they were."""
        kept = still_valid(self._compiled, segments)
        self.clear()
        self._retired -= sum(compiled.traces for compiled in kept.values())
        self._compiled = kept

    def forget_state(self) -> None:
        """Make the next run gather the state from the scope."""
        self.state = _no_state

    def keep_state(self, state: ResidentState) -> None:
        """Let the next run take ``state`` while a tensor of the scope refers to it."""
        self.state = weakref.ref(state)

    def get(
        self,
        segment: Segment,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        *,
        replaced: tuple[str, ...] = (),
        state: ResidentState | None = None,
        starts: tuple[str, ...] = (),
    ) -> CompiledOps:
        """The compiled ops of a segment; with a ``state``, they overwrite its variables ``replaced``."""
        buffers, kept = (NOTHING, ()) if state is None else (state.buffers, tuple(v.shape for v in state.kept))
        key = (segment.ops[0].index, replaced, buffers, kept, inputs, outputs)
        found = self._compiled.get(key)
        if found is None:
            found = self._compiled[key] = CompiledOps(
                self._job.program,
                segment.ops,
                inputs,
                outputs,
                replaced=replaced,
                buffers=buffers,
                platform=self._job.platform,
                capacities=self.capacities,
                kept=self._kept,
                spare=self.spare,
                fixed=len(kept),
                checked=self._job.checked,
                starts=starts,
                spread=self._job.spread,
            )
        return found

    def step(
        self,
        compiled: CompiledOps,
        replaced: tuple[Any, ...],
        values: list[Any],
        seed: Any,
        first: Callable[[Executable], None] = unprepared,
    ) -> Returned:
        """Run compiled ops (see ``CompiledOps.__call__``), and note whether that compiled something."""
        before = compiled.traces
        step = compiled(replaced, values, seed, first)
        if compiled.traces != before:
            self._fresh = True
            self.causes.see(dict(zip(compiled.inputs, values, strict=True)))
        return step

    def end_of_step(self) -> bool:
        """Count a step if something was compiled in it and return whether it was; warn of the first one too many."""
        fresh, self._fresh = self._fresh, False
        if fresh:
            self.causes.step()
        return fresh
