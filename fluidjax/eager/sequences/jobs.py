"""What the compiling thread is given: what belongs to the sequence that ran last comes first."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

import jax

from fluidjax.execution.executables import background
from fluidjax.execution.executables.allocator import give_back_freed_memory
from lowering.engine.x64 import with_device


class _Job(NamedTuple):
    work: Callable[[], None]
    device: Any
    done: Future[None]


class Jobs:
    """Tasks for sequences, at most one of a kind for each that has not begun: a later one takes its place.

    There is no lock, which a process that forks meanwhile could not open: one thread adds, and one takes.
    """

    def __init__(self) -> None:
        self._waiting: dict[Any, _Job] = {}
        self._open: list[Future[None]] = []

    def add(self, entry: Any, kind: str, work: Callable[[], None]) -> None:
        """Have work done for an entry, whose ``last`` says when its sequence ran."""
        job = _Job(work, jax.config.jax_default_device, Future())  # type: ignore[attr-defined]
        replaced = self._waiting.pop((entry, kind), None)
        if replaced is not None:
            replaced.done.set_result(None)
        self._open = [done for done in self._open if not done.done() or done.exception() is not None]
        self._open.append(job.done)
        self._waiting[entry, kind] = job
        background.submit(self._work)

    def wait(self) -> None:
        """Wait for all of it, and raise the first error."""
        open_, self._open = self._open, []
        for done in open_:
            done.result()

    def _work(self) -> None:
        job = self._taken()
        if job is None:
            return
        try:
            with_device(job.device, job.work)
        except BaseException as error:
            job.done.set_exception(error)
        else:
            job.done.set_result(None)
        if not self._waiting:
            give_back_freed_memory()

    def _taken(self) -> _Job | None:
        """The job to do next; None if each was replaced."""
        while keys := [*self._waiting]:
            job = self._waiting.pop(max(keys, key=lambda key: key[0].last), None)
            if job is not None:
                return job
        return None
