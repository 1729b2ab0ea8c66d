"""Steps over several physical devices whose shares differ: a local step on each, one sum over all, an update on each.

Each device runs programs of its own (see ``lowering.engine.parallel.staged``), compiled for its share. The sums of
gradients and what computes the same on all devices are one function over all of them; where devices differ there, too,
the sums are. Nothing is stored before all devices have succeeded. A run like an earlier one calls what that one
compiled.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Sequence
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jaxlib.xla_client import ArrayImpl

from fluidjax.base.scope import Scope
from fluidjax.base.values import LoDTensor
from fluidjax.execution.devices.again import NOTHING, Again, Call, Values
from fluidjax.execution.devices.copies import Copies
from fluidjax.execution.devices.joint import Joint, JointCall
from fluidjax.execution.devices.meeting import wait_for
from fluidjax.execution.devices.shares import Feed
from fluidjax.execution.devices.sums import Sums
from fluidjax.execution.feeding.feed import Handed
from fluidjax.execution.feeding.missing import explained
from fluidjax.execution.runs import mode
from fluidjax.execution.runs.asked import preparing_flags
from fluidjax.execution.runs.prepared import Prepared
from fluidjax.execution.runs.settled import lost
from fluidjax.execution.scopes.state import NothingToFetch
from fluidjax.execution.steps.form import form
from fluidjax.execution.steps.mesh import Unspreadable
from fluidjax.execution.steps.seeds import next_seed
from fluidjax.files.trust import check as check_trusted
from fluidjax.framework import Program
from lowering.engine.dataflow import flow
from lowering.engine.interrupts import uninterrupted
from lowering.engine.parallel.staged import StagedProgram, Sum
from lowering.engine.x64 import with_device
from lowering.errors import UninitializedError
from lowering.values import SelectedRows

_KEPT = 64  # prepared programs of a device


class Staged:
    """A program in stages on several devices.

    Args:
        devices: the physical devices, the executor's first.
        whole: the program.
        program: its stages.

    Attributes:
        repeated: how many runs called what earlier ones had compiled.
    """

    def __init__(self, devices: Sequence[jax.Device], whole: Program, program: StagedProgram):
        check_trusted(whole)
        self.state = program.state
        self.repeated = 0
        self._whole = whole
        self._program = program
        self._devices = [_Device(device, i, program) for i, device in enumerate(devices)]
        self._sums = Sums(devices)
        whole.__dict__.setdefault("_staged_runs", weakref.WeakSet()).add(self)
        self._copies = Copies(devices)
        self._names = cache(program.names)
        self._joint = [self._made_joint(at) for at in range(len(program.stages))]
        self._again: dict[Any, list[Again | JointCall]] = {}  # by what is fetched: what each stage called

    def run(self, scope: Scope, parts: Sequence[Feed], fetches: Sequence[str]) -> list[list[Any]]:
        """Run once; for each device what it fetches.

        Args:
            scope: has the devices' own variables; the shared ones and those of device 0 are around it.
            parts: what each device is fed.
            fetches: names.

        Raises Unspreadable where the scope holds something else than plain arrays, or something is not computed.
        """
        seed = next_seed(self._whole) if self._program.random else None
        with scope._lock:
            try:
                first = self._devices[0].device
                return uninterrupted(lambda: with_device(first, self._run, scope, parts, fetches, seed))
            except UninitializedError as error:
                raise explained(error, self._whole, parts[0]) from error
            except NothingToFetch as error:
                raise Unspreadable(str(error)) from error
            except (jax.errors.JaxRuntimeError, ValueError) as error:
                if self._copies.lost(scope):
                    raise lost(error) from error
                raise

    def fed_state(self, parts: Sequence[Feed]) -> Feed:
        """What device 0 is fed of variables that persist and are not written: the scope holds that from then on."""
        held = self._program.persistable.difference(self._devices[0].keeps)
        return {name: value for name, value in parts[0].items() if name in held}

    @property
    def compilations(self) -> int:
        """How many times programs of devices were traced and compiled."""
        of_devices = sum(device.compilations for device in self._devices)
        return of_devices + sum(joint.traces for joint in self._joint if joint is not None)

    def drop_copies(self) -> None:
        """Before runs of another kind: let go of what they will outdate."""
        self._copies.clear()
        self._again.clear()
        for joint in self._joint:
            if joint is not None:
                joint.forget()

    def _made_joint(self, at: int) -> Joint | None:
        """How all devices compute a stage as one, if they can. The last stage gives its state away."""
        stage, first = self._program.stages[at], self._devices[0]
        state = first.state(at) if at == len(self._program.stages) - 1 else ()
        return Joint([d.device for d in self._devices], stage, state) if stage.alike else None

    def _run(self, scope: Scope, parts: Sequence[Feed], fetches: Sequence[str], seed: Any) -> list[list[Any]]:
        asked = [[names[i] for names in map(self._names, fetches)] for i in range(len(self._devices))]
        fed = [self._fed(d, part) for d, part in zip(self._devices, parts, strict=True)]
        values = None
        if self._copies.current(scope):
            values = self._repeat(fed, tuple(fetches), seed)
        else:
            self._again.clear()
        if values is None:
            values = self._first(scope, fed, asked, tuple(fetches), seed)
        return self._stored(scope, values, asked)

    def _stored(self, scope: Scope, values: Sequence[Values], asked: Sequence[Sequence[str]]) -> list[list[Any]]:
        """Store what the run leaves; returns what is fetched."""
        pairs = zip(self._devices, values, strict=True)
        state = [{n: self._copies.placed(_given(known[n]), d.index) for n in d.keeps} for d, known in pairs]
        found = [[_unshared(known[n].value) for n in names] for known, names in zip(values, asked, strict=True)]
        wait_for(value for left in state for value in left.values())
        self._copies.store(scope, state)
        return found

    def _fed(self, device: _Device, part: Feed) -> Values:
        return {self._names(n)[device.index]: _fed(v, device.device) for n, v in part.items()}

    def _first(
        self, scope: Scope, fed: Sequence[Values], asked: Sequence[Sequence[str]], fetches: tuple[str, ...], seed: Any
    ) -> list[Values]:
        """Run all stages; what each device then knows."""
        values = [self._begin(scope, d, part, names) for d, part, names in zip(self._devices, fed, asked, strict=True)]
        before = [dict(known) for known in values]
        stages = [self._stage(at, values, asked, seed) for at in range(len(self._program.stages))]
        if not all(self._stays(d, *of) for d, *of in zip(self._devices, before, values, strict=True)):
            self._again.clear()
        elif all(stage.possible for stage in stages):
            while len(self._again) >= _KEPT:
                self._again.pop(next(iter(self._again)))
            self._again[fetches] = stages
        return values

    def _repeat(self, fed: Sequence[Values], fetches: tuple[str, ...], seed: Any) -> list[Values] | None:
        """Run all stages as an earlier run did; None where something differs, and then nothing has happened."""
        stages = self._again.get(fetches)
        if stages is None:
            return None
        values = [self._copies.handed(i) | part for i, part in enumerate(fed)]
        if not all(again.run(values, seed) for again in stages):
            return None
        self.repeated += 1
        return values

    def _stage(self, at: int, values: Sequence[Values], asked: Sequence[Sequence[str]], seed: Any) -> Again | JointCall:
        """Run a stage: all devices at once, or one after the other."""
        joint = self._joint[at]
        if joint is not None:
            wanted = {name for of_device in asked for name in of_device}
            first = self._devices[0]
            everywhere = first.elsewhere(at) | wanted
            called = joint.run(values, first.fetches(at, wanted), everywhere, seed)
            if called is not None:
                return called
        sum = partial(self._sum, self._program.stages[at].sums)
        apart = sum(values)
        calls = [
            with_device(device.device, device.step, at, apart, known, names, seed)
            for device, known, names in zip(self._devices, values, asked, strict=True)
        ]
        return Again(sum, apart, calls)

    def _begin(self, scope: Scope, device: _Device, part: Values, asked: Sequence[str]) -> Values:
        """What a device is fed, and what it may read of the scope."""
        values = dict(part)
        for name in dict.fromkeys([*device.reads, *asked]):
            if name not in values and (name in device.reads or name not in device.computed):
                array = self._copies.get(scope, name, device.index)
                if array is not None:
                    values[name] = Handed(array)
        return values

    def _stays(self, device: _Device, before: Values, after: Values) -> bool:
        """Whether the state that a device reads is left in the same form, as far as it is given it."""
        read = [n for n in device.keeps if type(before.get(n)) is Handed and after[n] is not None]
        left = [self._copies.placed(after[n].value, device.index) for n in read]
        return form([before[n].value for n in read]) == form(left)

    # --- the sums -------------------------------------------------------------------------------------------------

    def _sum(self, sums: Sequence[Sum], values: Sequence[Values]) -> tuple[Sum, ...]:
        """Sum arrays; returns the sums of selected rows, whose parts each device is given for its program to sum."""
        parts = [[known[name].value for name, known in zip(s.parts, values, strict=True)] for s in sums]
        dense = [s for s, of in zip(sums, parts, strict=True) if _are_arrays(of)]
        for s, totals in zip(dense, self._sums([of for of in parts if _are_arrays(of)]), strict=True):
            for name, known, total in zip(s.totals, values, totals, strict=True):
                known[name] = Handed(total)
        apart = [(s, of) for s, of in zip(sums, parts, strict=True) if not _are_arrays(of)]
        for s, of in apart:
            if not all(isinstance(part, (SelectedRows, ArrayImpl)) for part in of):
                raise Unspreadable(f"{s.parts[0]} is neither an array nor selected rows")
            for device, known in zip(self._devices, values, strict=True):
                known.update((n, Handed(_moved(part, device.device))) for n, part in zip(s.parts, of, strict=True))
        return tuple(s for s, _ in apart)


class _Device:
    """What one of the devices does in each stage.

    Attributes:
        device: the physical device.
        index: its number.
        reads: what it is fed, or may read of the scope.
        computed: what it computes, or is given as a sum.
        keeps: what it leaves in the scope.
    """

    def __init__(self, device: jax.Device, index: int, program: StagedProgram):
        self.device = device
        self.index = index
        self._stages = program.stages
        self._scope = Scope()  # stays empty: state is fed
        self._prepared: dict[Any, Prepared] = {}
        flows = [flow(p, p.blocks[0].ops) for p in (stage.programs[index] for stage in program.stages)]
        self._flows = [(tuple(reads), frozenset(writes)) for reads, writes in flows]
        self.computed: set[str] = set()
        self.reads: dict[str, None] = {}
        for stage, (reads, writes) in zip(program.stages, self._flows, strict=True):
            self.computed.update(s.totals[index] for s in stage.sums)
            self.reads.update((n, None) for n in reads if n not in self.computed)
            self.computed |= writes
        self.keeps = sorted(self.computed & program.persistable)
        self._later = [frozenset(self._needed_after(at)) | program.persistable for at in range(len(flows))]

    def _needed_after(self, at: int) -> set[str]:
        parts = {s.parts[self.index] for stage in self._stages[at + 1 :] for s in stage.sums}
        return parts.union(*(reads for reads, _ in self._flows[at + 1 :]))

    def state(self, at: int) -> frozenset[str]:
        """What a stage reads of the scope and replaces."""
        before = {s.totals[self.index] for s in self._stages[at].sums}.union(*(w for _, w in self._flows[:at]))
        reads, writes = self._flows[at]
        return writes.intersection(reads, self.keeps) - before

    def elsewhere(self, at: int) -> set[str]:
        """What other stages read."""
        return {n for k, (reads, _) in enumerate(self._flows) if k != at for n in reads}

    def fetches(self, at: int, asked: Collection[str]) -> tuple[str, ...]:
        """What of a stage's results and its sums is needed."""
        totals = (s.totals[self.index] for s in self._stages[at].sums)
        return tuple(sorted(self._flows[at][1].union(totals) & self._later[at].union(asked)))

    @property
    def compilations(self) -> int:
        """How many times its programs were traced and compiled."""
        return sum(prepared.compilations for prepared in self._prepared.values())

    def step(self, at: int, apart: Sequence[Sum], known: Values, asked: Sequence[str], seed: Any) -> Call | None:
        """Run a stage, which first sums what is ``apart``, and add to what is ``known``; returns what was called."""
        reads, writes = self._flows[at]
        totals = {s.totals[self.index] for s in apart}
        wanted = self._later[at].union(asked)
        fetches = sorted((writes | totals) & wanted)
        if at == 0:  # so that what is fed or held comes in the form of what is computed
            fetches += [n for n in dict.fromkeys(asked) if n not in self.computed]
        names = (*(n for n in reads if n not in totals), *(n for s in apart for n in s.parts), *fetches)
        feed = {n: known[n] for n in names if n in known}
        prepared = self._made(at, tuple(apart), tuple(feed), tuple(fetches))
        if not fetches:
            return NOTHING
        try:
            values = mode.run(prepared, self._scope, feed, seed if prepared.random else None)
        except (jax.errors.JaxRuntimeError, ValueError) as error:
            raise prepared.failure(self._scope, error)  # noqa: B904  (most often the error itself)
        call = Call.of(prepared, feed, fetches)
        known.update(zip(fetches, map(Handed, values), strict=True))
        return call

    def _made(self, at: int, apart: tuple[Sum, ...], feeds: tuple[str, ...], fetches: tuple[str, ...]) -> Prepared:
        checked, _, _ = preparing_flags()
        key = at, apart, feeds, fetches, checked
        found = self._prepared.get(key)
        if found is None:
            while len(self._prepared) >= _KEPT:
                self._prepared.pop(next(iter(self._prepared)))
            program = self._stages[at].program(self.index, apart)
            found = self._prepared[key] = Prepared(program, feeds, fetches, self.device.platform, checked)
        return found


def _are_arrays(parts: Sequence[Any]) -> bool:
    return all(isinstance(part, ArrayImpl) for part in parts) and len({part.shape for part in parts}) == 1


def _fed(value: Any, device: jax.Device) -> Any:
    """What the user feeds, for a device: arrays that are on another one are moved."""
    array = value._value if isinstance(value, LoDTensor) and not value.lod() else value
    return jax.device_put(array, device) if isinstance(array, jax.Array) else value


def _moved(value: Any, device: jax.Device) -> Any:
    return jax.tree_util.tree_map(lambda leaf: jax.device_put(leaf, device), value)


def _unshared(value: Any) -> Any:
    """A fetched value that no later run gives away."""
    if type(value) is ArrayImpl:
        return np.array(value)
    return jax.tree_util.tree_map(lambda leaf: np.array(leaf), value)


def _given(value: Handed | None) -> Any:
    return None if value is None else value.value
