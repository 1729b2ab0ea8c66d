"""Sections of a program that work on different batches at once, each stage on a device of its own.

A batch goes through the stages (see ``stages.py``) forwards and then backwards; what later sections need goes with it::

    stage 0   F0 F1    B0 F2 B1 F3 B2    B3
    stage 1      F0 B0 F1 B1 F2 B2 F3 B3

Each stage works in a fixed order: it runs ahead by as many batches as there are stages from it to the last, as far as
the queue allows, and then takes one batch back for each further one. So in every run, each batch meets a stage that the
same earlier batches have updated. A stage has a scope with variables of its own, taken from the user's before the first
batch and given back after the last.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import numpy as np

from fluidjax.base.places import Place, jax_device
from fluidjax.base.scope import Scope
from fluidjax.base.values import LoDTensor
from fluidjax.execution.devices.stages import Passed, Section, passed, stages
from fluidjax.execution.feeding.feed import Handed
from fluidjax.execution.feeding.missing import explained
from fluidjax.execution.runs import mode
from fluidjax.execution.runs.asked import preparing_flags
from fluidjax.execution.runs.prepared import Prepared
from fluidjax.execution.scopes.exchange import to_holder
from fluidjax.execution.scopes.state import gather_values
from fluidjax.execution.scopes.writer import make, write_back
from fluidjax.execution.steps.seeds import next_seed
from fluidjax.files.trust import check as check_trusted
from fluidjax.framework import Program, program_view
from fluidjax.readers.prefetch import Channel, ChannelClosed
from lowering.engine.x64 import with_device, with_x64
from lowering.errors import UninitializedError
from lowering.values import LoDArray


@dataclass
class Batch:
    """A batch on its way.

    Attributes:
        values: what was fed, and what sections have computed of it so far.
        seed: for the random numbers drawn for it.
    """

    values: dict[str, Any]
    seed: Any


class _Work:
    """A section made ready to run on a device."""

    def __init__(self, passed: Passed, device: jax.Device):
        checked, _, _ = preparing_flags()
        self.section = passed.section
        self._feeds, self._fetches = passed.feeds, passed.fetches
        self._device = device
        self.prepared = Prepared(
            passed.section.program, self._feeds, self._fetches, device.platform, checked, beside=False
        )

    def run(self, scope: Scope, batch: Batch) -> None:
        """Run the section for a batch, which takes along what is fetched."""
        if not self.prepared.ops:
            return
        feed = {name: _moved(batch.values[name], self._device) for name in self._feeds}
        try:
            values = with_device(self._device, mode.run, self.prepared, scope, feed, batch.seed)
        except (jax.errors.JaxRuntimeError, ValueError) as error:
            raise self.prepared.failure(scope, error)  # noqa: B904  (most often the error itself)
        batch.values.update(zip(self._fetches, values, strict=True))


@dataclass
class Stage:
    """A stage: its device, what it does with a batch on its way forwards and backwards, and its variables."""

    device: jax.Device
    ahead: Sequence[_Work]
    back: Sequence[_Work]
    scope: Scope = field(default_factory=Scope)

    def names(self, *, written: bool) -> list[str]:
        """The variables that persist between batches; ``written``: only those that its sections write."""
        sections = [work.section for work in (*self.ahead, *self.back)]
        return sorted({n for s in sections for n in (s.kept if written else s.held)})

    def take(self, scope: Scope) -> None:
        """Copy the stage's variables from ``scope`` to the stage's device."""
        self.scope = Scope()
        names = self.names(written=False)
        held = gather_values(scope, names, exact=True)
        make(self.scope, [*held, *self.names(written=True)])
        write_back(self.scope, {n: _copied(v, self.device) for n, v in held.items()})

    def give_back(self, scope: Scope, device: jax.Device) -> None:
        """Give the stage's variables back to ``scope``."""
        held = gather_values(self.scope, self.names(written=True), exact=True)
        write_back(scope, {n: _copied(v, device) for n, v in held.items()})


