"""Runs of a program on several devices: what each is fed, the program for all of them, and what they fetch.

Where there are as many physical devices, and their shares are alike, each runs the program that
``lowering.engine.parallel.spread`` makes, all at once; where shares differ, the stages that
``lowering.engine.parallel.staged`` makes. Else ``lowering.engine.parallel.replicas`` writes the program out for all
devices; it runs like any other. What devices keep for themselves between runs, such as running statistics, is in a
scope inside the one that is run over, and device 0's is in that one itself; so the kind of run may change from batch to
batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from fluidjax.base.flags import FLAGS
from fluidjax.base.places import Place
from fluidjax.base.scope import Scope
from fluidjax.execution.devices.dry import fetched_of_none
from fluidjax.execution.devices.processes import processes
from fluidjax.execution.devices.repeated import Last, RunPrepared
from fluidjax.execution.devices.shares import Feed, all_results, fed_or_held, form_of_share, shares
from fluidjax.execution.devices.staged import Staged
from fluidjax.execution.devices.written import Alone, Evenly, Unevenly, Written, forms_of
from fluidjax.execution.preparing import prepared
from fluidjax.execution.runs import mode
from fluidjax.execution.runs.asked import preparing_flags
from fluidjax.execution.runs.prepared import Prepared
from fluidjax.execution.scopes.state import gather_values
from fluidjax.execution.scopes.writer import make, write_back, write_fed
from fluidjax.execution.steps.mesh import Spread, Unspreadable
from fluidjax.framework import Program, program_view
from fluidjax.framework.distributed_table import divided_parameters
from fluidjax.readers.generator import next_feeds
from lowering.engine.parallel.devices import Devices
from lowering.engine.parallel.replicas import replicate
from lowering.engine.parallel.spread import spread
from lowering.engine.parallel.staged import stage, stageable

_TRIED = 4  # how often stages may be compiled on each device before their ops are taken to refuse room


class Facts(NamedTuple):
    """A program's persistable variables (outermost block), whether it has a backward pass, what is divided, and whether
    it can run in stages.
    """

    persistable: frozenset[str]
    trains: bool
    divided: frozenset[str]
    stageable: bool


class SeveralDevices:
    """How one program is run on several devices over one scope.

    Args:
        program: what is run (also an attribute).
        devices: how many there are, and what happens between them.
        scope: where the variables of device 0 are.
        local: where those of the others are; default a scope of its own.
        physical: physical devices, the executor's first.
        dry: whether runs compute nothing, and only feeds and the names of fetches are looked at.
        iterations: how many steps a run is.
    """

    def __init__(
        self,
        program: Program,
        devices: Devices,
        scope: Scope,
        local: Scope | None = None,
        physical: Sequence[jax.Device] = (),
        *,
        dry: bool = False,
        iterations: int = 1,
    ):
        self._dry = dry
        self.unfetched = range(iterations - 1)  # the steps of a run before its last one
        self.scope = scope
        self._physical = tuple(physical)
        self.local = local if local is not None else scope.new_scope()
        self.devices = devices
        self._agreed = devices.processes == 1
        self.program = program
        self._written: dict[Any, Written | Staged] = {}
        self._together: set[Any] = set()  # programs that have to be written out for one device
        self._known: tuple[Any, Facts] | None = None
        self._stays: list[Feed] = [{} for _ in range(devices.count)]  # persistable variables that were fed to a device
        self._dropped = True
        self._evenly: Evenly | Unevenly | Alone | None = None  # the last batch, if others may be like it
        self._last: Last | None = None
        self._dims: dict[str, tuple[int, ...]] = {}  # of shares, but for the first, in the last batch
        self._changes, self._in_stages = False, 0  # whether they did; for how many batches stages ran since

    def again(
        self, run: RunPrepared, place: Place, feed: Any, fetch_list: Any, return_numpy: bool, *, merge: bool
    ) -> list[Any] | None:
        """Run a batch like the last one, for the same fetches: their values. None where it is another one, or asks for
        something else, with nothing done.
        """
        last = self._last
        if last is None or last.batch is not self._evenly or _by_op() or not last.asks(place, fetch_list, merge=merge):
            return None
        if not last.batch.like(feed, self.program._version_token()):
            return None
        written = last.batch.written
        try:
            if isinstance(written, Staged):
                shares, _ = last.batch.given(feed)
                return self._staged(written, shares, last.fetches, place, return_numpy, merge=merge)
            assert last.prepared is not None
            values = run(self.program, last.prepared, feed, last.names, self.local, return_numpy, self.scope, written)
        except Unspreadable:
            return None
        return written.results(last.fetches, dict(zip(last.names, values, strict=True)), merge=merge)

    def run(
        self,
        run: RunPrepared,
        place: Place,
        device: jax.Device,
        feed: Any,
        fetches: tuple[str, ...],
        return_numpy: bool,
        *,
        merge: bool,
        fetch_list: Any = None,
    ) -> list[Any]:
        """Run a batch; the fetched values.

        Args:
            run: runs what was prepared.
            place, device: the executor's.
            feed: see ``shares.shares``.
            fetches: names of variables.
            return_numpy, merge: in which form they are returned.
            fetch_list: the user's, where a run like this one may come next.
        """
        if self._dry:
            return fetched_of_none(program_view(self.program), self.shares(feed), fetches, return_numpy, merge=merge)
        written, shares, fed = self.begin(feed, together=_by_op())
        try:
            if isinstance(written, Staged):
                found = self._staged(written, shares, fetches, place, return_numpy, merge=merge)
                self._note(place, fetch_list, fetches, merge=merge)
                return found
            names = written.fetches(fetches)
            made = prepared(self.program, tuple(fed), names, device.platform, written)
            values = run(self.program, made, fed, names, self.local, return_numpy, self.scope, written)
        except Unspreadable:
            self.write_together()
            return self.run(run, place, device, shares, fetches, return_numpy, merge=merge)
        self._note(place, fetch_list, fetches, names, made, merge=merge)
        return written.results(fetches, dict(zip(names, values, strict=True)), merge=merge)

    def _staged(
        self, written: Staged, shares: Any, fetches: tuple[str, ...], place: Place, return_numpy: bool, *, merge: bool
    ) -> list[Any]:
        parts = written.run(self.local, shares, fetches)
        write_fed(self.scope, written.fed_state(shares), place)
        return all_results(fetches, parts, return_numpy, merge=merge)

    def _note(
        self,
        place: Place,
        fetch_list: Any,
        fetches: tuple[str, ...],
        names: tuple[str, ...] = (),
        made: Prepared | None = None,
        *,
        merge: bool,
    ) -> None:
        """Let a run that asks for the same be recognised, if it may come; see ``Last``."""
        if self._evenly is not None and type(fetch_list) is list:
            flags, items = preparing_flags(), tuple(fetch_list)
            self._last = Last(self._evenly, place, flags, items, merge, fetches, names, made)

    def begin(self, feed: Any, *, together: bool) -> tuple[Written | Staged, Any, Any]:
        """What runs a batch, the feeds of the devices, and, unless it is run in stages, what the program is fed.

        Args:
            feed: see ``shares.shares``.
            together: see ``written``.

        Raises what ``shares`` and ``Written.feed`` do, and what readers of the program raise.
        """
        last, self._evenly = self._evenly, None
        if last is not None and not together and last.like(feed, self.program._version_token()):
            self._evenly = last
            return last.written, *last.given(feed)
        parts = next_feeds(self.program, self.shares(feed), idle=not self.trains)
        written, token = self.written(parts, together=together), self.program._version_token()
        apart = not together and self._facts().persistable.isdisjoint(parts[0])
        if isinstance(written, Staged):
            self._evenly = Unevenly.of(token, feed, self.devices.count, parts, written) if apart else None
            return written, parts, None
        fed = written.feed(parts)
        if apart and written.cuts(feed, parts):
            forms = forms_of(feed) if len(parts) > 1 else {}
            self._evenly = Evenly(token, forms, written) if forms else Alone(token, frozenset(feed), written)
        return written, parts, fed

    def shares(self, feed: Any) -> list[Feed]:
        """What each device is fed; see ``shares.shares``. Programs without a backward pass may leave devices idle."""
        self._dropped = False
        facts = self._facts()
        found = shares(feed, self.devices.count, facts.persistable, partial=not facts.trains)
        for name in {name: None for part in found for name in part}:
            self.program.global_block().var(name)
        return self._completed(found, facts.persistable)

    def _completed(self, parts: list[Feed], persistable: frozenset[str]) -> list[Feed]:
        """The feeds, where a device that lacks a persistable variable keeps what it was fed last."""
        names, stays = {name: None for part in parts for name in part}, self._stays[: len(parts)]
        for part, held in zip(parts, stays, strict=True):
            held.update((name, part[name]) for name in persistable & part.keys())
        return [
            {name: fed_or_held(part, held, name) for name in names} for part, held in zip(parts, stays, strict=True)
        ]

    @property
    def trains(self) -> bool:
        """Whether the program has a backward pass; else devices may be idle."""
        return self._facts().trains

    def drop_local_exe_scopes(self) -> None:
        """Release what runs have kept: nothing, here."""
        self._dropped, self._evenly = True, None

    def _need_create_local_exe_scopes(self) -> bool:
        """Whether no run has come since the last drop, or none at all."""
        return self._dropped

    def device_count(self) -> int:
        """How many devices there are."""
        return self.devices.count

    def _facts(self) -> Facts:
        token = self.program._version_token()
        if self._known is None or self._known[0] != token:
            view = program_view(self.program)
            held = frozenset(v.name for v in view.blocks[0].vars.values() if v.persistable)
            trains = any(op.is_backward for block in view.blocks for op in block.ops)
            self._known = token, Facts(held, trains, divided_parameters(self.program), stageable(view, self.devices))
        return self._known[1]

    def written(self, parts: Sequence[Feed], *, together: bool = False) -> Written | Staged:
        """The program for the devices that have something to do; ``together``: written for one physical device."""
        same = {n for n in self._facts().persistable & parts[0].keys() if all(p[n] is parts[0][n] for p in parts)}
        fed = frozenset(parts[0].keys() - same)
        version = self.program._version_token()
        if not self._agreed:
            self._agree()
        way = "together" if together or version in self._together else self._way(parts, fed)
        key = version, len(parts), fed, way
        found = self._written.get(key)
        if found is None:
            found = self._written[key] = self._write(len(parts), fed, way)
            self._share_out(found.state())
        for other in self._written.values():
            if other is not found and isinstance(other, Staged):
                other.drop_copies()
        return found

    def _write(self, count: int, fed: frozenset[str], way: str) -> Written | Staged:
        devices, view = replace(self.devices, count=count), program_view(self.program)
        if way == "together":
            return Written(replicate(view, devices, fed), None)
        if way == "staged":
            return Staged(self._physical[:count], self.program, stage(view, devices, fed))
        program = spread(view, devices, fed, self._facts().divided)
        _tell_whole(self._facts().divided - program.parts.keys(), count)
        return Written(program, Spread(self._physical[:count], program, fed), view.blocks[0].vars)

    def _way(self, parts: Sequence[Feed], fed: frozenset[str]) -> str:
        """How the devices run: spread, each share on a physical device of its own; staged, if forms differ."""
        if not 1 < len(parts) <= len(self._physical):
            return "together"
        forms = {name: form_of_share(parts[0][name]) for name in fed}
        alike = all(form and {form_of_share(p[name]) for p in parts} == {form} for name, form in forms.items())
        if alike and not (self._changing(forms) and self._facts().stageable):
            return "spread"
        return "staged" if self._facts().stageable else "together"

    def _changing(self, forms: dict[str, Any]) -> bool:
        """Whether any dim but the first of what is fed has changed: stages have room for more of such dims, where a
        program of all devices is compiled for every size. Not where stages were, too: their ops need exact sizes.
        """
        if not self._changes:
            now = {name: shape[1:] for name, (shape, _) in forms.items()}
            self._changes = any(self._dims.get(name, dims) != dims for name, dims in now.items())
            self._dims.update(now)
        traced = sum(run.compilations for run in self._written.values() if isinstance(run, Staged))
        stays = self._changes and traced <= (_TRIED + self._in_stages // 4) * self.devices.count
        self._in_stages += stays
        return stays

    def _agree(self) -> None:
        """Make all processes start from the first one's values."""
        joined = processes()
        assert joined is not None
        with self.scope._lock:
            held = gather_values(self.scope, sorted(self._facts().persistable), exact=True)
            plain = {n: v for n, v in held.items() if isinstance(v, (jax.Array, np.ndarray))}
            write_back(self.scope, dict(zip(plain, joined.firsts(list(plain.values())), strict=True)))
        self._agreed = True

    def write_together(self) -> None:
        """From now on, write this version of the program out for one physical device."""
        self._together.add(self.program._version_token())
        self._evenly = None

    def _share_out(self, state: dict[str, list[str]]) -> None:
        """Let each device have its own copy of what device 0 holds, unless it has one."""
        with self.scope._lock:
            values = gather_values(self.scope, state, exact=True)
            missing = {n: [c for c in copies if self.local.find_local_var(c) is None] for n, copies in state.items()}
            make(self.local, [c for copies in missing.values() for c in copies])
            write_back(self.local, {c: _copied(values[n]) for n in values for c in missing[n]})


def _tell_whole(names: Collection[str], count: int) -> None:
    """Warn of parameters that were to be divided and are not."""
    if names:
        warnings.warn(
            f"is_distributed: {', '.join(sorted(names))} cannot be divided among {count} devices: expected matrices"
            f" that no loop or branch reads, of a multiple of {count} rows (tables that ids look up) or columns (what"
            " products multiply by). Each device has the whole; change the sizes",
            stacklevel=2,
        )


def _by_op() -> bool:
    """Whether runs go op by op, for which the program is written out for one device."""
    return mode.current.interpret or bool(FLAGS["FLAGS_check_nan_inf"])


def _copied(value: Any) -> Any:
    return jax.tree_util.tree_map(lambda leaf: np.array(leaf, copy=True), value)
