"""One jitted run of ops: values in by name, values out by name."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxlib._jax import ArrayImpl

from fluidjax.execution.background import Once
from fluidjax.execution.buffers import NOTHING, Buffers, Unpackable
from fluidjax.execution.executable import Executable
from fluidjax.execution.form import PLAIN, Rebuild, form, given, split_static
from fluidjax.execution.guard import Checks, holding
from fluidjax.execution.kept import Kept
from lowering.engine.align import FedRows, check_pairs
from lowering.engine.checks import Watch
from lowering.engine.counts import plain
from lowering.engine.either import Either, NeedsOneForm
from lowering.engine.runner import Runner
from lowering.engine.wide import check_left
from lowering.errors import InvalidArgumentError, Need, NeedsExact
from lowering.program import OpView, ProgramView
from lowering.registry import get_op
from lowering.values import data_of


def _same_form(before: Any, after: Any) -> bool:
    return isinstance(after, (jax.Array, np.ndarray)) and after.shape == before.shape and after.dtype == before.dtype


def _shape_of(value: Any) -> Any:
    """What a device array is compiled for; it may be overwritten meanwhile."""
    if type(value) is not ArrayImpl:
        return value
    sharding = value.sharding if value.committed else None
    return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding, weak_type=value.weak_type)


class _NeedsInputs(Exception):
    """The step may not donate its inputs: a run may have to be repeated, or a variable changes its form."""


class Changes(Exception):
    """Not an error: a run leaves variables in another form than it finds them in, for the next run to find.

    Attributes:
        forms: the form that each is left in.
    """

    def __init__(self, forms: dict[str, jax.ShapeDtypeStruct]):
        super().__init__(", ".join(forms))
        self.forms = forms


FIRST, BEFORE = "@FIRST", "@BEFORE/"  # inputs: whether a run is the first; what it finds then


def _changed(found: Mapping[str, Any], left: Mapping[str, Any]) -> dict[str, jax.ShapeDtypeStruct]:
    """The plain arrays left in another form than ``found``."""
    arrays = {n: v for n, v in left.items() if isinstance(v, (jax.Array, np.ndarray))}
    changed = (n for n, v in arrays.items() if found[n] is None or not _same_form(found[n], v))
    return {n: jax.ShapeDtypeStruct(arrays[n].shape, arrays[n].dtype) for n in changed}


class Step(NamedTuple):
    """What a step returns: ``results``, a flag of each buffer that overflowed, the error of a fault that it found."""

    results: tuple[Any, ...]
    overflows: Mapping[str, Any]
    failure: InvalidArgumentError | None


@dataclass
class Traced:
    """What a trace finds out.

    Attributes:
        structure: how the results are made of arrays; None: they are arrays.
        watch: what is to be checked.
        pairs: see ``lowering.engine.align``.
        used, uneven: see ``lowering.Runner``.
        ran: whether what it was compiled to has run.
    """

    structure: Any = None
    watch: Watch | None = None
    pairs: Mapping[tuple[int, int], NeedsExact] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    uneven: Mapping[str, NeedsExact] = field(default_factory=dict)
    ran: bool = False


class Compiled(NamedTuple):
    """Ops compiled for values of one form, which are checked on the host or by the step.

    ``executable.call(replaced, given(values), seed)`` returns (the arrays of the results, overflow flags, what the
    checks found). By ``deque.extend(map(executable.call, ...))`` it overwrites ``replaced`` and appends what it leaves,
    with nothing between: signal handlers run between two of the interpreter's own instructions only, and ``extend`` is
    one.
    """

    executable: Executable
    traced: Traced
    checks: Checks | None = None

    def results(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """The results: arrays, LoDArrays ..."""
        structure = self.traced.structure
        return tuple(arrays) if structure is None else jax.tree_util.tree_unflatten(structure, arrays)

    def before(self, values: Sequence[Any]) -> None:
        """Raise InvalidArgumentError for what can be known before the step."""
        if self.checks is not None:
            self.checks.before(values)

    def after(self, left: Any) -> InvalidArgumentError | None:
        """The error that the step found by itself; it then left what it replaces as it was."""
        return None if self.checks is None else self.checks.after(left)


class CompiledOps:
    """Ops as one jitted function ``(replaced, values, seed) -> ((*replaced, *outputs), overflow flags, failure)``.

    A step that finds a fault (see ``lowering.engine.checks``) returns the ``replaced`` that it overwrote as they were.

    Args:
        program, ops: what to run.
        inputs: names of what the ops read.
        outputs: names of the results; one that the ops did not write is returned as None.
        replaced: names of plain arrays that the ops read and write; passed and returned as ``buffers`` joins them. The
            call donates them, unless there may be an overflow to flag, or one of them comes out in another shape.
        capacities, widened, wide: see ``lowering.Runner``; shared with the caller, who doubles what overflowed.
        fixed: how many inputs, the first ones, are the program's state.
        kept: finds what other processes compiled.
        checked: whether ops' demands on their numbers are checked.
        starts: variables that the first run finds in another form, or not at all. The inputs ``BEFORE`` + name hold
            what it finds, and ``FIRST`` says whether this is it.

    Attributes:
        awaited: names without a value that the ops read and write; None: nobody wants to know of ``Changes``.
        traces: how often the ops were traced to the end.
        used, uneven: see ``lowering.Runner``.
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
        widened: frozenset[int] = frozenset(),
        wide: bool = False,
        fixed: int = 0,
        checked: bool = False,
        starts: Sequence[str] = (),
    ):
        self._program = program
        self._ops = ops
        self.inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._replaced = tuple(replaced)
        self._buffers = buffers
        self._donate = True
        self._platform = platform
        self._capacities = capacities
        self._kept = kept
        self._widened = widened
        self._wide = wide
        self._fixed = fixed
        self._starts = tuple(starts)
        self.awaited: Sequence[str] | None = None
        self._checked = checked and any(get_op(op.type).demands for b in program.blocks for op in b.ops)
        self._ready: dict[Hashable, Compiled] = {}
        self._coming: dict[Hashable, Once] = {}
        self.used: dict[str, int] = {}
        self.uneven: dict[str, NeedsExact] = {}
        self._pairs: dict[tuple[int, int], NeedsExact] = {}
        self.traces = 0

    def __call__(self, replaced: tuple[Any, ...], values: Sequence[Any], seed: Any) -> Step:
        """Run the ops.

        Raises:
            InvalidArgumentError: a value that was fed is none that its op can take; nothing ran.
            NeedsExact: rows that are paired are not equally many; nothing ran.
        """
        check_pairs(self._pairs, values)
        key = form([*replaced, *values])
        try:
            self._await(key)
            compiled = self._ready[key] = self._ready.get(key) or self._compiled(key, replaced, values, seed)
            compiled.before(values)
            if compiled.executable.scratch and replaced and self._donate:
                compiled.executable.reserve()
            left = compiled.executable.call(replaced, given(values), seed)
        except _NeedsInputs:
            self._donate = False
            self._ready.clear()
            return self(replaced, values, seed)
        if not compiled.traced.ran:
            compiled.traced.ran = True
            compiled.executable.settle()
        return Step(compiled.results(left[0]), left[1], compiled.after(left))

    def _tell_changes(self, found: Mapping[str, Any], env: Mapping[str, Any]) -> None:
        found = {**found, **dict.fromkeys(self.awaited or ())}
        if any(isinstance(env.get(n), Either) for n in (*found, *self._outputs)):
            raise NeedsOneForm("a variable has two forms to the end")
        changed = _changed(found, {n: plain(env[n]) for n in found if n in env})
        if changed:
            raise Changes(changed)

    @property
    def donates(self) -> bool:
        """Whether a call overwrites ``replaced``, so that a step that fails gives them back in the same form."""
        return self._donate

    def ready(self, replaced: tuple[Any, ...], values: Sequence[Any]) -> Compiled | None:
        """What runs values of these forms, if it did so before."""
        found = self._ready.get(form([*replaced, *values]))
        return found if found is not None and found.traced.ran else None

    def ahead(self, replaced: tuple[Any, ...], values: Sequence[Any], seed: Any) -> Callable[[], None]:
        """A function that compiles for values of these forms, which need not be there any more when it is called.

        It may be called beside runs, and raises what a run would raise.
        """
        key = form([*replaced, *values])
        shapes, values = tuple(map(_shape_of, replaced)), [*map(_shape_of, values)]
        beside = copy.copy(self)
        beside._pairs, beside.traces = {}, 0
        beside.used, beside.uneven = {}, {}

        def compile() -> None:
            compiled = beside._compiled(key, shapes, values, seed)
            self._pairs.update(beside._pairs)
            self.used.update(beside.used)
            self.uneven.update(beside.uneven)
            self.traces += beside.traces
            if beside._donate == self._donate:
                self._ready.setdefault(key, compiled)

        once = self._coming[key] = Once(compile)
        return once

    def _await(self, key: Hashable) -> None:
        """Have what was to be compiled ahead, rather than compile the same twice; what fails there fails here again."""
        coming = self._coming.pop(key, None) if self._coming and key not in self._ready else None
        if coming is not None:
            with contextlib.suppress(Exception):
                coming()

    def _compiled(self, key: Hashable, replaced: tuple[Any, ...], values: Sequence[Any], seed: Any) -> Compiled:
        """What another process compiled for values of the form ``key``, or what this one does; raises what comes of a
        trace that cannot be compiled.
        """
        record = self._kept.record(lambda: self._terms(key, values))
        outcome = record.read()
        if outcome is None:
            outcome = self._outcome(replaced, values, seed, whole=record.wanted)
            record.write(outcome)
        if isinstance(outcome, Exception):
            raise outcome
        traced = outcome.traced
        self._pairs.update(traced.pairs)
        self.used.update(traced.used)
        self.uneven.update(traced.uneven)
        check_pairs(self._pairs, values)
        return outcome

    def _terms(self, key: Hashable, values: Sequence[Any]) -> Hashable:
        """All that a trace depends on beside the program."""
        ops = tuple(op.index for op in self._ops)
        names = ops, self.inputs, self._outputs, self._replaced, self._starts, self.awaited
        options = (
            self._buffers,
            self._donate,
            self._platform,
            self._fixed,
            self._checked,
            sorted(self._widened),
            self._wide,
        )
        return names, options, key, self._seen_on_host(values), sorted(self._capacities.items())

    def _outcome(
        self, replaced: tuple[Any, ...], values: Sequence[Any], seed: Any, *, whole: bool
    ) -> Compiled | Exception:
        """What the ops are compiled to for values of this form; or, as an exception, why they have to be traced in
        another way whatever the values are. ``whole``: see ``Executable.of``.
        """
        rebuilds = [None if type(v) in PLAIN else split_static(v)[2] for v in values]
        found, arguments = Traced(), (replaced, given(values), seed)
        run = self._traceable(rebuilds, self._seen_on_host(values), found)
        try:
            traced = jax.jit(run, donate_argnums=(0,) if self._donate else ()).trace(*arguments)
        except (Need, NeedsOneForm, Changes, Unpackable, _NeedsInputs) as outcome:
            return outcome
        check_pairs(found.pairs, values)
        self.traces += 1
        if found.watch is not None and found.watch.faults and replaced and self._donate:
            traced = holding(traced, arguments)
        checks = None if found.watch is None else Checks.of(found.watch)
        return Compiled(Executable.of(traced, whole=whole), found, checks)

    def _seen_on_host(self, values: Sequence[Any]) -> list[int]:
        """Positions of the inputs, state apart, that the host reads without waiting for the device."""
        kinds = PLAIN if self._platform == "cpu" else (np.ndarray,)
        return [at for at in range(self._fixed, len(values)) if isinstance(data_of(values[at]), kinds)]

    def _traceable(self, rebuilds: Sequence[Rebuild | None], seen: Sequence[int], found: Traced) -> Callable[..., Any]:
        def run(replaced: Any, values: Any, seed: Any) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
            before = self._buffers.split(replaced)
            env = dict(zip(self._replaced, before, strict=True))
            for name, data, rebuild in zip(self.inputs, values, rebuilds, strict=True):
                env[name] = data if rebuild is None else rebuild(data)
            key = None if seed is None else jax.random.wrap_key_data(seed, impl="threefry2x32")
            watch = Watch({at: env[self.inputs[at]] for at in seen})
            runner = Runner(
                self._program,
                key=key,
                platform=self._platform,
                capacities=self._capacities,
                widened=self._widened,
                wide=self._wide,
                watch=watch if self._checked else None,
            )
            runner.unsettled = bool(self._starts)
            first = env.pop(FIRST, None)
            env.update({n: Either(first, env.pop(BEFORE + n, None), env[n]) for n in self._starts})
            runner.fed = FedRows([env.get(name) for name in self.inputs])
            runner.run_ops(self._ops, env)
            faults, overflows = watch.parted(runner.overflows)
            after = [plain(env[n]) for n in self._replaced]
            check_left(runner.scattered, after, [env.get(n) for n in self._outputs])
            if self.awaited is not None:
                self._tell_changes(dict(zip(self._replaced, before, strict=True)), env)
            # XLA puts results into donated buffers of their form, and a run that overflows is repeated from them.
            if self._donate and before:
                if overflows or not all(map(_same_form, before, after)):
                    raise _NeedsInputs
            state = self._buffers.join_traced(after)
            found.pairs, found.used, found.uneven = runner.fed.pairs, runner.used, runner.uneven
            found.watch = watch if self._checked else None
            # Arrays alone: what is made of them would be made by Python between the call and its return.
            results = (*state, *(env.get(n) for n in self._outputs))
            arrays, structure = jax.tree_util.tree_flatten(results)
            found.structure = None if jax.tree_util.all_leaves(results) else structure
            return tuple(arrays), overflows, faults

        return run