class Pipeline:
    """The stages of a program that ``PipelineOptimizer`` has cut, made ready for some feeds and fetches.

    Args:
        program: the program.
        fed: names of what is fed.
        fetches: names of what is fetched.
    """

    def __init__(self, program: Program, fed: Sequence[str], fetches: Sequence[str]):
        check_trusted(program)
        options = program._pipeline_opt
        self._program, self._fetches = program, tuple(fetches)
        found = [Section.of(program_view(section["program"])) for section in options["section_program_list"]]
        parts, last = passed(found, fed, fetches), len(found) - 1
        self.stages: list[Stage] = []
        for number, inner in enumerate(stages(found)):
            device = stage_device(options["place_list"][inner.start], number)
            back = [last - at for at in reversed(inner) if last - at > at]
            forwards, backwards = ([_Work(parts[at], device) for at in order] for order in (inner, back))
            self.stages.append(Stage(device, forwards, backwards))

    def run(
        self, scope: Scope, device: jax.Device, feeds: Iterator[Mapping[str, Any]], ways: int
    ) -> Iterator[list[Any]]:
        """Train on all feeds; yields what each batch fetched, in order.

        When it ends, is closed or fails, ``scope`` gets the variables as the stages have them by then.

        Args:
            scope: has the variables.
            device: their destination.
            feeds: of each batch.
            ways: how many batches are on their way at most.
        """
        with scope._lock:
            for stage in self.stages:
                stage.take(scope)
        line = _Line(len(self.stages), ways)
        names = [f"fluidjax-stage-{i}" for i in range(len(self.stages))]
        threads = [
            threading.Thread(target=self._work, args=(at, line, feeds), name=name, daemon=True)
            for at, name in enumerate(names)
        ]
        for thread in threads:
            thread.start()
        try:
            while (batch := line.finished()) is not None:
                yield [_shown(batch.values[name]) for name in self._fetches]
        finally:
            line.close()
            for thread in threads:
                thread.join()
            with scope._lock:
                for stage in self.stages:
                    stage.give_back(scope, device)

    def _work(self, at: int, line: _Line, feeds: Iterator[Mapping[str, Any]]) -> None:
        """The work of a stage's thread."""
        try:
            if at == 0:
                line.work(at, self._batches(feeds), self._forwards(at), self._backwards(at))
            else:
                line.work(at, line.arrivals(at), self._forwards(at), self._backwards(at))
        except ChannelClosed:
            pass
        except BaseException as error:  # raised again where finished batches are taken
            line.fail(error)

    def _batches(self, feeds: Iterator[Mapping[str, Any]]) -> Iterator[Batch]:
        random = any(work.prepared.random for stage in self.stages for work in (*stage.ahead, *stage.back))
        for feed in feeds:
            yield Batch(dict(feed), next_seed(self._program) if random else None)

    def _forwards(self, at: int) -> Callable[[Batch], None]:
        stage = self.stages[at]
        return lambda batch: self._run(stage.ahead, stage.scope, batch)

    def _backwards(self, at: int) -> Callable[[Batch], None]:
        stage = self.stages[at]
        return lambda batch: self._run(stage.back, stage.scope, batch)

    def _run(self, works: Sequence[_Work], scope: Scope, batch: Batch) -> None:
        try:
            for work in works:
                work.run(scope, batch)
        except UninitializedError as error:
            raise explained(error, self._program, batch.values) from error


class _Line:
    """The queue in which batches wait for the stages.

    Args:
        count: how many stages there are.
        ways: how many batches are on their way at most.
    """

    def __init__(self, count: int, ways: int):
        self._depths = [min(ways, count - at) for at in range(count)]
        self._ahead = [Channel(ways + 1) for _ in range(count)]
        self._back = [Channel(ways + 1) for _ in range(count)]
        self._finished = Channel(ways + 1)
        self._failure: BaseException | None = None

    def work(
        self,
        at: int,
        batches: Iterator[Batch],
        forwards: Callable[[Batch], None],
        backwards: Callable[[Batch], None],
    ) -> None:
        """Do the work of a stage, in its order, until all batches have come back."""
        further = self._ahead[at + 1] if at + 1 < len(self._ahead) else self._back[at]
        nearer = self._back[at - 1] if at else self._finished
        waiting = 0
        more = True
        while more or waiting:
            if more and waiting < self._depths[at]:
                batch = next(batches, None)
                more = batch is not None
                if batch is not None:
                    forwards(batch)
                    waiting += 1
                if batch is not None or at + 1 < len(self._ahead):
                    further.put(batch)
            else:
                batch = self._back[at].get()
                backwards(batch)
                waiting -= 1
                nearer.put(batch)
        if not at:
            nearer.put(None)

    def arrivals(self, at: int) -> Iterator[Batch]:
        """The batches that reach a stage on their way forwards."""
        return itertools.takewhile(lambda batch: batch is not None, iter(self._ahead[at].get, self))

    def finished(self) -> Batch | None:
        """The next finished batch; None after the last. Raises what a stage raised."""
        try:
            return self._finished.get()
        except ChannelClosed:
            assert self._failure is not None
            raise self._failure from None

    def fail(self, error: BaseException) -> None:
        """End all work; ``finished`` raises the first such error."""
        self._failure = self._failure or error
        self.close()

    def close(self) -> None:
        """End all work."""
        for channel in (*self._ahead, *self._back, self._finished):
            channel.close()


def stage_device(place: Place, number: int) -> jax.Device:
    """The device of a stage: the accelerator that its place names, or the next one of the host's."""
    if not place.is_cpu_place():
        return jax_device(place)
    hosts = jax.local_devices(backend="cpu")
    return hosts[number % len(hosts)]


def _put(array: jax.Array, device: jax.Device, **options: Any) -> jax.Array:
    """The array on a device, in its own type: without 64-bit types a copy to another device has 32 bits."""
    return with_x64(partial(jax.device_put, array, device, **options))


def _moved(value: Any, device: jax.Device) -> Any:
    """A section's feed, on its device: a value that another section left, or one that the user feeds."""
    if isinstance(value, LoDArray) and value.padded:
        return Handed(jax.tree_util.tree_map(lambda leaf: _put(leaf, device), value))
    value = value if isinstance(value, (LoDTensor, np.ndarray)) else to_holder(value)
    array = value._value if isinstance(value, LoDTensor) and not value.lod() else value
    return _put(array, device) if isinstance(array, jax.Array) else array


def _shown(value: Any) -> Any:
    """What the user gets for a value, which may be one that was fed."""
    return value if isinstance(value, LoDTensor) else to_holder(value)


def _copied(value: Any, device: jax.Device) -> Any:
    """A value of a scope for another one: an array on a device, all else on the host."""
    if isinstance(value, jax.Array):
        return _put(value, device, may_alias=False)
    return jax.tree_util.tree_map(np.array, value)
