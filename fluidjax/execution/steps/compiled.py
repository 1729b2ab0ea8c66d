"""Ops as one jitted run, compiled for each form of their values: here or by another process, in a run or beside it."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fluidjax.execution.executables import background, draws
from fluidjax.execution.executables.allocator import give_back_freed_memory
from fluidjax.execution.executables.background import Once
from fluidjax.execution.executables.executable import Executable
from fluidjax.execution.executables.kept import Kept
from fluidjax.execution.executables.waiting import compiling
from fluidjax.execution.rooms.tiers import clock
from fluidjax.execution.steps.abreast import abreast
from fluidjax.execution.steps.buffers import NOTHING, Buffers, Unpackable
from fluidjax.execution.steps.compiled_form import Compiled, Returned
from fluidjax.execution.steps.drawn import drawn, numbers_of
from fluidjax.execution.steps.equal import proven
from fluidjax.execution.steps.form import PLAIN, form, given, shape_of, split_static
from fluidjax.execution.steps.guard import Checks, holding
from fluidjax.execution.steps.kept_parts import Part, apart
from fluidjax.execution.steps.spreading import Spreading
from fluidjax.execution.steps.traceable import Changes, NeedsInputs, Traceable, Traced
from lowering.engine.either import NeedsOneForm
from lowering.engine.expected import Expected, check_expected, of_any_form
from lowering.engine.plan import Segment
from lowering.engine.run import number_of
from lowering.errors import Need
from lowering.program import OpView, ProgramView
from lowering.registry import get_op
from lowering.values import data_of
from lowering.wide.spare import NO_ROOM, SpareRoom

# From this many seconds of compiling on, returning the memory that it freed takes a negligible hundredth.
_LONG = 0.25


def unprepared(executable: Executable) -> None:
    """Nothing to do before the first run."""


class CompiledOps:
    """Ops as one jitted function ``(replaced, values, seed) -> ((*replaced, *outputs), overflow flags, failure)``.

    A step that finds a fault (see ``lowering.engine.checks``) returns the ``replaced`` that it overwrote as they were.

    Args:
        program, ops: what to run.
        inputs: names of what the ops read.
        outputs: names of the results; one that the ops did not write is returned as None.
        replaced: names of plain arrays that the ops read and write; passed and returned as ``buffers`` joins them. The
            call donates them, unless there may be an overflow to flag, or one of them comes out in another shape.
        capacities: see ``lowering.Runner``; shared with the caller, who doubles what overflowed.
        spare: see ``lowering.Runner``.
        fixed: how many inputs, the first ones, are the program's state.
        kept: finds what other processes compiled.
        checked: whether ops' demands on their numbers are checked.
        starts: variables that the first run finds in another form, or not at all. The inputs ``BEFORE`` + name hold
            what it finds, and ``FIRST`` says whether this is it.
        spread: how several devices run the ops at once.

    Attributes:
        awaited: names without a value that the ops read and write; None: ``Changes`` are not needed.
        traces: how often the ops were traced to the end.
        used, uneven: see ``lowering.Runner``.
        price: seconds that the fastest compilation in a run took, here or in the process that kept it; 0: none did.
    """

    def __init__(
        self,
        program: ProgramView,
        ops: Sequence[OpView],
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        replaced: Sequence[str] = (),
        buffers: Buffers = NOTHING,
        platform: str,
        capacities: Mapping[str, int],
        kept: Kept,
        spare: SpareRoom = NO_ROOM,
        fixed: int = 0,
        checked: bool = False,
        starts: Sequence[str] = (),
        spread: Spreading | None = None,
    ):
        self.inputs = tuple(inputs)
        self._work = Traceable(
            program,
            ops,
            self.inputs,
            tuple(outputs),
            replaced=tuple(replaced),
            buffers=buffers,
            platform=platform,
            capacities=capacities,
            spare=spare,
            starts=tuple(starts),
            number=number_of if spread is None else spread.draws,
            drawn=drawn(program, ops) if spread is None else (),
        )
        self._donate = True
        self._kept = kept
        self._fixed = fixed
        self._spread = spread
        self.awaited: Sequence[str] | None = None
        self._checked = checked and any(get_op(op.type).demands for b in program.blocks for op in b.ops)
        self._ready: dict[Hashable, Compiled] = {}
        self._coming: dict[Hashable, Once] = {}
        self.used: dict[str, int] = {}
        self.uneven: dict[str, Need] = {}
        self._expected: Expected = {}
        self.traces = 0
        self.price = 0.0
        self._clock = clock(platform)

    def __call__(
        self,
        replaced: tuple[Any, ...],
        values: Sequence[Any],
        seed: Any,
        first: Callable[[Executable], None] = unprepared,
    ) -> Returned:
        """Run the ops; ``first`` is informed of code that never ran before it does.

        Raises:
            InvalidArgumentError: an op cannot take a value that was fed; nothing ran.
            NeedsExact, NeedsSizes: rows to be paired differ in number, or a dim is too short; nothing ran.
        """
        check_expected(self._expected, values)
        key = form([*replaced, *values])
        try:
            compiled = self._ready.get(key) or self._made(key, replaced, values, seed)
            compiled.before(values)
            if not compiled.traced.ran:
                first(compiled.executable)
            elif compiled.executable.scratch and replaced and self._donate:
                compiled.executable.reserve()
            arrays, flags, *_ = left = compiled.executable.call(replaced, compiled.given(values), seed)
        except NeedsInputs:
            self._donate = False
            self._ready.clear()
            return self(replaced, values, seed, first)
        if not compiled.traced.ran:
            compiled.traced.ran = True
            compiled.executable.settle()
        overflows = dict(zip(compiled.traced.flags, flags, strict=True)) if flags else {}
        return Returned(compiled.results(arrays), overflows, compiled.after(left))

    @property
    def indices(self) -> tuple[int, ...]:
        """Where the ops stand in their block."""
        return tuple(op.index for op in self._work.ops)

    @property
    def donates(self) -> bool:
        """Whether a call overwrites ``replaced``, so that a step that fails gives them back in the same form."""
        return self._donate

    def ready(self, replaced: tuple[Any, ...], values: Sequence[Any]) -> Compiled | None:
        """The compiled form for values of these forms, if there is one."""
        found = self._ready.get(form([*replaced, *values]))
        return found if found is not None and found.traced.ran else None

    def ahead(self, replaced: tuple[Any, ...], values: Sequence[Any], seed: Any) -> Callable[[], None]:
        """A function that compiles for values of these forms; the values need not exist any more when it is called.

        It may be called beside runs, and raises whatever a run would raise.
        """
        key = form([*replaced, *values])
        shapes, values = tuple(map(shape_of, replaced)), [*map(shape_of, values)]
        beside = copy.copy(self)
        beside._expected, beside.traces = {}, 0
        beside.used, beside.uneven = {}, {}

        def compile() -> None:
            compiled = beside._compiled(key, shapes, values, seed)
            self._expected.update(beside._expected)
            self.used.update(beside.used)
            self.uneven.update(beside.uneven)
            self.traces += beside.traces
            if beside._donate == self._donate:
                self._ready.setdefault(key, compiled)

        once = self._coming[key] = Once(compile)
        return once

    def _made(self, key: Hashable, replaced: tuple[Any, ...], values: Sequence[Any], seed: Any) -> Compiled:
        with compiling(len(self._work.ops)):
            self._await(key)
            compiled = self._ready[key] = self._ready.get(key) or self._compiled(key, replaced, values, seed)
        self.price = min(self.price or compiled.traced.seconds, compiled.traced.seconds)
        return compiled

    def _await(self, key: Hashable) -> None:
        """Wait for what is being compiled ahead, rather than compile it twice; what fails there fails here again."""
        coming = self._coming.pop(key, None)
        if coming is not None:
            with contextlib.suppress(Exception):
                coming()

    def _compiled(self, key: Hashable, replaced: tuple[Any, ...], values: Sequence[Any], seed: Any) -> Compiled:
        """What another process compiled for values of the form ``key``, or what this one does; raises what comes of a
        trace that cannot be compiled.
        """
        record = self._kept.record(lambda: self._terms(key, values), one_device=self._spread is None)
        outcome = record.read()
        if outcome is None:
            outcome = self._outcome(replaced, values, seed, whole=record.wanted)
            if isinstance(outcome, Compiled) and outcome.traced.seconds > _LONG:
                background.submit(give_back_freed_memory)
            record.write(outcome)
            draws.leave()
        if isinstance(outcome, Exception):
            raise outcome
        traced = outcome.traced
        self._expected.update(of_any_form(traced.expected))
        self.used.update(traced.used)
        self.uneven.update(traced.uneven)
        check_expected(traced.expected, values)
        return outcome._replace(numbers=numbers_of(self._work.drawn))

    def _terms(self, key: Hashable, values: Sequence[Any]) -> Hashable:
        """Everything but the program that a trace depends on."""
        work = self._work
        names = self.indices, work.inputs, work.outputs, work.replaced, work.starts, self.awaited
        rooms = sorted(work.spare.widened), work.spare.wide, work.spare.growing
        options = work.buffers, self._donate, work.platform, self._fixed, self._checked, *rooms
        return names, options, key, self._seen_on_host(values), sorted(work.capacities.items())

    def _outcome(
        self, replaced: tuple[Any, ...], values: Sequence[Any], seed: Any, *, whole: bool
    ) -> Compiled | Exception:
        """What the ops are compiled to for values of this form; or, as an exception, why they have to be traced in
        another way whatever the values are. ``whole``: see ``Executable.of``.
        """
        rebuilds = [None if type(v) in PLAIN else split_static(v)[2] for v in values]
        started, found = self._clock(), Traced()
        arguments = replaced, (*given(values), *numbers_of(self._work.drawn)), seed
        seen, options = self._seen_on_host(values), {"donate": self._donate, "checked": self._checked}
        step = self._work.function(rebuilds, seen, found, awaited=self.awaited, **options)
        try:
            traced = self._jitted(step, found).trace(*arguments)
            traced = proven(traced, self._work.buffers.equal, arguments, self._donated())
        except (Need, NeedsOneForm, Changes, Unpackable, NeedsInputs) as outcome:
            return outcome
        check_expected(found.expected, values)
        self.traces += 1
        parts: tuple[Part, ...] = ()
        if self._spread is None:
            traced = abreast(traced, arguments, self._donated())
            if self._work.platform == "cpu":  # others read a part where it stands
                traced, arguments, parts = apart(traced, arguments, self._fixed)
        if self._spread is None and found.watch is not None and found.watch.faults and replaced and self._donate:
            traced = holding(traced, arguments)
        checks = None if found.watch is None else Checks.of(found.watch)
        executable = Executable.of(traced, whole=whole, waits=self._spread is not None)
        found.seconds = self._clock() - started
        return Compiled(executable, found, checks, parts=parts)

    def _jitted(self, step: Callable[..., Any], found: Traced) -> Any:
        """``step`` jitted, returning bare arrays: rebuilding structures would be Python's work inside the call."""
        donated = self._donated()
        if self._spread is not None:
            step = self._spread.over(step, self._buffers(), self.inputs, self._work.outputs, donate=self._donate)

        def run(replaced: Any, values: Any, seed: Any) -> tuple[Any, ...]:
            state, outputs, overflows, faults = step(replaced, values, seed)
            results = (*state, *outputs)
            arrays, structure = jax.tree_util.tree_flatten(results)
            found.flags = tuple(overflows)
            found.structure = None if jax.tree_util.all_leaves(results) else structure
            equal, found.equal = found.equal, ()
            return tuple(arrays), tuple(overflows.values()), faults, *((equal,) if equal else ())

        if self._spread is None:
            return jax.jit(run, donate_argnums=donated)
        return self._spread.jitted(run, self._buffers(), self.inputs, donated)

    def _donated(self) -> tuple[int, ...]:
        return (0,) if self._donate else ()

    def _buffers(self) -> tuple[str, ...]:
        return self._work.buffers.names(self._work.replaced)

    def _seen_on_host(self, values: Sequence[Any]) -> list[int]:
        """Positions of the inputs, apart from the state, that the host can read without waiting for the device."""
        if self._spread is not None:
            return []
        kinds = PLAIN if self._work.platform == "cpu" else (np.ndarray,)
        return [at for at in range(self._fixed, len(values)) if isinstance(data_of(values[at]), kinds)]


def still_valid(compiled: Mapping[Any, CompiledOps], segments: Iterable[Segment]) -> dict[Any, CompiledOps]:
    """Those of the compiled ops that a new plan runs together as before."""
    same = {tuple(op.index for op in segment.ops) for segment in segments}
    return {key: ops for key, ops in compiled.items() if ops.indices in same}
