"""A step as JAX traces it: values in by name, the ops, values out by name, and the trace's findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from fluidjax.execution.steps.buffers import NOTHING, Buffers
from fluidjax.execution.steps.form import Rebuild
from lowering.engine.checks import Watch
from lowering.engine.either import Either, NeedsOneForm
from lowering.engine.expected import Expected, FedRows
from lowering.engine.run import number_of
from lowering.engine.runner import Runner
from lowering.engine.traces import Traces
from lowering.engine.updates import UpdateRunner
from lowering.errors import Need
from lowering.program import OpView, ProgramView
from lowering.sizes.counts import plain
from lowering.wide.calls import check_left
from lowering.wide.spare import NO_ROOM, SpareRoom


class NeedsInputs(Exception):
    """The step must not donate its inputs: a run may have to be repeated, or a variable changes its form."""


class Changes(Exception):
    """Not an error: a run leaves variables in another form than it finds them in, for the next run to find.

    Attributes:
        forms: the form in which each variable is left.
    """

    def __init__(self, forms: dict[str, jax.ShapeDtypeStruct]):
        super().__init__(", ".join(forms))
        self.forms = forms


FIRST, BEFORE = "@FIRST", "@BEFORE/"  # inputs: whether a run is the first one, and what it then finds


def _changed(found: Mapping[str, Any], left: Mapping[str, Any]) -> dict[str, jax.ShapeDtypeStruct]:
    """The plain arrays left in another form than ``found``."""
    arrays = {n: v for n, v in left.items() if isinstance(v, (jax.Array, np.ndarray))}
    changed = (n for n, v in arrays.items() if found[n] is None or not _same_form(found[n], v))
    return {n: jax.ShapeDtypeStruct(arrays[n].shape, arrays[n].dtype) for n in changed}


def _same_form(before: Any, after: Any) -> bool:
    return isinstance(after, (jax.Array, np.ndarray)) and after.shape == before.shape and after.dtype == before.dtype


@dataclass
class Traced:
    """The findings of a trace.

    Attributes:
        structure: how the results are built from arrays; None: they are arrays.
        flags: the names of the overflow flags.
        watch: the checks to perform.
        expected: see ``lowering.engine.expected``.
        used, uneven: see ``lowering.Runner``.
        equal: while it is traced, the numbers that passed as one, as it leaves them, for each such number.
        ran: whether the compiled form has run.
        seconds: the time that tracing and compiling took, here or in the process that kept it.
    """

    structure: Any = None
    flags: tuple[str, ...] = ()
    watch: Watch | None = None
    expected: Expected = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    uneven: Mapping[str, Need] = field(default_factory=dict)
    equal: Sequence[Sequence[Any]] = ()
    ran: bool = False
    seconds: float = 0.0

    def __getstate__(self) -> dict[str, Any]:
        """The state for another process, where it has not run."""
        return {**self.__dict__, "ran": False}


@dataclass(frozen=True, eq=False)
class Traceable:
    """Ops as a function ``(replaced, values, seed) -> (replaced, outputs, overflow flags, faults)``.

    Attributes:
        program, ops: what to run.
        inputs: names of what the ops read.
        outputs: names of the results; one that the ops did not write is returned as None.
        replaced: names of plain arrays that the ops read and write; passed and returned as ``buffers`` joins them.
        platform, capacities, spare, number: see ``lowering.Runner``.
        drawn: the names whose numbers are the last of the values that the function takes; none: they are constants.
        starts: variables that the first run finds in another form, or not at all. The inputs ``BEFORE`` + name hold
            what it finds, and ``FIRST`` says whether this is it.
    """

    program: ProgramView
    ops: Sequence[OpView]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    replaced: tuple[str, ...] = ()
    buffers: Buffers = NOTHING
    platform: str = "cpu"
    capacities: Mapping[str, int] = field(default_factory=dict)
    spare: SpareRoom = NO_ROOM
    starts: tuple[str, ...] = ()
    number: Callable[[str], Any] = number_of
    drawn: tuple[str, ...] = ()

    def function(
        self,
        rebuilds: Sequence[Rebuild | None],
        seen: Sequence[int],
        found: Traced,
        *,
        donate: bool,
        awaited: Sequence[str] | None,
        checked: bool,
    ) -> Callable[..., Any]:
        """The function to trace.

        Args:
            rebuilds: how each input is built from arrays; None: it is one.
            seen: positions of the inputs that are checked on the host.
            found: called with the findings of the trace.
            donate: whether what is replaced is overwritten; raises NeedsInputs where it cannot be.
            awaited: see ``CompiledOps``; raises Changes where a variable's form does.
            checked: whether the ops' demands on their numbers are checked.
        """

        def step(replaced: Any, values: Any, seed: Any) -> tuple[Any, Any, dict[str, Any], Any]:
            before = self.buffers.split(replaced)
            env = dict(zip(self.replaced, before, strict=True))
            values, number = self._numbered(values)
            for name, data, rebuild in zip(self.inputs, values, rebuilds, strict=True):
                env[name] = data if rebuild is None else rebuild(data)
            watch = Watch({at: env[self.inputs[at]] for at in seen})
            runner = self._run(env, seed, watch if checked else None, number)
            faults, overflows = watch.parted(runner.overflows)
            after = [plain(env[n]) for n in self.replaced]
            check_left(runner.scattered, after, [env.get(n) for n in self.outputs])
            if awaited is not None:
                self._tell_changes({**dict(zip(self.replaced, before, strict=True)), **dict.fromkeys(awaited)}, env)
            # XLA puts results into donated buffers of their form, and a run that overflows is repeated from them.
            if donate and before and (overflows or not all(map(_same_form, before, after))):
                raise NeedsInputs
            found.expected, found.used, found.uneven = runner.fed.expected, runner.used, runner.uneven
            found.watch = watch if checked else None
            found.equal = [[after[i] for i in group] for group in self.buffers.equal]
            return self.buffers.join_traced(after), [env.get(n) for n in self.outputs], overflows, faults

        return step

    def _numbered(self, values: Sequence[Any]) -> tuple[Sequence[Any], Callable[[str], Any]]:
        """The values of the inputs, and the number of each name that is drawn into."""
        if not self.drawn:
            return values, self.number
        *inputs, numbers = values
        return inputs, lambda name: numbers[self.drawn.index(name)]

    def _run(self, env: dict[str, Any], seed: Any, watch: Watch | None, number: Callable[[str], Any]) -> Runner:
        make = UpdateRunner if self.platform == "cpu" else Runner
        runner = make(
            self.program,
            key=None if seed is None else jax.random.wrap_key_data(seed, impl="threefry2x32"),
            platform=self.platform,
            capacities=self.capacities,
            spare=self.spare,
            watch=watch,
        )
        runner.unsettled = bool(self.starts)
        runner.number = number
        runner.traces = Traces() if self.number is number_of else None  # not tried over several devices
        first = env.pop(FIRST, None)
        env.update({n: Either(first, env.pop(BEFORE + n, None), env[n]) for n in self.starts})
        runner.fed = FedRows([env.get(name) for name in self.inputs])
        runner.run_ops(self.ops, env)
        return runner

    def _tell_changes(self, found: Mapping[str, Any], env: Mapping[str, Any]) -> None:
        if any(isinstance(env.get(n), Either) for n in (*found, *self.outputs)):
            raise NeedsOneForm("a variable has two forms to the end")
        changed = _changed(found, {n: plain(env[n]) for n in found if n in env})
        if changed:
            raise Changes(changed)
